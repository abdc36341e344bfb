"""How questions and models are named, as Karenina names them, so that keys made by either are the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from replaypack.errors import ReplayValueError

__all__ = ["get", "model_id_of", "question_id_of"]

_DROPPED = str.maketrans({" ": "-", "?": None, ".": None, ",": None})


def get(obj: Any, name: str, default: Any = None) -> Any:
    """The attribute of an object, or the item of a mapping."""
    return obj.get(name, default) if isinstance(obj, Mapping) else getattr(obj, name, default)


def question_id_of(text: str) -> str:
    """The id of a question: a URN of the beginning of its text and of its MD5."""
    md5 = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
    return f"urn:uuid:question-{text.lower().translate(_DROPPED)[:50]}-{md5[:8]}"


def model_id_of(model: Any) -> str:
    """The name of an answering model: ``interface:model_name``, and the names of its tools where it has any.

    ``model`` (an object or a mapping) has a ``display_string``, or ``interface``, ``model_name`` and maybe ``tools``
    (names) or ``mcp_urls_dict`` (by name). Text is taken as it is. Raises `ReplayValueError`.
    """
    shown = model if isinstance(model, str) else get(model, "display_string")
    if isinstance(shown, str) and shown:
        return shown
    interface, name = get(model, "interface"), get(model, "model_name")
    # Members of a text enumeration are told by their value.
    interface = getattr(interface, "value", interface)
    if not isinstance(interface, str):
        raise ReplayValueError(
            f"{type(model).__name__} has neither a display_string nor an interface and a model_name",
            hint="pass model_id=, a function that names a model",
        )
    servers = get(model, "mcp_urls_dict")
    tools = sorted(servers) if servers else list(get(model, "tools") or ())
    return f"{interface}:{name or 'unknown'}" + (f" +[{', '.join(tools)}]" if tools else "")
