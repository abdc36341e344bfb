"""Signing what a content digest names, with Ed25519, and checking such signatures. Needs ``replaypack[sign]``.

A signature is an object beside the manifests, named by the content digest and the key. It does not depend on where
the bytes of the recording lie: compacting, copying and zipping keep it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from replaypack.errors import (
    AccessDeniedError,
    FormatError,
    ObjectExistsError,
    ObjectMissingError,
    StorageUnsupportedError,
    UsageError,
)
from replaypack.format.dsse import (
    MAX_ENVELOPE,
    PAYLOAD_TYPE,
    Envelope,
    Signature,
    Statement,
    content_bytes,
    encode_envelope,
    encode_statement,
    key_id,
    pae,
    parse_envelope,
    parse_statement,
    statement_of,
)
from replaypack.format.names import signature_key, signature_parts

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    from replaypack.recording import Recording
    from replaypack.storage import Storage

__all__ = [
    "SignatureObject",
    "SignatureState",
    "Signed",
    "check_signature",
    "detached_signature",
    "load_private_key",
    "load_public_key",
    "new_key",
    "sign",
    "signatures",
]

#: Objects of one recording that are looked into for a signature, at most.
MAX_OBJECTS = 1000

State = Literal["valid", "unsigned", "wrong key", "altered", "unreadable"]
#: Which of two answers tells more, where several objects give different ones.
_TELLING: tuple[State, ...] = ("unsigned", "wrong key", "unreadable", "altered", "valid")


class SignatureState(NamedTuple):
    """What is known of a signature by one key.

    ``state``: ``valid`` (this key signed this content), ``unsigned`` (no signature is there), ``wrong key`` (what is
    there was signed by others), ``altered`` (signed by this key, and then the content or the signature was changed),
    ``unreadable`` (what is there is no signature of a recording). ``where`` names the object, ``detail`` says more.
    """

    state: State
    where: str
    detail: str

    @property
    def valid(self) -> bool:
        """Whether the content is what the owner of the key signed."""
        return self.state == "valid"


class Signed(NamedTuple):
    """What `sign` did: the ``object`` with the signature, the key's id (64 hex digits), whether it was there before."""

    object: str
    key_id: str
    content_digest: str
    existed: bool


class SignatureObject(NamedTuple):
    """A signature that is there, not checked: of which content, by a key of which id (16 hex digits) by its name."""

    object: str
    content_digest: str
    key_id: str


# Keys


def _cryptography() -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise UsageError("signatures need cryptography", hint="pip install 'replaypack[sign]'") from None
    return serialization


def load_private_key(data: bytes, password: bytes | None = None) -> Ed25519PrivateKey:
    """Read an Ed25519 private key: PEM (PKCS #8) or OpenSSH's own format.

    Raises `UsageError`: another kind of key, no key, a password that is missing, wrong, or not needed.
    """
    serialization = _cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    ssh = data.lstrip().startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    load = serialization.load_ssh_private_key if ssh else serialization.load_pem_private_key
    try:
        key = load(data, password=password)
    except TypeError:
        if password is None:
            raise UsageError("the private key is encrypted: its password is needed") from None
        raise UsageError("the private key is not encrypted, and a password was given") from None
    except (ValueError, UnsupportedAlgorithm):
        message = "it is no private key in PEM or OpenSSH format"
        raise UsageError(message + (", or the password is wrong" if password else "")) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError("the private key is not of Ed25519", hint="openssl genpkey -algorithm ed25519 makes one")
    return key


def load_public_key(data: bytes) -> Ed25519PublicKey:
    """Read an Ed25519 public key: PEM, or a line of OpenSSH (``ssh-ed25519 …``). Raises `UsageError`."""
    serialization = _cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if b"PRIVATE KEY-----" in data:
        raise UsageError("that is a private key; a signature is checked with the public one")
    load = serialization.load_pem_public_key if b"-----BEGIN" in data else serialization.load_ssh_public_key
    try:
        key = load(data)
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError("it is no public key in PEM or OpenSSH format") from None
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError("the public key is not of Ed25519")
    return key


def new_key(password: bytes | None = None) -> tuple[bytes, bytes]:
    """Make a key pair; return the private key (PKCS #8, encrypted where there is a password) and the public, as PEM."""
    serialization = _cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    return (
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, encryption),
        key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo),
    )


# Signing


def detached_signature(recording: Recording, key: Ed25519PrivateKey) -> bytes:
    """The signature of a finished recording's content, put nowhere: the envelope that `check_signature` takes.

    The same key gives the same bytes again. Nothing is verified: what is signed is what the manifest says
    (`verify_recording` first). Raises `UsageError` where the recording is still open.
    """
    content = recording.manifest.content
    if content.state == "open":
        raise UsageError(f"{recording.locator} is still being recorded", hint="sign it when it is sealed")
    payload = encode_statement(statement_of(content_bytes(recording.manifest)), content.id)
    own = key_id(key.public_key().public_bytes_raw())
    return encode_envelope(payload, [Signature(own, key.sign(pae(PAYLOAD_TYPE, payload)))])


