"""The vectors of redaction, read with the library."""

from __future__ import annotations

from typing import Any

import pytest

from replaypack import values
from replaypack.canonical import key_digest
from replaypack.policies._names import NameRules, words
from replaypack.policies.redaction import RedactionPolicy, Redactor

from .test_vectors_values import cases


@pytest.mark.parametrize("case", cases("valid", "redaction"))
def test_redaction(case: dict[str, Any]) -> None:
    if "field" in case:
        rules = NameRules()
        assert words(case["field"]) == case["words"]
        assert rules.sensitive(case["field"]) is case["sensitive"]
        assert rules.sensitive_in_query(case["field"]) is case["in_query"]
        return
    policy = RedactionPolicy.from_data(case["policy"])
    assert policy is not None
    assert policy.to_data() == case["policy"]
    redactor = Redactor(policy)
    if "sensitive" in case:
        assert all(map(redactor.names, case["sensitive"]))
        assert not any(map(redactor.names, case["harmless"]))
        return
    redacted = redactor.redact(values.decode(bytes.fromhex(case["identity_msgpack"])))
    assert values.encode(redacted).hex() == case["redacted_msgpack"]
    assert key_digest(case["kind"], redacted).hex() == case["key"]
