"""Signatures: what keeps them, what breaks them, and who else reads them."""

from __future__ import annotations

import base64
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

import replaypack
from replaypack import audit
from replaypack.errors import AccessDeniedError, StorageUnavailableError, StorageUnsupportedError, UsageError
from replaypack.format.dsse import MAX_ENVELOPE, key_id, pae, parse_envelope
from replaypack.format.names import signature_key, signature_parts
from replaypack.storage import MemoryStorage
from tests.test_vectors_values import cases

from .support import NAME, faults, revise

pytest.importorskip("cryptography", reason="signing needs replaypack[sign]")

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa, utils
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key()
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(32, 64)))
PEM, PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8


def opened(path: Path, revision: int | None = None) -> replaypack.Recording:
    return replaypack.Archive(path).open(NAME, revision)


def state(path: Path, key: Ed25519PublicKey = PUBLIC) -> str:
    return audit.check_signature(opened(path), key).state


@pytest.fixture
def signed(archive_path: Path) -> Path:
    done = audit.sign(opened(archive_path), KEY)
    assert not done.existed
    assert (archive_path / done.object).is_file()
    return archive_path


# The vectors


@pytest.mark.parametrize("case", cases("valid", "signatures"))
def test_vectors(case: dict[str, Any], tmp_path: Path) -> None:
    recording = _recording_of(case["content"], tmp_path)
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(case["public_key"]))
    assert audit.check_signature(recording, public, envelope=case["envelope"].encode()).state == case["state"]
    if "seed" in case:
        key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(case["seed"]))
        done = audit.sign(recording, key)
        assert recording.storage.get(done.object) == case["envelope"].encode()


@pytest.mark.parametrize("case", cases("invalid", "signatures"))
def test_unreadable_vectors(case: dict[str, Any], tmp_path: Path) -> None:
    recording = _recording_of(case["content"], tmp_path)
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(case["public_key"]))
    found = audit.check_signature(recording, public, envelope=case["envelope"].encode())
    assert found.state == "unreadable"
    assert not found.valid


def _recording_of(content: str, tmp_path: Path) -> replaypack.Recording:
    """A recording with this content section; its records are not there."""
    import msgspec

    from replaypack.format.manifest import Manifest, content_digest_of
    from replaypack.format.manifest_members import Content

    with replaypack.Archive(tmp_path).recorder("r"):
        pass
    recording = replaypack.Archive(tmp_path).open("r")
    made = msgspec.convert(json.loads(content), Content)
    manifest = recording.manifest
    recording._manifest = Manifest(made, manifest.storage, manifest.raw, manifest.digest, content_digest_of(made))
    return recording


def test_the_vector_of_the_dsse_specification() -> None:
    """The envelope in its `protocol.md`: ECDSA over P-256 with SHA-256, the signature being r and s."""
    data = (
        b'{"payload": "aGVsbG8gd29ybGQ=", "payloadType": "http://example.com/HelloWorld", "signatures": [{"sig": '
        b'"A3JqsQGtVsJ2O2xqrI5IcnXip5GToJ3F+FnZ+O88SjtR6rDAajabZKciJTfUiHqJPcIAriEGAHTVeCUjW2JIZA=="}]}'
    )
    envelope = parse_envelope(data)
    signed_bytes = pae(envelope.payload_type, envelope.payload)
    assert signed_bytes == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    x = 46950820868899156662930047687818585632848591499744589407958293238635476079160
    y = 5640078356564379163099075877009565129882514886557779369047442380624545832820
    public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    raw = envelope.signatures[0].value
    signature = utils.encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    public.verify(signature, signed_bytes, ec.ECDSA(hashes.SHA256()))


def test_another_implementation_reads_and_verifies_ours(signed: Path) -> None:
    dsse = pytest.importorskip("securesystemslib.dsse", reason="a verifier of others, in the extra [test]")
    from securesystemslib.signer import SSlibKey

    [signature] = audit.signatures(opened(signed))
    document = json.loads((signed / signature.object).read_bytes())
    envelope = dsse.Envelope.from_dict(document)
    raw = PUBLIC.public_bytes_raw()
    key = SSlibKey(key_id(raw), "ed25519", "ed25519", {"public": raw.hex()})
    assert set(envelope.verify([key], 1)) == {key_id(raw)}
    statement = json.loads(envelope.payload)
    assert (envelope.payload_type, statement["_type"]) == (
        "application/vnd.in-toto+json",
        "https://in-toto.io/Statement/v1",
    )
    other = SSlibKey(key_id(raw), "ed25519", "ed25519", {"public": OTHER.public_key().public_bytes_raw().hex()})
    with pytest.raises(dsse.exceptions.VerificationError):
        envelope.verify([other], 1)


