"""A tiny archive, and what a reader must find in it. Used by ``generate.py``."""

from __future__ import annotations

import base64
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import msgspec
import zstandard
from build_valid import noise

import replaypack._write.claim as claim
import replaypack._write.publish as publish
import replaypack.archive as archive_module
from replaypack import ABSENT, Archive, values
from replaypack.policies.matching import ignore

WHERE = "valid/archive/tiny"
_T = TypeVar("_T")
NAMES = ("first", "live", "appended", "failed", "second", "paged", "many", "matched")
#: Records of ``many``: more than a page of keys holds.
MANY = 2300


class _Clock:
    """Ids and times that are the same each time."""

    def __init__(self) -> None:
        self.ids = 0
        self.times = 0

    def new_id(self, size: int) -> bytes:
        self.ids += 1
        return noise(size, f"id {self.ids}")

    def now(self, nanoseconds: int | None = None) -> str:
        self.times += 1
        return f"2025-06-15T15:06:{self.times % 60:02d}.{self.times:09d}Z"


@contextmanager
def _fixed() -> Iterator[None]:
    clock = _Clock()
    with (
        mock.patch.object(archive_module, "new_id", clock.new_id),
        mock.patch.object(archive_module, "now_rfc3339", clock.now),
        mock.patch.object(claim, "now_rfc3339", clock.now),
        mock.patch.object(publish, "now_rfc3339", clock.now),
    ):
        yield


