"""Recorded exceptions: how one is written down, and how it is raised again.

An archive is not trusted: of what it names, only builtin exceptions, types that were registered, and exceptions of the
packages in `_SDKS` are made. Anything else comes back as `ReplayedError`.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from replaypack import values
from replaypack._escape import escape
from replaypack._write.prepare import describe_error
from replaypack.errors import ReplayedError, ReplaypackError, UsageError

__all__ = ["describe", "rebuild", "register_error"]

_E = TypeVar("_E", bound=Exception)
_Describe = Callable[[Any], Any]
_Build = Callable[[dict[str, Any]], Exception]

#: Causes and members of groups are followed this deep.
_DEPTH = 8
#: Raised by a generator or an event loop they mean something else.
_NOT_RAISED = (StopIteration, StopAsyncIteration)
#: Packages whose exceptions are made again, where installed: those that they export by name.
_SDKS = ("httpx", "httpx2", "openai", "anthropic")
_HTTP = ("httpx", "httpx2")
#: What no longer holds of a body that is stored decoded.
_OF_THE_WIRE = frozenset({"content-encoding", "content-length", "transfer-encoding"})

_registered: dict[str, tuple[_Describe | None, _Build | None, type[Exception]]] = {}


def register_error(
    type: type[_E],
    *,
    describe: Callable[[_E], Any] | None = None,
    build: Callable[[dict[str, Any]], _E] | None = None,
) -> None:
    """Have recorded exceptions of exactly this type raised again as such.

    ``describe`` returns plain data that is recorded besides message and arguments, under ``details``. ``build`` gets
    what was recorded (``type``, ``module``, ``message``, ``args``, ``details``) and returns the exception; without
    it the type is called with ``args``, or where those were no plain data with ``message``.

    Raises `UsageError` for what is no exception type.
    """
    if not isinstance(type, builtins.type) or not issubclass(type, Exception):
        raise UsageError(f"{type!r} is not a subclass of Exception")
    _registered[f"{type.__module__}:{type.__qualname__}"] = (describe, build, type)


# Writing down


def describe(error: BaseException, *, depth: int = _DEPTH) -> dict[str, Any]:
    """Return an exception as plain data (spec/registry.md, "Error details")."""
    described = describe_error(error)
    # What an exception has is often code of its own: where that fails, it must not hide the exception.
    for part in (_details, _arguments, _notes, _related):
        with suppress(Exception):
            described.update(part(error, depth))
    return described


def _details(error: BaseException, depth: int) -> dict[str, Any]:
    cls = type(error)
    describer: _Describe | None = _describe_http if _root(str(cls.__module__)) in _SDKS else None
    entry = _registered.get(f"{cls.__module__}:{cls.__qualname__}")
    if entry is not None:
        describer = entry[0]
    details = _plain(describer(error)) if describer is not None else None
    return {} if details is None else {"details": details}


def _arguments(error: BaseException, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (args := _plain(list(error.args))) is not None and (tuples := _plain(list(_tuples(error.args, [])))):
        found["tuples"] = tuples
    if isinstance(error, OSError):
        # The file names of these are not among the arguments, and the message shows them.
        called_with = _plain(list(OSError.__reduce__(error)[1]))
        if called_with is not None and called_with != args:
            found["called_with"] = called_with
    return found


def _notes(error: BaseException, depth: int) -> dict[str, Any]:
    notes = _plain([note for note in getattr(error, "__notes__", ()) if isinstance(note, str)])
    return {"notes": notes} if notes else {}


def _related(error: BaseException, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if depth and error.__cause__ is not None:
        found["cause"] = describe(error.__cause__, depth=depth - 1)
    if depth and isinstance(error, BaseExceptionGroup):
        found["exceptions"] = [describe(member, depth=depth - 1) for member in error.exceptions]
        found["message"] = error.message
    return found


def _plain(value: object) -> Any:
    """``value`` as it will be read back; None where it cannot be stored."""
    try:
        return values.decode(values.encode(value))
    except ReplaypackError:
        return None


def _tuples(value: Any, path: list[Any]) -> Iterator[list[Any]]:
    """The places of tuples in the arguments: stored they are lists, and ``str(KeyError((1, 2)))`` shows them."""
    if type(value) is tuple and path:
        yield path
    items = value.items() if type(value) is dict else enumerate(value) if type(value) in (list, tuple) else ()
    for key, child in items:
        yield from _tuples(child, [*path, key])


def _describe_http(error: Any) -> dict[str, Any]:
    """What an HTTP client's exception carries. Neither the headers of requests nor passwords in URLs: secrets."""
    details: dict[str, Any] = {}
    response = getattr(error, "response", None)
    try:
        request = error.request
    except (AttributeError, RuntimeError):
        request = None
    for part in (response, request):
        if part is not None:
            details["library"] = _root(type(part).__module__)
    if request is not None:
        details["request"] = {"method": request.method, "url": str(request.url.copy_with(userinfo=b""))}
    if response is not None:
        try:
            body: Any = response.content
            body = body.decode()
        except UnicodeDecodeError:
            pass
        except Exception:
            body = None  # a stream that was not read
        headers = [[name, value] for name, value in response.headers.multi_items() if name not in _OF_THE_WIRE]
        details["response"] = {"status": response.status_code, "headers": headers, "body": body}
    if (body := _plain(getattr(error, "body", None))) is not None:
        details["body"] = body
    return details