# The five answers


def test_signing_and_checking(signed: Path) -> None:
    found = audit.check_signature(opened(signed), PUBLIC)
    assert (found.state, found.valid) == ("valid", True)
    again = audit.sign(opened(signed), KEY)
    assert again.existed
    assert again.object == found.where
    assert faults(signed) == []
    [listed] = audit.signatures(opened(signed))
    assert listed == (again.object, opened(signed).content_digest, again.key_id[:16])
    assert signature_parts(NAME, again.object) == listed[1:]


def test_unsigned_and_wrong_key(archive_path: Path) -> None:
    assert state(archive_path) == "unsigned"
    audit.sign(opened(archive_path), OTHER)
    assert state(archive_path) == "wrong key"
    audit.sign(opened(archive_path), KEY)
    assert state(archive_path) == state(archive_path, OTHER.public_key()) == "valid"
    assert len(list(audit.signatures(opened(archive_path)))) == 2


def test_the_key_id_in_the_name_is_a_hint(signed: Path) -> None:
    [item] = audit.signatures(opened(signed))
    moved = signature_key(NAME, item.content_digest, "0" * 16)
    (signed / item.object).rename(signed / moved)
    assert state(signed) == "valid"
    assert state(signed, OTHER.public_key()) == "wrong key"


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"by": "another"}},
        {"state": "incomplete"},
        {"started": "2025-06-15T15:06:40Z"},
        {"recorded_by": "x"},
        {"extends": "0" * 64},
    ],
)
def test_any_logical_change_is_altered(signed: Path, change: dict[str, Any]) -> None:
    before = opened(signed)
    [item] = audit.signatures(before)
    revise(signed, content=change)
    assert opened(signed).content_digest != before.content_digest
    found = audit.check_signature(opened(signed), PUBLIC)
    assert (found.state, found.where) == ("altered", item.object)
    # Also where it was given the name that belongs to the new content.
    new_name = signature_key(NAME, opened(signed).content_digest, item.key_id)
    (signed / item.object).rename(signed / new_name)
    assert state(signed) == "altered"
    assert "signature.misplaced" in {fault.code for fault in faults(signed, "manifest")}


def test_an_append_is_told(signed: Path) -> None:
    with replaypack.Archive(signed).recorder(NAME, if_exists="append") as recorder:
        recorder.append(kind="tool", identity="more", response=1)
    found = audit.check_signature(opened(signed), PUBLIC)
    assert found.state == "altered"
    assert "an append to it" in found.detail
    assert audit.check_signature(opened(signed, 2), PUBLIC).valid
    audit.sign(opened(signed), KEY)
    assert audit.check_signature(opened(signed), PUBLIC).valid


def test_physical_changes_keep_the_signature(signed: Path, tmp_path: Path) -> None:
    revise(signed, storage={"created": "2030-01-01T00:00:00Z", "cause": "compact"})
    assert state(signed) == "valid"
    copied = Path(shutil.copytree(signed, tmp_path / "copy"))
    assert state(copied) == "valid"
    zipped = tmp_path / "run.zip"
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_STORED) as file:
        for item in sorted(copied.rglob("*")):
            if item.is_file() and "journal" not in item.parts:
                file.write(item, item.relative_to(copied).as_posix())
    assert state(zipped) == "valid"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda data: data[:-1], "unreadable"),
        (lambda data: b"", "unreadable"),
        (lambda data: data + b" " * MAX_ENVELOPE, "unreadable"),
        (lambda data: data.replace(b"in-toto+json", b"in-toto+yaml"), "unreadable"),
        (lambda data: _with_signature(data, bytes(64)), "altered"),
        (lambda data: _with_signature(data, b""), "altered"),
    ],
)
def test_damaged_envelopes(signed: Path, change: Any, expected: str) -> None:
    [item] = audit.signatures(opened(signed))
    file = signed / item.object
    file.write_bytes(change(file.read_bytes()))
    assert state(signed) == expected
    codes = {fault.code for fault in faults(signed, "manifest")}
    assert codes == ({"signature.unreadable"} if expected == "unreadable" else set())
    # Whoever has the key puts it right.
    assert not audit.sign(opened(signed), KEY).existed
    assert state(signed) == "valid"


