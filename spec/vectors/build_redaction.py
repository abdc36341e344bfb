"""Vectors of redaction (section 11.4): names, policies in manifests, keys of redacted identities."""

from __future__ import annotations

from typing import Any

from replaypack import values
from replaypack.canonical import key_digest
from replaypack.policies._names import NameRules, words
from replaypack.policies.redaction import DEFAULT, RedactionPolicy, Redactor

Vector = dict[str, Any]

OWN = RedactionPolicy(name="x-acme", names=("employee_id", "ssn"), keep=("session_token",), prefixes=("acme-",))
_FIELDS = """Authorization proxy-authorization X-API-Key x_api_key apikey APIKey OPENAI_API_KEY openAIApiKey
accessToken refresh_token id_token client-secret password Password2 password_2 db.password secret secretary secrets
private_key private_key_id session_token Set-Cookie cookies aws_secret_access_key aws_access_key_id x-goog-api-key
X-Amz-Security-Token X-Amz-Signature sig signature token page_token next_page_token max_tokens total_tokens token_count
auth_method valid_token keyboard
APIKEYS my-very-long-name-of-a-secret-access-key 2fa 123 _ HTTPSecret pässword""".split()


def names() -> Vector:
    """Which names are sensitive."""
    rules = NameRules()
    cases = [
        {
            "name": field,
            "field": field,
            "words": words(field),
            "sensitive": rules.sensitive(field),
            "in_query": rules.sensitive_in_query(field),
        }
        for field in _FIELDS
    ]
    return {"about": "Names of fields, their words, and whether their values are removed.", "cases": cases}


def policies() -> Vector:
    """Policies as manifests name them, and what they find sensitive."""
    fields = ["password", "session_token", "employee_id", "EmployeeID", "boss-ssn", "page_token"]
    cases = []
    for policy in (DEFAULT, OWN):
        rules = NameRules(policy.names, policy.keep)
        cases.append(
            {
                "name": policy.name,
                "policy": policy.to_data(),
                "sensitive": [field for field in fields if rules.sensitive(field)],
                "harmless": [field for field in fields if not rules.sensitive(field)],
            }
        )
    return {"about": "Redaction policies in manifests.", "cases": cases}


_IDENTITIES: dict[str, Any] = {
    "nothing secret": {"url": "/x?page=2", "max_tokens": 5, "page_token": "abc"},
    "a header": {"method": "GET", "headers": {"Authorization": "Bearer one", "Accept": "*/*"}},
    "the same with another secret": {"method": "GET", "headers": {"Authorization": "Bearer two", "Accept": "*/*"}},
    "pairs": {"headers": [["x-api-key", "abc"], ["accept", "*/*"]]},
    "pairs of bytes": {"headers": [[b"cookie", b"a=b"], [b"accept", b"*/*"]]},
    "a list of words": {"required": ["password", "user"]},
    "names and values": {"headers": [{"name": "Authorization", "value": "x"}, {"name": "accept", "value": "y"}]},
    "values of every kind": [{"password": v} for v in ("x", b"x", 5, 1.5, ["a", "b"], [b"a"], {"a": "b"}, {"a": [1]})],
    "no secrets": [{"password": v} for v in (None, True, False, "", b"", [], {}, [None])],
    "a schema": {"properties": {"password": {"type": "string", "description": "the password", "default": "x"}}},
    "deep": {"a": [{"b": {"clientSecret": "x", "c": [[{"db_password": "y", "n": 1}]]}}]},
    "of the policy": {"employee_id": 7, "session_token": "s", "api_key": "k"},
}


def keys() -> Vector:
    """Identities, what redaction makes of them, and their keys."""
    cases = []
    for policy in (DEFAULT, OWN):
        redactor = Redactor(policy)
        for label, identity in _IDENTITIES.items():
            if policy is OWN and label != "of the policy":
                continue
            redacted = redactor.redact(identity)
            cases.append(
                {
                    "name": f"{label}, {policy.name}",
                    "policy": policy.to_data(),
                    "kind": "http",
                    "identity_msgpack": values.encode(identity).hex(),
                    "redacted_msgpack": values.encode(redacted).hex(),
                    "key": key_digest("http", redacted).hex(),
                }
            )
    return {"about": "Identities under a redaction policy, by names alone, and their keys.", "cases": cases}