class Times:
    """Salts and times of records, by their number."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, **call: Any) -> dict[str, Any]:
        self.number += 1
        return {
            **call,
            "salt": noise(8, f"salt {self.number}"),
            "start": 1_750_000_000_000_000_000 + self.number * 1_000_000_000,
            "duration": 1_000_000 * self.number,
        }


WORDS = "a recording answers the calls of a run again without the model the tool or the network ".split()


def text(size: int, seed: str) -> str:
    return " ".join(WORDS[byte % len(WORDS)] for byte in noise(size // 5, seed))


def conversation(at: Times, turns: int, seed: str) -> Iterator[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": text(4500, seed)}]
    for turn in range(turns):
        messages.append({"role": "user", "content": text(300, f"{seed} {turn}")})
        answer = {"role": "assistant", "content": text(200, f"{seed} answer {turn}")}
        request = {"model": "m", "messages": list(messages), "temperature": 0.5}
        yield at(kind="model", name="m", identity=request, response=answer)
        messages.append(answer)


def _first(at: Times) -> Iterator[dict[str, Any]]:
    search = {"name": "search", "arguments": {"query": "x", "limit": 5}}
    yield at(kind="tool", name="search", identity=search, response="first answer")
    yield at(kind="tool", name="search", identity=search, response="second answer", scope="sample-1")
    yield at(kind="tool", name="search", identity=search, response={"hits": [1, 2.5, None, b"\x00\xff"]})
    yield from conversation(at, 3, "first")
    image = noise(3001, "image")
    data = {
        "std": base64.b64encode(image).decode(),
        "url": base64.urlsafe_b64encode(image).decode().rstrip("="),
        "raw": image,
    }
    yield at(kind="http", identity={"uri": "https://example.com/image"}, request={"body": b"\xff"}, response=data)
    yield at(kind="tool", name="none", identity=None)
    yield at(kind="tool", name="fails", key="host-key", request=[1], error={"type": "ValueError", "message": "bad"})
    yield at(
        kind="tool",
        name="odd",
        identity={"nested": [True, 1, -0.0, "\u00e9", {"$bytes": "x"}]},
        response={1: float("inf"), "s": "\ud800", "big": 1 << 70},
        attributes={"tokens": 12},
        flags=["redacted"],
    )


def _fill(root: str) -> None:
    archive, at = Archive(root), Times()
    options: dict[str, Any] = {"recorded_by": "spec 1", "flush_interval": None, "level": 6, "redact": None}
    with archive.recorder("first", metadata={"suite": "demo", "try": 1}, **options) as recorder:
        for call in _first(at):
            recorder.append(**call)
    live = archive.recorder("live", **options)
    calls = list(conversation(at, 5, "live"))
    for number, call in enumerate(calls):
        live.append(**call)
        if number in (1, 4):
            live.flush()
    live.close()
    for mode, first in (("error", 0), ("append", 10)):
        with archive.recorder("appended", if_exists=mode, **options) as recorder:  # type: ignore[arg-type]
            for number in range(first, first + 3):
                recorder.append(**at(kind="tool", identity={"n": number % 10}, response=f"answer {number}"))
    try:
        with archive.recorder("failed", **options) as recorder:
            recorder.append(**at(kind="tool", identity={"n": 1}, response=1))
            raise TimeoutError("no answer")
    except TimeoutError:
        pass
    with archive.recorder("second", base="first", **options) as recorder:
        for call in conversation(at, 4, "first"):
            recorder.append(**call)
    with (
        mock.patch.object(publish, "INLINE_LIMIT", 100),
        mock.patch.object(publish, "_MAX_INLINE_PACKS", 0),
        archive.recorder("paged", **options) as recorder,
    ):
        for number in range(3):
            recorder.append(**at(kind="tool", identity={"n": number}, response=number))
    with archive.recorder("many", **options) as recorder:
        for number in range(MANY):
            recorder.append(
                kind="tool",
                identity=number % 500,
                response=number,
                salt=bytes(8),
                start=0,
                scope="s" if number % 7 == 0 else None,
            )
    with archive.recorder("matched", match=["uuids", ignore("/**/trace")], **options) as recorder:
        for number in range(3):
            call = {"id": f"123e4567-e89b-12d3-a456-42661417400{number}", "trace": number, "n": number // 2}
            recorder.append(**at(kind="tool", identity=call, response=number))


def build() -> tuple[dict[str, bytes], dict[str, Any]]:
    """The objects of the archive by key, and what must be found in it."""
    return built(_fill, _expected)


def built(fill: Callable[[str], None], found: Callable[[Archive], _T]) -> tuple[dict[str, bytes], _T]:
    """The objects by key of an archive that is filled in a directory, at fixed times, and what is ``found`` in it."""
    directory, state = tempfile.mkdtemp(), tempfile.mkdtemp()
    try:
        with _fixed(), mock.patch.dict(os.environ, {"XDG_STATE_HOME": state}):
            fill(directory)
        expected = found(Archive(directory))
        objects = {
            path.relative_to(directory).as_posix(): path.read_bytes()
            for path in sorted(Path(directory).rglob("*"))
            if path.is_file() and "journal" not in path.relative_to(directory).parts
        }
    finally:
        shutil.rmtree(directory)
        shutil.rmtree(state)
    return objects, expected


def blob_note(record: Any, role: str) -> dict[str, Any] | None:
    row = record.row
    ref = row.response if role == "response" else getattr(row, role)
    if ref is None or ref.encoding == 0:
        return None
    data = record.blob_bytes(role)
    note: dict[str, Any] = {"digest": ref.digest.hex(), "size": ref.size, "encoding": ref.encoding}
    return note if len(data) > 200 else {**note, "bytes": data.hex()}


def _expected(archive: Archive) -> dict[str, Any]:
    recordings = []
    for name in NAMES:
        recording = archive.open(name)
        content, storage = recording.manifest.content, recording.manifest.storage
        records = [
            {
                "seq": record.seq,
                "kind": record.kind,
                "key": record.key.hex(),
                "scheme": record.key_scheme,
                "scope": record.scope,
                "request": blob_note(record, "request"),
                "identity": blob_note(record, "identity"),
                "response": blob_note(record, "response"),
            }
            for record in recording.records()
            if name != "many" or record.seq % 100 == 0
        ]
        lookups = []
        for record in list(recording.records())[:12]:
            if record.key_scheme != "identity":
                continue
            identity = record.identity
            for scope, nth in ((record.scope, 0), (None, 1), ("nobody", 0)):
                found = recording.lookup(record.kind, identity, scope=scope, nth=nth)
                lookups.append(
                    {
                        "kind": record.kind,
                        "identity_msgpack": values.encode(None if identity is ABSENT else identity).hex(),
                        "scope": scope,
                        "nth": nth,
                        "seq": None if found is None else found.seq,
                    }
                )
            if len(json.dumps(lookups)) > 6000:
                break
        lookups.append({"kind": "tool", "identity_msgpack": "a76d697373696e67", "scope": None, "nth": 0, "seq": None})
        recordings.append(
            {
                "name": name,
                "state": content.state,
                "records": content.records,
                "merkle_root": content.merkle_root,
                "summary": recording.manifest.storage.summary is not None,
                "revision": storage.revision,
                "segments": len(storage.segments),
                "digest": recording.manifest.digest,
                "content_digest": recording.content_digest,
                "some_records": records,
                "lookups": _unique(lookups),
            }
        )
    return {
        "feature": "archive",
        "about": "What a reader finds in the archive `tiny`. Records and lookups are some of all.",
        "zstd": ".".join(map(str, zstandard.ZSTD_VERSION)),
        "cases": recordings,
    }


def _unique(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [json.loads(text) for text in dict.fromkeys(map(json.dumps, items))]


def files() -> dict[str, bytes]:
    """Files below the vectors' directory."""
    return placed(WHERE, *build())


def placed(where: str, objects: dict[str, bytes], expected: dict[str, Any]) -> dict[str, bytes]:
    """The objects of an archive below the vectors' directory, and beside them what must be found."""
    result = {f"{where}/{key}": data for key, data in objects.items()}
    result[f"{where}.json"] = (json.dumps(expected, ensure_ascii=False, indent=1) + "\n").encode()
    return result


def manifest_with(raw: bytes, **changes: Any) -> bytes:
    """A manifest with members of its content or storage replaced, and its digest made right again."""
    from replaypack.canonical import canonical_json
    from replaypack.format.digests import digest

    document = msgspec.json.decode(raw)
    document.pop("digest")
    for path, value in changes.items():
        *parents, last = path.split("__")
        at = document
        for name in parents:
            at = at[int(name) if name.isdigit() else name]
        if value is _DROP:
            del at[last]
        else:
            at[last] = value
    own = digest(canonical_json(document)).hex()
    return canonical_json({**document, "digest": own})


_DROP = object()
DROP: Any = _DROP
