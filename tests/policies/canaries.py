"""Secrets put into calls in every way that is known, and a search for them in whatever was written."""

from __future__ import annotations

import base64
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import zstandard

#: Known at the start. The second has what JSON, URLs and base64 write otherwise.
KNOWN = ("canary-4f1c9a7be2", 'cänary/9+8=7&"x" y\\z', "-canary_0123456789abcdef-")
#: Known to nobody: only names, headers and parameters tell.
NAMED = "unheard-of-canary-77"

_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{12,}")


def known_values(secret: str) -> dict[str, Any]:
    """The secret in every place and form, by what it is for."""
    raw = secret.encode()
    body = json.dumps({"a": 1, "text": f"the {secret} is"}).encode()
    return {
        "value": secret,
        "inside": f"it is {secret}, they say",
        "key": {f"k {secret}": 1, secret: 2},
        "list": [1, [secret, {"deep": (secret,)}]],
        "bytes": raw,
        "binary": b"\xff\xfe\x00" + raw + b"\x80",
        "json": body.decode(),
        "json, nested": json.dumps({"arguments": json.dumps({"q": secret})}),
        "json, not ascii": json.dumps([secret], ensure_ascii=False),
        "url": f"https://example.com/{quote(secret, safe='')}/x?q={quote_plus(secret)}",
        "base64": base64.b64encode(raw).decode(),
        "base64, 1": base64.b64encode(b"a" + raw + b"b").decode(),
        "base64, 2": base64.urlsafe_b64encode(b"ab" + raw + b"cde").decode(),
        "base64, unpadded": base64.b64encode(b"\x00\x80" + raw).decode().rstrip("="),
        "base64 in text": f"see {base64.b64encode(b'xy' + raw + b'z').decode()}, and more",
        "base64, long": base64.b64encode(bytes(range(256)) * 40 + raw + bytes(range(256)) * 40).decode(),
        "data URL": "data:text/plain;base64," + base64.b64encode(b"hello " + raw).decode(),
        "gzip": gzip.compress(body),
        "gzip twice": gzip.compress(gzip.compress(body)),
        "zlib": zlib.compress(body),
        "zstd": zstandard.ZstdCompressor().compress(body),
        "gzip in base64": base64.b64encode(gzip.compress(body)).decode(),
        "base64 in gzip": gzip.compress(base64.b64encode(b"x" + raw)),
        "base64 in json": json.dumps({"data": base64.b64encode(raw + b"??").decode()}).encode(),
        "long text": "lorem ipsum " * 2000 + secret + " dolor" * 2000,
        "repr": repr({"x": secret}),
    }


def named_values(secret: str) -> dict[str, Any]:
    """A secret that nobody knows, where its name or what stands before it gives it away."""
    body = json.dumps({"user": "u", "client_secret": secret, "max_tokens": 5}).encode()
    form = f"grant_type=x&client_secret={secret}&scope=y"
    return {
        "field": {"api_key": secret, "Password": [secret], "nested": [{"refreshToken": {"value": secret}}]},
        "headers": {"Authorization": f"Bearer {secret}", "Set-Cookie": [f"sid={secret}", "b=c"], "X": "y"},
        "pairs": [["x-api-key", secret], ["accept", "*/*"]],
        "raw headers": [(b"cookie", f"a={secret}".encode()), (b"x", b"y")],
        "har": {"headers": [{"name": "Authorization", "value": secret}], "cookies": [{"name": "s", "value": secret}]},
        "query": f"https://example.com/x?page=2&api_key={secret}&sig={secret}#f",
        "presigned": f"https://b.s3.amazonaws.com/k?X-Amz-Credential={secret}%2Fus&X-Amz-Signature={secret}",
        "userinfo": f"postgres://user:{secret}@host/db",
        "command": f"curl -H 'Authorization: Bearer {secret}' -H 'x-api-key: {secret}' https://example.com",
        "http": f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {secret}\r\nCookie: a={secret}\r\n\r\n",
        "form": form,
        "form, bytes": form.encode(),
        "json": body.decode(),
        "json, bytes": body,
        "json, gzip": gzip.compress(body),
        "json, base64": base64.b64encode(body).decode(),
        "json, gzip, base64": base64.b64encode(gzip.compress(body)).decode(),
        "json in json": json.dumps({"arguments": body.decode()}),
        "events": f'data: {{"access_token": "{secret}"}}\n\ndata: {{"x": 1}}\n',
        "json, cut off": '{"a": [1, {"password": "' + secret,
        "json with image": json.dumps({"image": base64.b64encode(bytes(9000)).decode(), "secret": secret}),
        "multipart": f'--b\r\nContent-Disposition: form-data; name="password"\r\n\r\n{secret}\r\n--b--'.encode(),
        "python": repr([("authorization", f"Bearer {secret}"), ("a", "b")]),
        "connection": f"Server=x;Database=y;Password={secret};Encrypt=yes",
    }


