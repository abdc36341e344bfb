"""``prove``, ``check-proof``, ``sign``, ``keygen``, ``verify --key``."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from replaypack import Archive
from replaypack.canonical import canonical_json

from .conftest import DANGEROUS, is_safe, run, run_on_terminal, run_process

NAME = "team/mixed"


@pytest.fixture
def url(archive: str, tmp_path: Path) -> str:
    return str(shutil.copytree(archive, tmp_path / "runs"))


# Proofs


def test_prove_and_check(url: str, tmp_path: Path) -> None:
    digest = Archive(url).open(NAME).content_digest
    proof, payload = tmp_path / "proof.json", tmp_path / "response"
    result = run("prove", f"{url}#{NAME}", "2", "-o", str(proof))
    assert (result.code, result.err) == (0, "")
    assert digest in result.out
    piped = run("prove", f"{url}#{NAME}", "2")
    assert piped.out.encode() == proof.read_bytes() + b"\n"
    shutil.rmtree(url)

    checked = run("check-proof", str(proof), "--digest", digest)
    assert checked.code == 0
    assert checked.out.startswith("proven: record 2 of 7 records\n")
    assert "(not looked at)" in checked.out
    payload.write_bytes(b"\x00\x01\xff" * 2000)
    checked = run("check-proof", str(proof), "--digest", digest, "--response", str(payload), "--json")
    assert checked.code == 0
    assert (checked.json["seq"], checked.json["checked_payloads"]) == (2, ["response"])
    row = tmp_path / "row"
    row.write_bytes(b"\xdc")
    payload.write_bytes(b"\x00")
    for more in (["--response", str(payload)], ["--identity", str(payload)], ["--record", str(row)]):
        refused = run("check-proof", str(proof), "--digest", digest, *more, "--json")
        assert refused.code == 1
        assert refused.json["error"]["code"] == "proof.invalid"
    assert run("check-proof", str(proof), "--digest", "0" * 64).code == 1
    assert run("check-proof", str(proof), "--digest", "0").code == 2
    # Anybody can leave the row out: that is not to look like a purge.
    proof.write_bytes(canonical_json(json.loads(proof.read_bytes()) | {"row": None}))
    checked = run("check-proof", str(proof), "--digest", digest)
    assert checked.code == 0
    assert "nothing else of the record is shown" in checked.out
    assert run("check-proof", str(proof), "--digest", digest, "--json").json["leaf_only"]
    refused = run("check-proof", str(proof), "--digest", digest, "--response", str(payload))
    assert (refused.code, "not known" in refused.err) == (1, True)
    proof.write_bytes(b"{")
    assert run("check-proof", str(proof), "--digest", digest, "--json").json["error"]["code"] == "format.corrupted"
    assert run("check-proof", str(tmp_path / "none"), "--digest", digest).code == 2


def test_a_proof_with_payloads_and_one_of_odd_texts(url: str, tmp_path: Path) -> None:
    digest = Archive(url).open(NAME).content_digest
    proof = tmp_path / "proof.json"
    assert run("prove", f"{url}#{NAME}", "1", "--with-payloads", "-o", str(proof)).code == 0
    for result in (run("check-proof", str(proof), "--digest", digest), run("prove", f"{url}#{NAME}", "1")):
        assert result.code == 0
        assert is_safe(result.out) or result.out.startswith("{")
    checked = run("check-proof", str(proof), "--digest", digest, "--json")
    assert checked.json["checked_payloads"] == ["request", "response"]
    assert not set(DANGEROUS) & set(checked.out)
    again = run("prove", f"{url}#{NAME}", "2", "-o", str(proof))
    assert (again.code, "--overwrite" in again.err) == (2, True)
    assert run("prove", f"{url}#{NAME}", "2", "-o", str(proof), "--overwrite").code == 0
    assert run("prove", f"{url}#{NAME}", "7").code == 1


# Signatures


def test_sign_and_verify(url: str, tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="signing needs replaypack[sign]")
    locator = f"{url}#{NAME}"
    key, other = tmp_path / "key.pem", tmp_path / "other.pem"
    for file in (key, other):
        assert run("keygen", str(file)).code == 0
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 or os.name == "nt"
    assert run("keygen", str(key)).code == 2
    public = f"{key}.pub"

    unsigned = run("verify", locator, "--key", public)
    assert (unsigned.code, "signature unsigned" in unsigned.out) == (1, True)
    copy = tmp_path / "signature.json"
    done = run("sign", locator, "--key", str(key), "--out", str(copy), "--json")
    assert (done.code, done.json["existed"]) == (0, False)
    assert run("sign", locator, "--key", str(key), "--json").json["existed"] is True

    valid = run("verify", locator, "--key", public, "--json")
    assert valid.code == 0
    [found] = valid.json["signatures"]
    assert (found["state"], found["key_id"]) == ("valid", done.json["key_id"])
    wrong = run("verify", locator, "--key", f"{other}.pub", "--level", "manifest")
    assert (wrong.code, "signature wrong key" in wrong.out) == (1, True)
    listed = run("verify", locator)
    assert (listed.code, "not checked" in listed.out) == (0, True)
    everything = run("verify", url, "--key", public, "--json", "--level", "manifest")
    assert everything.code == 1
    assert [item["state"] for item in everything.json["signatures"]] == ["unsigned", "unsigned", "valid"]

    alone = tmp_path / "alone.json"
    assert run("sign", locator, "--key", str(other), "--detached").code == 2
    assert run("sign", locator, "--key", str(other), "--detached", "--out", str(alone)).code == 0
    assert run("verify", locator, "--key", f"{other}.pub").code == 1
    assert run("verify", locator, "--key", f"{other}.pub", "--signature", str(alone)).code == 0
    (Path(url) / done.json["object"]).unlink()
    assert run("verify", locator, "--key", public).code == 1
    detached = run("verify", locator, "--key", public, "--signature", str(copy), "--json")
    assert (detached.code, detached.json["signatures"][0]["state"]) == (0, "valid")
    assert run("verify", locator, "--signature", str(copy)).code == 2
    copy.write_bytes(b"{}")
    unreadable = run("verify", locator, "--key", public, "--signature", str(copy), "--json")
    assert (unreadable.code, unreadable.json["signatures"][0]["state"]) == (1, "unreadable")
    assert run("verify", locator, "--key", str(key)).code == 2


def test_a_key_with_a_password(url: str, tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="signing needs replaypack[sign]")
    locator, key = f"{url}#{NAME}", tmp_path / "key.pem"
    env = {"REPLAYPACK_KEY_PASSWORD": "a password"}
    assert run("keygen", str(key), "--password").code == 2
    assert run("keygen", str(key), "--password", env=env).code == 0
    assert run("sign", locator, "--key", str(key)).code == 2
    assert run("sign", locator, "--key", str(key), env={"REPLAYPACK_KEY_PASSWORD": "another"}).code == 2
    assert run("sign", locator, "--key", str(key), env=env).code == 0
    typed = run_on_terminal("sign", locator, "--key", str(key), typed="a password\n", prompt="key.pem: ")
    assert (typed.code, "a password" in typed.out) == (0, False)
    assert run("verify", locator, "--key", f"{key}.pub").code == 0


def test_a_key_made_by_openssl(url: str, tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="signing needs replaypack[sign]")
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    key, public = str(tmp_path / "key.pem"), str(tmp_path / "public.pem")
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", public], check=True, capture_output=True)
    assert run("sign", f"{url}#{NAME}", "--key", key).code == 0
    assert run("verify", f"{url}#{NAME}", "--key", public).code == 0


def test_without_cryptography_a_sentence_says_what_to_install(url: str, tmp_path: Path) -> None:
    (tmp_path / "cryptography.py").write_text("raise ImportError")
    key = tmp_path / "k"
    key.write_bytes(b"x")
    env = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2] / "src")])}
    result = run_process("verify", url, "--key", str(key), env=env)
    assert (result.code, "replaypack[sign]" in result.err) == (2, True)
    assert run_process("verify", url, "--json", env=env).json["signatures"] == []
