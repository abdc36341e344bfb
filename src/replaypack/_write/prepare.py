"""What of a record can be computed without the recorder's lock: its key, its blobs and their digests."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

import msgspec

from replaypack import values
from replaypack._arguments import check_type, names_of
from replaypack._plain import Census, survey
from replaypack.canonical import opaque_key
from replaypack.errors import UsageError, ValueEncodingError
from replaypack.format.digests import digest
from replaypack.format.row import ABSENT_DIGEST, FLAGS, INLINE_LIMIT, STATUSES, BlobRef
from replaypack.policies.matching import NONE, MatchPolicy
from replaypack.values import ABSENT, ENCODING_NONE, payload_pieces

from .histories import Histories

__all__ = ["Prepared", "PreparedCall", "check_label", "describe_error", "prepare", "prepare_call"]

#: Bytes that a kind, a name or a scope may have.
_MAX_LABEL = 4096
#: Responses from this size on are listed by digest. Requests are found by reading rows: listing them would cost
#: more than any other table.
_LISTED = 4096
_MAX_BLOB = 1 << 31
_NOTHING: Mapping[int, list[bytes]] = {}


class PreparedCall(msgspec.Struct, gc=False):
    """The half of a record that is known before the call: its key, and what was sent, as bytes."""

    kind: str
    name: str | None
    key: bytes
    scheme: str
    request: BlobRef | None
    identity: BlobRef | None
    recipes: list[list[bytes]]
    size: int
    #: What redaction did (flags of the record), and how many secrets had been learned by then.
    flags: int = 0
    learned: int = 0


class Prepared(msgspec.Struct, gc=False):
    """A record before it has a place: everything that can be computed without the recorder's lock."""

    kind: str
    name: str | None
    key: bytes
    scheme: str
    status: int
    flags: int
    attributes: dict[str, Any] | None
    request: BlobRef | None
    identity: BlobRef | None
    response: BlobRef
    recipes: list[list[bytes]]
    inline: bytes | None
    listed: list[tuple[bytes, int]]


_ABSENT_RESPONSE = BlobRef(ABSENT_DIGEST, 0, ENCODING_NONE)


def prepare_call(
    kind: str,
    identity: object,
    key: str | bytes | None,
    name: str | None,
    request: object,
    histories: Histories,
    match: MatchPolicy = NONE,
) -> PreparedCall:
    """Key and encode a call as it is now: what is done to its arguments afterwards changes neither.

    ``identity`` may be the census of one.
    """
    if not isinstance(kind, str) or not kind:
        raise UsageError("a record needs a kind, which is text")
    if kind.endswith("bytes") and not kind[:-5].strip("$") and kind != "bytes":
        # Kinds are names in the manifest's counts, and canonical JSON escapes this one.
        raise UsageError(f"{kind!r} cannot be a kind")
    check_label("kind", kind)
    if name is not None:
        check_label("name", name)
    if (identity is ABSENT) == (key is None):
        raise UsageError("give either the identity of the call or a key of your own", hint="identity=… or key=…")
    recipes: list[list[bytes]] = []
    request_ref = identity_ref = None
    if key is not None:
        key_bytes, scheme = opaque_key(key), "opaque"
        if request is not ABSENT:
            request_ref, pieces = _blob(request, "/request")
            recipes.append(pieces)
    else:
        scheme = "identity"
        census = identity if type(identity) is Census else survey(identity)
        identity = census.value
        history = None if match.rules else histories.key(kind, census)
        if history is not None:
            key_bytes, items, parts = history
            identity_ref, pieces = _blob(identity, "/identity", census, {id(items): parts})
        else:
            key_bytes = match.key(kind, identity, census=census)
            identity_ref, pieces = _blob(identity, "/identity", census)
        if request is ABSENT:
            request_ref, identity_ref = identity_ref, None
            recipes.append(pieces)
        else:
            request_ref, request_pieces = _blob(request, "/request")
            recipes.append(request_pieces)
            if request_ref == identity_ref:
                identity_ref = None
            else:
                recipes.append(pieces)
    size = request_ref.size if request_ref is not None else 0
    if identity_ref is not None:
        size += identity_ref.size
    return PreparedCall(kind, name, key_bytes, scheme, request_ref, identity_ref, recipes, size)