def calls() -> Iterator[dict[str, Any]]:
    """Arguments for `Recorder.append`."""
    for label, values in (
        *((str(number), known_values(secret)) for number, secret in enumerate(KNOWN)),
        ("named", named_values(NAMED)),
    ):
        for form, value in values.items():
            note = {"form": f"{label}: {form}"}
            yield {"kind": "http", "identity": {**note, "sent": value}, "response": value}
            yield {"kind": "http", "identity": {**note, "n": 2}, "request": value, "response": [value]}
            yield {"kind": "tool", "key": f"{label} {form}", "response": {"result": value}, "attributes": {"v": value}}
            yield {"kind": "tool", "identity": note, "error": ValueError(f"refused: {value}", value)}
            yield {"kind": "tool", "identity": note, "error": {"type": "E", "message": str(value), "extra": value}}
    for secret in KNOWN:
        common = {"identity": secret, "name": f"tool {secret}", "scope": f"scope-{secret}", "response": None}
        yield {**common, "kind": f"x-{secret}"}
        yield {"kind": "tool", "key": f"key {secret}", "request": secret, "response": secret}


def leaks(directory: Path) -> list[str]:
    """Where a canary is in the files below a directory, uncompressed and decoded wherever that can be done."""
    found = []
    for path in directory.rglob("*"):
        if path.is_file():
            found += [f"{path.name}: {leak}" for leak in leaks_in(path.read_bytes())]
    return found


def leaks_in(data: bytes, depth: int = 0) -> Iterator[str]:
    """Which canaries are in some bytes."""
    for secret in (*KNOWN, NAMED):
        for form in _forms(secret):
            if form in data:
                yield f"{secret} as {form!r} at depth {depth}"
    if depth < 4:
        for part in _parts(data):
            yield from leaks_in(part, depth + 1)


def _forms(secret: str) -> set[bytes]:
    raw = secret.encode()
    forms = {raw, quote(raw, safe="").encode(), quote(raw, safe="").lower().encode(), quote_plus(raw).encode()}
    for ascii_only in (True, False):
        once = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        forms |= {once.encode(), json.dumps(once, ensure_ascii=ascii_only)[1:-1].encode(), repr(secret)[1:-1].encode()}
    for offset in range(3):
        coded = base64.b64encode(bytes(offset) + raw)
        forms.add(coded[4 if offset else 0 : (offset + len(raw)) // 3 * 4])
    return {form for form in forms if form}


def _parts(data: bytes) -> Iterator[bytes]:
    for magic, window in ((b"\x1f\x8b\x08", 31), (b"\x78\x9c", 15)):
        at = data.find(magic)
        while at >= 0:
            try:
                yield zlib.decompressobj(window).decompress(data[at:], 1 << 24)
            except zlib.error:
                pass
            at = data.find(magic, at + 1)
    at = data.find(b"\x28\xb5\x2f\xfd")
    while at >= 0:
        try:
            yield zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj().decompress(data[at:])
        except zstandard.ZstdError:
            pass
        at = data.find(b"\x28\xb5\x2f\xfd", at + 1)
    for match in _BASE64.finditer(data):
        run = match[0].translate(bytes.maketrans(b"-_", b"+/"))
        for start in range(4):
            part = run[start:]
            yield base64.b64decode(part[: len(part) // 4 * 4])
