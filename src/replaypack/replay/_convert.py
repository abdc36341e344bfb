"""Plain data back into the type that the caller works with."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import PurePath
from typing import Any

import msgspec

from replaypack.errors import UsageError

__all__ = ["converter", "names_objects"]


def converter(returns: Any) -> Callable[[Any], Any] | None:
    """What makes a result out of plain data: ``returns`` is a type, or a function of the plain value, or None."""
    if returns is None:
        return None
    try:
        return _cached(returns)
    except TypeError:  # not hashable
        return _converter(returns)


def _converter(returns: Any) -> Callable[[Any], Any]:
    if callable(returns) and not isinstance(returns, type) and typing.get_origin(returns) is None:
        return returns  # type: ignore[no-any-return]
    convert: Callable[[Any], Any] = partial(msgspec.convert, type=returns, strict=False, dec_hook=_of_others)
    if _any_part(returns, _is_pydantic):
        convert = _validator(returns)

    def to_type(plain: Any) -> Any:
        try:
            return convert(plain)
        except Exception as error:
            raise UsageError(
                f"what came back is no {getattr(returns, '__name__', returns)}: {error}",
                hint="returns= takes a function of the plain value, too, and goes before a return annotation",
            ) from error

    return to_type


def _validator(returns: Any) -> Callable[[Any], Any]:
    import pydantic

    validate = pydantic.TypeAdapter(returns).validate_python
    # Plain data has fields by their names, and text for dates: what a model wants of the outside does not matter.
    options: dict[str, Any] = {"strict": False}
    if "by_name" in inspect.signature(validate).parameters:  # from 2.11 on
        options |= {"by_alias": True, "by_name": True}
    return partial(validate, **options)


def _of_others(cls: type, plain: Any) -> Any:
    """A part of a type that msgspec does not know."""
    if issubclass(cls, PurePath):
        return cls(plain)
    if _is_pydantic(cls):
        return _validator(cls)(plain)
    if isinstance(plain, cls):
        return plain
    raise TypeError(f"nothing makes a {cls.__name__} of plain data")


_cached = lru_cache(maxsize=256)(_converter)


def names_objects(annotation: Any) -> bool:
    """Whether a return annotation names a type whose values plain data can be turned back into."""
    return _any_part(annotation, _is_object)


def _is_object(part: Any) -> bool:
    return isinstance(part, type) and (
        dataclasses.is_dataclass(part) or issubclass(part, msgspec.Struct) or _is_pydantic(part)
    )


def _is_pydantic(part: Any) -> bool:
    return isinstance(part, type) and callable(getattr(part, "model_validate", None))


def _any_part(annotation: Any, test: Callable[[Any], bool]) -> bool:
    return test(annotation) or any(_any_part(part, test) for part in typing.get_args(annotation))