def prepare(
    call: PreparedCall,
    response: object,
    error: BaseException | Mapping[str, Any] | None,
    scope: str | None,
    status: str | None,
    flags: Iterable[str],
    attributes: Mapping[str, Any] | None,
) -> Prepared:
    """The whole record, now that the call is over. ``response`` may be the census of one."""
    if scope is not None:
        check_label("scope", scope)
    listed: list[tuple[bytes, int]] = []
    recipes = call.recipes
    code: int | None = None
    if status is not None:
        if status not in STATUSES:
            raise UsageError(f"status {status!r} is not one of {', '.join(STATUSES)}")
        code = STATUSES.index(status)
    if error is not None:
        if response is not ABSENT:
            raise UsageError("a call has either a response or an error")
        check_type("error", error, (BaseException, Mapping), "an exception or a mapping")
        response = describe_error(error) if isinstance(error, BaseException) else dict(error)
        code = 1 if code is None else code
        if not code:
            raise UsageError("a call with an error does not have the status 'ok'")
    inline: bytes | None = None
    response_ref = _ABSENT_RESPONSE
    if response is ABSENT:
        inline = b""
    else:
        census = response if type(response) is Census else None
        response_ref, pieces = _blob(response if census is None else census.value, "/response", census)
        if response_ref.size < INLINE_LIMIT:
            inline = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        else:
            recipes = [*recipes, pieces]
    total = response_ref.size
    if total >= _LISTED:
        listed.append((response_ref.digest, 2))
    total += call.size
    if total >= _MAX_BLOB:
        raise ValueEncodingError(f"{total} bytes are more than one record may have (2 GiB)", path="")
    bits = 0
    for flag in (names_of("flags", flags) or ()) if flags != () else ():
        if flag not in FLAGS:
            raise UsageError(f"flag {flag!r} is not one of {', '.join(FLAGS)}")
        bits |= FLAGS[flag]
    plain: dict[str, Any] | None = None
    if attributes is not None:
        check_type("attributes", attributes, Mapping, "a mapping")
        plain = _attributes(attributes)
    return Prepared(
        call.kind,
        call.name,
        call.key,
        call.scheme,
        code or 0,
        bits,
        plain,
        call.request,
        call.identity,
        response_ref,
        recipes,
        inline,
        listed,
    )


def _blob(
    value: object, where: str, census: Census | None = None, encoded: Mapping[int, list[bytes]] = _NOTHING
) -> tuple[BlobRef, list[bytes]]:
    try:
        encoding, pieces = payload_pieces(value, census=census, encoded=encoded)
    except ValueEncodingError as error:
        raise ValueEncodingError(
            str(error.args[0]).split(": ", 1)[-1], path=where + ("" if error.path == "/" else error.path)
        ) from None
    if len(pieces) == 1:
        whole = pieces[0]
        size = len(whole)
    else:
        size = sum(map(len, pieces))
    if size >= _MAX_BLOB:
        raise ValueEncodingError(f"{size} bytes are more than a payload may have (2 GiB)", path=where)
    if len(pieces) != 1:
        whole = b"".join(pieces)
    return BlobRef(digest(whole), size, encoding), pieces


def check_label(label: str, text: str | None) -> None:
    """Raises `UsageError` for what is no text, `ValueEncodingError` for text that no label may be; None is none."""
    if text is None or (type(text) is str and len(text) <= _MAX_LABEL and text.isascii()):
        return
    if not isinstance(text, str):
        raise UsageError(f"{label} is {type(text).__name__}, not text")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueEncodingError("lone surrogates are not allowed here", path=f"/{label}") from None
    if size > _MAX_LABEL:
        raise ValueEncodingError(f"{size} bytes are more than the {_MAX_LABEL} allowed here", path=f"/{label}")


def _attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    plain = values.decode(values.encode(dict(attributes)))
    try:
        encoded = msgspec.msgpack.encode(plain)
    except (UnicodeEncodeError, OverflowError):
        raise ValueEncodingError("attributes hold plain MessagePack only", path="/attributes") from None
    if not all(isinstance(name, str) for name in plain):
        raise ValueEncodingError("names of attributes are text", path="/attributes")
    if len(encoded) > 65536:
        raise ValueEncodingError("attributes take more than 64 KiB", path="/attributes", hint="use the request")
    return plain  # type: ignore[no-any-return]


def describe_error(error: BaseException, *, trace: TracebackType | None = None) -> dict[str, Any]:
    """Return an exception as plain data: type, module, message, and its arguments where they are plain."""
    try:
        message = str(error)
    except Exception as problem:  # user code
        message = f"<its message raised {type(problem).__name__}>"
    described: dict[str, Any] = {
        "type": type(error).__qualname__,
        "module": type(error).__module__,
        "message": message,
    }
    try:
        described["args"] = values.decode(values.encode(list(error.args)))
    except Exception:
        pass  # they are not plain, or what gives them is code of the exception's own
    if trace is not None:
        frames = traceback.extract_tb(trace)
        if frames:
            described["raised_in"] = frames[-1].name
    return described