def _with_signature(data: bytes, value: bytes) -> bytes:
    document = json.loads(data)
    document["signatures"][0]["sig"] = base64.b64encode(value).decode()
    return json.dumps(document).encode()


def test_junk_beside_a_valid_signature_does_not_hide_it(signed: Path) -> None:
    digest = opened(signed).content_digest
    for number in range(20):
        (signed / signature_key(NAME, digest, f"{number:016x}")).write_bytes(b"{")
    assert state(signed) == "valid"
    assert state(signed, OTHER.public_key()) == "unreadable"


def test_an_open_recording_is_not_signed(tmp_path: Path) -> None:
    archive = replaypack.Archive(tmp_path)
    with archive.recorder("r") as recorder:
        recorder.append(kind="tool", identity=1)
        recorder.flush()
        with pytest.raises(UsageError, match="still being recorded"):
            audit.sign(archive.open("r"), KEY)


class _NoListing(MemoryStorage):
    error: type[Exception] = StorageUnsupportedError

    def list(self, prefix: str = "") -> Any:
        raise self.error("no listing here")


@pytest.mark.parametrize("error", [StorageUnsupportedError, AccessDeniedError])
def test_without_a_listing_the_name_is_known_by_the_key(error: type[Exception]) -> None:
    store = _NoListing()
    store.error = error
    archive = replaypack.Archive("memory://x", storage=store)
    with archive.recorder("r", flush_interval=None) as recorder:
        recorder.append(kind="tool", identity=1)
    assert "cannot be listed" in audit.check_signature(archive.open("r"), PUBLIC).detail
    audit.sign(archive.open("r"), KEY)
    assert audit.check_signature(archive.open("r"), PUBLIC).valid
    assert audit.check_signature(archive.open("r"), OTHER.public_key()).state == "unsigned"


def test_a_store_that_cannot_be_asked_does_not_say_unsigned() -> None:
    store = _NoListing()
    store.error = StorageUnavailableError
    archive = replaypack.Archive("memory://x", storage=store)
    with archive.recorder("r", flush_interval=None) as recorder:
        recorder.append(kind="tool", identity=1)
    with pytest.raises(StorageUnavailableError):
        audit.check_signature(archive.open("r"), PUBLIC)


def test_a_recording_that_is_deleted_takes_its_signatures_along(signed: Path) -> None:
    replaypack.Archive(signed).delete(NAME)
    assert not [path for path in (signed / "recordings").rglob("*") if path.is_file()]


# Keys


def test_keys_in_every_form() -> None:
    none = serialization.NoEncryption()
    openssh = KEY.private_bytes(PEM, serialization.PrivateFormat.OpenSSH, none)
    for data in (KEY.private_bytes(PEM, PKCS8, none), openssh):
        assert audit.load_private_key(data).private_bytes_raw() == KEY.private_bytes_raw()
    for encoding, form in (
        (PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
        (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH),
    ):
        loaded = audit.load_public_key(PUBLIC.public_bytes(encoding, form))
        assert loaded.public_bytes_raw() == PUBLIC.public_bytes_raw()


def test_keys_with_a_password() -> None:
    private, public = audit.new_key(b"secret")
    key = audit.load_private_key(private, b"secret")
    assert key.public_key().public_bytes_raw() == audit.load_public_key(public).public_bytes_raw()
    for password, message in ((None, "encrypted"), (b"other", "wrong")):
        with pytest.raises(UsageError, match=message):
            audit.load_private_key(private, password)
    with pytest.raises(UsageError, match="not encrypted"):
        audit.load_private_key(audit.new_key()[0], b"secret")


def test_other_keys_are_refused() -> None:
    other = rsa.generate_private_key(65537, 2048)
    none = serialization.NoEncryption()
    private = other.private_bytes(PEM, PKCS8, none)
    public = other.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(UsageError, match="Ed25519"):
        audit.load_private_key(private)
    with pytest.raises(UsageError, match="Ed25519"):
        audit.load_public_key(public)
    with pytest.raises(UsageError, match="private key"):
        audit.load_public_key(KEY.private_bytes(PEM, PKCS8, none))
    for data in (b"", b"no key", public[:60], b"\xff" * 100):
        with pytest.raises(UsageError):
            audit.load_private_key(data)
        with pytest.raises(UsageError):
            audit.load_public_key(data)