def sign(recording: Recording, key: Ed25519PrivateKey) -> Signed:
    """Sign the content of a finished recording, as `detached_signature` does, and put that beside its manifests.

    Several keys may sign; each has an object of its own. Raises `UsageError` (the recording is still open),
    `StorageError`.
    """
    recording.storage.require_writable("sign")
    envelope = detached_signature(recording, key)
    public = key.public_key()
    whole_id = key_id(public.public_bytes_raw())
    where = signature_key(recording.name, recording.content_digest, whole_id)
    existed = _state(_read(recording.storage, where), public, recording, where).valid
    if not existed:
        try:
            recording.storage.put_new(where, envelope)
        except ObjectExistsError:
            # What is there under the name of this key is no signature by it: nothing is lost.
            recording.storage.put(where, envelope)
    return Signed(where, whole_id, recording.content_digest, existed)


# Checking


def signatures(recording: Recording) -> Iterator[SignatureObject]:
    """Yield the signatures beside a recording, of this content and of others, not checked. Needs a listing."""
    for info in recording.storage.list(f"recordings/{recording.name}/"):
        parts = signature_parts(recording.name, info.key)
        if parts is not None:
            yield SignatureObject(info.key, *parts)


def check_signature(
    recording: Recording, public_key: Ed25519PublicKey, *, envelope: bytes | None = None
) -> SignatureState:
    """Say whether the owner of ``public_key`` signed the content of ``recording``.

    The signature is looked for under the name that it has by its key, then among the others that can be listed; or it
    is the ``envelope`` given. The manifest's content is compared, not the records: `verify_recording` (``full``) says
    whether they are those that the content stands for.

    Raises `StorageError`.
    """
    if envelope is not None:
        return _state(envelope, public_key, recording, "the envelope")
    own = signature_key(recording.name, recording.content_digest, key_id(public_key.public_bytes_raw()))
    best = _state(_read(recording.storage, own), public_key, recording, own)
    if best.valid:
        return best
    listed: list[SignatureObject] = []
    note = ""
    try:
        for item in signatures(recording):
            if item.object != own:
                listed.append(item)
            if len(listed) > MAX_OBJECTS:
                break
    except (StorageUnsupportedError, AccessDeniedError):
        note = "; other objects cannot be listed here"
    for item in sorted(listed, key=lambda item: item.content_digest != recording.content_digest):
        found = _state(_read(recording.storage, item.object), public_key, recording, item.object)
        if item.content_digest != recording.content_digest and found.state != "altered":
            continue  # another content's signature by another key says nothing of this one
        if _TELLING.index(found.state) > _TELLING.index(best.state):
            best = found
        if best.valid:
            break
    return best._replace(detail=best.detail + note)


def _read(storage: Storage, where: str) -> bytes | None:
    """The object, one byte more than the limit of it at most; None where there is none."""
    with contextlib.suppress(ObjectMissingError):
        return storage.get_suffix(where, MAX_ENVELOPE + 1)
    return None


def _state(data: bytes | None, key: Ed25519PublicKey, recording: Recording, where: str) -> SignatureState:
    if data is None:
        return SignatureState("unsigned", where, "there is no such object (missing or not permitted)")
    try:
        envelope = parse_envelope(data, where=where)
        statement = parse_statement(envelope, where=where)
    except FormatError as error:
        return SignatureState("unreadable", where, error.detail)
    if not _signed_by(envelope, key):
        own = key_id(key.public_bytes_raw())
        if any(len(item.key_id) >= 16 and own.startswith(item.key_id) for item in envelope.signatures):
            return SignatureState("altered", where, "it names this key, whose signature it does not hold")
        return SignatureState("wrong key", where, "none of its signatures is by this key")
    wanted: Statement = statement_of(content_bytes(recording.manifest))
    if statement != wanted:
        detail = f"signed was the content digest {statement.content_digest}, this is {wanted.content_digest}"
        if statement.content_digest == recording.manifest.content.extends:
            detail += ", an append to it"
        return SignatureState("altered", where, detail)
    return SignatureState("valid", where, f"content digest {wanted.content_digest}")


def _signed_by(envelope: Envelope, key: Ed25519PublicKey) -> bool:
    from cryptography.exceptions import InvalidSignature

    signed = pae(envelope.payload_type, envelope.payload)
    for signature in envelope.signatures:
        with contextlib.suppress(InvalidSignature):
            key.verify(signature.value, signed)
            return True
    return False
