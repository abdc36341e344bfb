"""What keys and entries have in common: checked when they are made, with the methods that users of pydantic know."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from inspect import get_annotations
from typing import Any, ClassVar, Literal, NamedTuple, Self, dataclass_transform, get_type_hints

import msgspec

from replaypack.errors import ReplayValueError

__all__ = ["Field", "Model"]

_MISSING: Any = object()


class Field(NamedTuple):
    """One field of a `Model`: its type, and its default where it has one."""

    annotation: Any
    default: Any

    def is_required(self) -> bool:
        """Whether a value must be given."""
        return self.default is _MISSING


@dataclass_transform(kw_only_default=True)
class Model:
    """Base of classes whose fields are checked: no conversion between types, no unknown fields.

    A ``frozen`` class cannot be changed and can be hashed; of another one, what is assigned is checked as well.
    Raises `ReplayValueError`, which is a ``ValueError``.
    """

    #: The fields by name, in order.
    model_fields: ClassVar[dict[str, Field]]
    _frozen: ClassVar[bool]
    _check: ClassVar[Callable[[Any], Any]]

    def __init_subclass__(cls, *, frozen: bool = False) -> None:
        own = get_annotations(cls)
        hints = {name: hint for name, hint in get_type_hints(cls).items() if name in own}
        cls.model_fields = {name: Field(hint, cls.__dict__.get(name, _MISSING)) for name, hint in hints.items()}
        # The same fields as a Struct: msgspec checks all of them in one call.
        shape = msgspec.defstruct(
            cls.__name__,
            [
                (name, field.annotation) if field.is_required() else (name, field.annotation, field.default)
                for name, field in cls.model_fields.items()
            ],
            kw_only=True,
            forbid_unknown_fields=True,
        )
        cls._check = staticmethod(lambda values: msgspec.structs.asdict(msgspec.convert(values, shape)))
        cls._frozen = frozen
        if not frozen:
            cls.__hash__ = None  # type: ignore[assignment]

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(self._checked(values))

    @classmethod
    def _checked(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return cls._check(values)  # type: ignore[no-any-return]
        except (msgspec.ValidationError, RecursionError, UnicodeEncodeError) as error:
            # The last one is a field whose name has a lone surrogate.
            text = str(error).replace("`$.", f"`{cls.__name__}.")
            raise ReplayValueError(f"{cls.__name__}: {text[:1].lower()}{text[1:]}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if self._frozen:
            raise ReplayValueError(f"{type(self).__name__} is frozen: {name} cannot be set", hint="use model_copy")
        self.__dict__.update(self._checked({**self.__dict__, name: value}))

    def __delattr__(self, name: str) -> None:
        raise ReplayValueError(f"{type(self).__name__}: {name} cannot be removed")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))

    def __repr__(self) -> str:
        given = (f"{name}={value!r}" for name, value in self.__dict__.items() if value is not None)
        return f"{type(self).__name__}({', '.join(given)})"

    @classmethod
    def model_validate(cls, obj: Any) -> Self:
        """Make one of a mapping of its fields, or of a pydantic model with the same fields."""
        if isinstance(obj, cls):
            return obj
        if not isinstance(obj, Mapping) and callable(dump := getattr(obj, "model_dump", None)):
            obj = dump()
        if not isinstance(obj, Mapping) or not all(isinstance(name, str) for name in obj):
            raise ReplayValueError(f"{cls.__name__} is made of a mapping of its fields, not of {type(obj).__name__}")
        return cls(**obj)

    def model_dump(
        self,
        *,
        mode: Literal["python", "json"] = "python",
        include: Collection[str] | None = None,
        exclude: Collection[str] = (),
        exclude_none: bool = False,
        exclude_defaults: bool = False,
    ) -> dict[str, Any]:
        """Return the fields as a dictionary; containers in it are copies. ``mode="json"`` has JSON types only."""
        dumped = {}
        for name, value in self.__dict__.items():
            if (
                (include is not None and name not in include)
                or name in exclude
                or (exclude_none and value is None)
                or (exclude_defaults and value == self.model_fields[name].default)
            ):
                continue
            dumped[name] = _copied(value)
        if mode == "python":
            return dumped
        if mode != "json":
            raise ReplayValueError(f"mode is 'python' or 'json', not {mode!r}")
        try:
            return _listed(msgspec.to_builtins(dumped, str_keys=True))  # type: ignore[no-any-return]
        except (TypeError, ValueError, RecursionError) as error:
            raise ReplayValueError(f"{type(self).__name__}: {error}") from None

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy, with the fields of ``update`` instead of its own; those are checked."""
        values = deepcopy(self.__dict__) if deep else self.__dict__
        return type(self)(**{**values, **(update or {})})


def _listed(value: Any) -> Any:
    """The same with lists for tuples, which msgspec leaves."""
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