def _root(module: str) -> str:
    return module.partition(".")[0]


# Raising again


def rebuild(recorded: Mapping[str, Any], *, depth: int = _DEPTH) -> Exception:
    """Return the exception that a record describes, of its type where that may be made, else a `ReplayedError`."""
    recorded = dict(recorded)
    error = _rebuild(recorded, depth)
    if error is None:
        try:
            args = _args(recorded)
        except Exception:
            args = None
        error = ReplayedError(
            str(recorded.get("message")),
            type=_text(recorded.get("type")),
            module=_text(recorded.get("module")),
            args=args,
            details=recorded,
        )
    for note in _list(recorded.get("notes")):
        if isinstance(note, str):
            error.add_note(note)
    if isinstance(error, ReplayedError) and error.type is not None:
        # An `except` of the type that was recorded did not catch it, and its text is that of the recorded one.
        known_as = error.type if error.module is None else f"{error.module}.{error.type}"
        note = escape(f"replaypack: recorded as {known_as}")
        own = error.module not in (None, "builtins") and f"{error.module}:{error.type}" not in _registered
        error.add_note(note + ("; `replaypack.replay.failures.register_error` has it raised as that" if own else ""))
    if depth and isinstance(cause := recorded.get("cause"), dict):
        error.__cause__ = rebuild(cause, depth=depth - 1)
    return error


def _args(recorded: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments as they were, tuples too. Raises whatever a description that is none leads to."""
    if not isinstance(recorded["args"], list):
        raise TypeError
    # What is changed here must not be the record's.
    args = values.decode(values.encode(recorded["args"]))
    for path in sorted(_list(recorded.get("tuples")), key=len, reverse=True):
        inside = args
        for step in path[:-1]:
            inside = inside[step]
        inside[path[-1]] = tuple(inside[path[-1]])
    return tuple(args)


def _called_with(recorded: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments; the message where they were no plain data (another exception, say) and were not recorded."""
    return _args(recorded) if "args" in recorded else (_text(recorded["message"]),)


def _rebuild(recorded: dict[str, Any], depth: int) -> Exception | None:
    name, module = recorded.get("type"), recorded.get("module")
    if not isinstance(name, str) or not isinstance(module, str):
        return None
    try:
        entry = _registered.get(f"{module}:{name}")
        if entry is not None:
            _, build, cls = entry
            return build(recorded) if build is not None else cls(*_called_with(recorded))
        if module == "builtins":
            return _builtin(name, recorded, depth)
        if _root(module) in _SDKS:
            return _of_sdk(_root(module), name, recorded)
    except Exception:
        # Arguments that this type does not take: of another version of it, or of somebody's making.
        return None
    return None


def _builtin(name: str, recorded: dict[str, Any], depth: int) -> Exception | None:
    cls = getattr(builtins, name, None)
    if not isinstance(cls, type) or not issubclass(cls, Exception) or issubclass(cls, _NOT_RAISED):
        return None
    if issubclass(cls, ExceptionGroup):
        if not depth:
            return None
        members = [rebuild(member, depth=depth - 1) for member in recorded["exceptions"]]
        return cls(recorded["message"], members)
    if "called_with" in recorded:
        return cls(*recorded["called_with"])
    return cls(*_called_with(recorded))


def _of_sdk(package: str, name: str, recorded: dict[str, Any]) -> Exception | None:
    if importlib.util.find_spec(package) is None:
        return None
    cls = getattr(importlib.import_module(package), name, None)
    if not isinstance(cls, type) or not issubclass(cls, Exception):
        return None
    details = recorded.get("details") or {}
    given: dict[str, Any] = {"message": recorded["message"], "body": details.get("body")}
    library = _http_library(details.get("library"))
    if library is not None and "request" in details:
        given["request"] = library.Request(details["request"]["method"], details["request"]["url"])
    if library is not None and "response" in details:
        body = details["response"]["body"]
        given["response"] = library.Response(
            details["response"]["status"],
            headers=[(name, value) for name, value in details["response"]["headers"]],
            content=body.encode() if isinstance(body, str) else body,
            request=given.get("request"),
        )
    try:
        wanted = [*inspect.signature(cls).parameters.values()]
    except ValueError:
        return cls(*_called_with(recorded))  # it has no constructor of its own
    takes = {parameter.name: given[parameter.name] for parameter in wanted if parameter.name in given}
    if any(
        p.name not in takes and p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in wanted
    ):
        # It is made of objects that were not recorded: its type and message are what is left.
        error = cls.__new__(cls)
    else:
        error = cls(**takes)
    if str(error) != recorded["message"] or not error.args:
        error.args = tuple(recorded.get("args") or ())
    return error


def _http_library(name: object) -> Any:
    if name not in _HTTP:
        return None
    for package in (name, *_HTTP):
        if importlib.util.find_spec(str(package)) is not None:
            return importlib.import_module(str(package))
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
