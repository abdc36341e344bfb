"""Functions of the four kinds, wrapped so that their calls go through a session."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from replaypack._arguments import check_text, names_of
from replaypack.errors import UsageError

from ._convert import names_objects
from .modes import kind_of

if TYPE_CHECKING:
    from .session import ReplaySession

__all__ = ["wrapped"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def wrapped(
    function: Callable[_P, _R],
    find: Callable[[], ReplaySession | None],
    *,
    name: str | None,
    kind: str,
    ignore: Collection[str],
    identity: Callable[..., Any] | None,
    returns: Any,
) -> Callable[_P, _R]:
    """``function`` with its calls going through the session that ``find`` gives, if it gives one.

    See `ReplaySession.wrap`. Raises `UsageError` for what cannot be wrapped so.
    """
    if not callable(function):
        raise UsageError(
            f"{type(function).__name__} is not a function", hint="put @tool below @classmethod and the like"
        )
    check_text("name", name)
    label, kind = name or _name_of(function), kind_of(kind)
    if identity is not None and ignore:
        raise UsageError("give either ignore or identity, which decides what is in the key alone")
    arguments = identity if identity is not None else _Arguments(function, ignore)
    if returns is None:
        returns = _annotated(function)

    def identity_of(args: Any, kwargs: Any) -> dict[str, Any]:
        return {"name": label, "args": arguments(*args, **kwargs)}

    call: Any = function
    wrapper: Any
    if inspect.iscoroutinefunction(function):

        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            session = find()
            if session is None:
                return await call(*args, **kwargs)
            given = identity_of(args, kwargs)
            return await session.acall(kind, given, lambda: call(*args, **kwargs), name=label, returns=returns)

    elif inspect.isgeneratorfunction(function):

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            session = find()
            if session is None:
                return (yield from call(*args, **kwargs))
            given = identity_of(args, kwargs)
            return (yield from session.stream(kind, given, lambda: call(*args, **kwargs), name=label, returns=returns))

    elif inspect.isasyncgenfunction(function):

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            session = find()
            if session is None:
                return call(*args, **kwargs)
            given = identity_of(args, kwargs)
            return session.astream(kind, given, lambda: call(*args, **kwargs), name=label, returns=returns)

    else:

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            session = find()
            if session is None:
                return call(*args, **kwargs)
            given = identity_of(args, kwargs)
            return session.call(kind, given, lambda: call(*args, **kwargs), name=label, returns=returns)

    return cast("Callable[_P, _R]", wraps(function)(wrapper))


def _name_of(function: Any) -> str:
    name = getattr(function, "__qualname__", None)
    if not isinstance(name, str) or "<lambda>" in name:
        raise UsageError(f"{type(function).__name__} {function!r} has no name of its own", hint="give name=…")
    return name.rpartition("<locals>.")[2]


def _annotated(function: Any) -> Any:
    """The return annotation (of each item, for generators), where plain data has to be turned back into it."""
    function = function.func if isinstance(function, partial) else function
    try:
        returns = typing.get_type_hints(function).get("return")
    except Exception:
        return None  # names that are only there for type checkers
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        items = typing.get_args(returns)
        returns = items[0] if items else None
    return returns if names_objects(returns) else None


class _Arguments:
    """The arguments of a call by parameter, defaults included: what `inspect.Signature.bind` gives, faster."""

    def __init__(self, function: Callable[..., Any], ignore: Collection[str]) -> None:
        # The signature of a partial leaves out what it was given by position, which tells its calls from others.
        self._partial = function if isinstance(function, partial) else None
        if self._partial is not None:
            function = self._partial.func
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            raise UsageError(f"{function!r} has no signature", hint="give identity=…") from None
        parameters = list(signature.parameters.values())
        ignored = set(names_of("ignore", ignore) or ())
        if unknown := ignored - set(signature.parameters):
            raise UsageError(f"ignore: {', '.join(sorted(unknown))} is no parameter of {function!r}")
        if parameters and parameters[0].name in ("self", "cls"):
            ignored.add(parameters[0].name)
        self._signature = signature
        self._ignored = ignored
        self._names = [parameter.name for parameter in parameters]
        self._positional = sum(parameter.kind is not parameter.KEYWORD_ONLY for parameter in parameters)
        self._defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        self._simple = all(parameter.kind in _BY_NAME for parameter in parameters)

    def __call__(self, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if self._partial is not None:
            args, kwargs = (*self._partial.args, *args), {**self._partial.keywords, **kwargs}
        if self._simple and len(args) <= self._positional:
            given = dict(zip(self._names, args, strict=False))
            if not (given.keys() & kwargs.keys()):
                values = {**self._defaults, **given, **kwargs}
                if len(values) == len(self._names) and values.keys() == set(self._names):
                    return {name: values[name] for name in self._names if name not in self._ignored}
        bound = self._signature.bind(*args, **kwargs)  # raises the TypeError that the call would
        bound.apply_defaults()
        return {name: value for name, value in bound.arguments.items() if name not in self._ignored}
