"""Secrets that can be told by their form: the tokens of well-known services (spec, registry: "Forms of tokens")."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["SHAPES", "Shape", "prefixed"]


class Shape(NamedTuple):
    """One form: its name, texts of which one is in every match, the pattern. Patterns never backtrack far."""

    name: str
    marks: tuple[str, ...]
    pattern: re.Pattern[str]


def _shape(name: str, marks: str, pattern: str) -> Shape:
    return Shape(name, tuple(marks.split()), re.compile(r"(?<![A-Za-z0-9])" + pattern))


#: A digit within the next characters: words joined by hyphens have none, tokens do.
_DIGIT = r"(?=[A-Za-z_-]{0,80}[0-9])"

SHAPES: Final = (
    _shape("openai", "sk-", r"sk-(?:[a-z0-9]{2,12}-){0,2}" + _DIGIT + r"[A-Za-z0-9_-]{20,400}"),
    _shape("github", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{36,255}"),
    _shape("github", "github_pat_", r"github_pat_[A-Za-z0-9_]{50,255}"),
    _shape("gitlab", "glpat-", r"glpat-[A-Za-z0-9_-]{20,300}"),
    _shape("aws", "AKIA ASIA", r"(?:AKIA|ASIA)[A-Z2-7]{16}(?![A-Za-z0-9])"),
    _shape("google", "AIza", r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    _shape("google", "ya29.", r"ya29\.[A-Za-z0-9_-]{20,2000}"),
    _shape("slack", "xox", r"xox[abeoprs]-[A-Za-z0-9-]{10,250}"),
    _shape("stripe", "k_live_ k_test_", r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,250}"),
    _shape("huggingface", "hf_", r"hf_[A-Za-z0-9]{30,100}"),
    _shape("groq", "gsk_", r"gsk_[A-Za-z0-9]{40,100}"),
    _shape("xai", "xai-", r"xai-[A-Za-z0-9]{60,120}"),
    _shape("replicate", "r8_", r"r8_[A-Za-z0-9]{37,60}"),
    _shape("perplexity", "pplx-", r"pplx-[A-Za-z0-9]{40,80}"),
    _shape("npm", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _shape("pypi", "pypi-AgE", r"pypi-AgE[A-Za-z0-9_-]{50,500}"),
    _shape("sendgrid", "SG.", r"SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,100}"),
    _shape("digitalocean", "_v1_", r"do[opr]_v1_[a-f0-9]{64}"),
    _shape("jwt", "eyJ", r"eyJ[A-Za-z0-9_-]{8,1024}+\.eyJ[A-Za-z0-9_-]{8,65536}+\.[A-Za-z0-9_-]{0,8192}"),
    _shape(
        "private_key",
        "PRIVATE",
        # The end is optional, so that what was matched is never looked at again.
        r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?!-----)[\s\S]){0,65536}+(?:-----END (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----)?",
    ),
)


def prefixed(prefixes: Iterable[str]) -> list[Shape]:
    """Forms of one's own: a prefix and 12 or more letters, digits, ``_`` or ``-``."""
    return [
        Shape("prefix", (prefix,), re.compile(r"(?<![A-Za-z0-9])" + re.escape(prefix) + r"[A-Za-z0-9_-]{12,1000}"))
        for prefix in prefixes
    ]
