"""Which names of fields hold secrets (spec, registry: "Names whose values are removed")."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["NAMES", "PLACEHOLDER", "QUERY_NAMES", "NameRules", "fold", "words"]

#: What stands for every value that was removed. It is safe in URLs, headers, forms and JSON, and no base64 decoder
#: makes anything of it.
PLACEHOLDER: Final = "__redacted__"

#: A name is sensitive when its last words, joined, are one of these: `OPENAI_API_KEY`, `x-api-key`, `apiKey`.
NAMES: Final = frozenset(
    {
        "accesstoken",
        "accountkey",
        "apikey",
        "apisecret",
        "apitoken",
        "authkey",
        "authorization",
        "authtoken",
        "bearertoken",
        "bottoken",
        "clientsecret",
        "consumersecret",
        "cookie",
        "csrftoken",
        "functionskey",
        "githubtoken",
        "gitlabtoken",
        "hftoken",
        "idtoken",
        "npmtoken",
        "oauthtoken",
        "passphrase",
        "passwd",
        "password",
        "privatekey",
        "privatetoken",
        "refreshtoken",
        "secret",
        "secretaccesskey",
        "secretkey",
        "securitytoken",
        "sessiontoken",
        "setcookie",
        "sharedaccesskey",
        "slacktoken",
        "subscriptionkey",
        "vaulttoken",
        "xsrftoken",
    }
)
#: Sensitive besides those in query strings and forms, where the whole name is one of these.
QUERY_NAMES: Final = frozenset(
    {
        "awsaccesskeyid",
        "sig",
        "signature",
        "token",
        "xamzcredential",
        "xamzsignature",
        "xgoogcredential",
        "xgoogsignature",
    }
)

_MAX_NAME = 128
_MAX_WORDS = 4
_REMEMBERED = 20_000
_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[A-Za-z0-9]+")
#: Every name of the list holds one of these; most others hold none, and are done with.
_ROOT = re.compile(r"authorization|key|token|secret|passw|passphrase|cookie")


def words(name: str) -> list[str]:
    """The words of a name in lower case: `clientSecret`, `CLIENT-SECRET` → client, secret. Final digits are dropped."""
    found = [word.lower() for word in _WORD.findall(_BORDER.sub(" ", name))]
    while found and not (last := found[-1].rstrip("0123456789")):
        found.pop()
    if found:
        found[-1] = last
    return found


def fold(name: str) -> str:
    """The words of a name, joined: how names are compared."""
    return "".join(words(name))


class NameRules:
    """The names of a policy. ``extra`` are sensitive besides the list; ``keep`` are not, as whole names."""

    def __init__(self, extra: Iterable[str] = (), keep: Iterable[str] = ()) -> None:
        self._names = NAMES | {fold(name) for name in extra}
        self._own = bool(self._names - NAMES)
        self._keep = frozenset(map(fold, keep))
        self._known: dict[str, bool] = {}

    def sensitive(self, name: str) -> bool:
        """Whether the value of a field of this name is a secret."""
        verdict = self._known.get(name)
        if verdict is None:
            verdict = self._judge(name)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[name] = verdict
        return verdict

    def _judge(self, name: str) -> bool:
        if not 3 <= len(name) <= _MAX_NAME or not (self._own or _ROOT.search(name.lower())):
            return False
        parts = words(name)
        if not parts or "".join(parts) in self._keep:
            return False
        return any("".join(parts[-count:]) in self._names for count in range(1, min(len(parts), _MAX_WORDS) + 1))

    def sensitive_in_query(self, name: str) -> bool:
        """Whether a parameter of a query string or a form is a secret."""
        return self.sensitive(name) or (
            len(name) <= _MAX_NAME and (folded := fold(name)) in QUERY_NAMES and folded not in self._keep
        )

    @property
    def own_names(self) -> frozenset[str]:
        """The names that are not of the list, folded."""
        return self._names - NAMES
