"""Every decoder that meets bytes of an attacker, with bytes that it accepts to begin from."""

from __future__ import annotations

import functools
import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from replaypack import Archive
from replaypack.audit._state import State
from replaypack.errors import ProofError, ReplaypackError
from replaypack.format.catalog import parse_catalog
from replaypack.format.digests import digest, short_digest
from replaypack.format.dsse import PAYLOAD_TYPE, Envelope, pae, parse_envelope, parse_statement
from replaypack.format.frame import Compressor, decompress
from replaypack.format.journal import read_journal
from replaypack.format.manifest import parse_manifest
from replaypack.format.manifest_pages import read_root
from replaypack.format.marks import encode_marks, parse_marks
from replaypack.format.names import parse_locator
from replaypack.format.pack import parse_pack, parse_toc
from replaypack.format.proof import check_proof, parse_proof
from replaypack.format.recipe import parse_ops, resolve
from replaypack.format.record_frame import RecordFrame, blank_records
from replaypack.format.row import parse_row
from replaypack.format.summary import parse_runs
from replaypack.format.table import KEYS, TABLES, KeyPage, Root, parse_page
from replaypack.format.versions import parse_document
from replaypack.integrations.interchange import detect
from replaypack.policies.matching import MatchPolicy
from replaypack.policies.patterns import PatternError, compile_pattern
from replaypack.storage._zip import ZipStorage
from replaypack.tagged import load_json
from replaypack.values import decode, decode_payload

VECTORS = Path(__file__).parents[2] / "spec" / "vectors" / "valid"


def _cases(path: str) -> Iterator[dict[str, Any]]:
    for file in sorted((VECTORS / path).glob("*.json")):
        yield from json.loads(file.read_text("utf-8"))["cases"]


def _hexed(path: str, field: str) -> list[bytes]:
    return [bytes.fromhex(case[field]) for case in _cases(path) if isinstance(case.get(field), str)]


def _texts(path: str, field: str) -> list[bytes]:
    return [case[field].encode() for case in _cases(path) if isinstance(case.get(field), str)]


def manifest(data: bytes) -> None:
    found = parse_manifest(data, where="manifest")
    for segment in found.storage.segments:
        for shape in TABLES:
            read_root(shape, segment.table(shape), None, where="root")


def content(data: bytes) -> None:
    """A manifest whose digest is made right again, so that what is behind that check is reached."""
    from replaypack.canonical import canonical_json

    try:
        document = json.loads(data)
        del document["digest"]
        text = canonical_json({**document, "digest": digest(canonical_json(document)).hex()})
    except (ReplaypackError, ValueError, TypeError, KeyError, RecursionError):
        return
    manifest(text)


def toc(data: bytes) -> None:
    """A table of contents in a pack of the size that its frames need, under its right digest."""
    if not data:
        return
    body = Compressor(1)(data)
    try:
        frames = sum(max(0, frame[2]) for frame in msgspec.msgpack.decode(data)["frames"])
    except Exception:
        frames = 1000
    parse_toc(body, len(data), short_digest(data), 24 + frames + 8 + len(body) + 32)


def _tocs() -> list[bytes]:
    packs = [(pack, int.from_bytes(pack[-32:-28], "little")) for pack in _hexed("packs", "pack")]
    return [decompress(pack[-32 - size : -32]) for pack, size in packs]


def record_frame(data: bytes) -> None:
    frame = RecordFrame(data)
    for number in range(min(frame.count, 50)):
        frame.entry(number)
    frame.range_count()


def recipes(data: bytes) -> None:
    at, earlier = 0, []
    while at < len(data) and len(earlier) < 50:
        ops, at = parse_ops(data, at)
        earlier.append(resolve(ops, earlier))


def pages(data: bytes) -> None:
    for shape in TABLES:
        for count in {1, 2, len(data) // shape.width, shape.page_entries * len(data) // shape.fence.size}:
            for parse in (parse_page, Root.parse, KeyPage):
                try:
                    if parse is Root.parse:
                        Root.parse(shape, count, data)
                    elif parse is parse_page:
                        parse_page(shape, data, count, short_digest(data))
                    elif shape is KEYS:
                        KeyPage(data, count, short_digest(data))
                except ReplaypackError:
                    pass


def proof(data: bytes) -> None:
    """A proof against whatever digest its content section has, so that its path is walked."""
    found = parse_proof(data)
    try:
        check_proof(data, found.content_digest)
    except ProofError:
        pass


def proof_again(data: bytes) -> None:
    """A proof that is canonical again, so that what is behind that check is reached."""
    value = canonical(data)
    if value is not None:
        proof(value)


def canonical(data: bytes) -> bytes | None:
    from replaypack.canonical import canonical_json

    try:
        return canonical_json(json.loads(data))
    except (ReplaypackError, ValueError, TypeError, RecursionError):
        return None


def envelope(data: bytes) -> None:
    found = parse_envelope(data)
    pae(found.payload_type, found.payload)
    parse_statement(found)


def statement(data: bytes) -> None:
    """What is signed, in an envelope of its own."""
    parse_statement(Envelope(data, PAYLOAD_TYPE, ()))


def marks(data: bytes) -> None:
    """Marks are written again as the next run of a collector would."""
    found = parse_marks(data)
    for written in (0.0, 1.7e9, 4e9):
        since = found.resolved(written)
        again = parse_marks(encode_marks(found.run + 1, since, found.new))
        assert again.sound
        assert again.since.keys() | again.new == since.keys()


def summary(data: bytes) -> None:
    told = sum(int.from_bytes(data[at + 16 : at + 20], "big") for at in range(0, len(data), 32))
    for records in {1, 40, len(data), told}:
        try:
            parse_runs(data, records)
        except ReplaypackError:
            pass


@functools.cache
def _richest() -> bytes:
    """A manifest with records."""
    return (VECTORS / "archive" / "tiny" / "recordings" / "first" / "latest.json").read_bytes()


def tombstones(data: bytes) -> None:
    """A manifest with these as its ``tombstones``, ``withheld`` and ``source``."""
    try:
        given = json.loads(data)
        document = json.loads(_richest())
        for name, value in zip(("tombstones", "withheld", "source", "summary"), given, strict=False):
            document["storage"][name] = value
    except (ValueError, TypeError, RecursionError):
        return
    content(json.dumps(document).encode())


def state_file(data: bytes) -> None:
    """What an interrupted `verify` left."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "state"
        path.write_bytes(data)
        state = State(path, "memory://a")
        state.has_pack("0" * 64, 1)
        state.done("x", "0" * 64, "full")
        state.close(whole=False)


def purged_frame(data: bytes) -> None:
    """A record frame from which some records are taken out, as `purge` does."""
    frame = RecordFrame(data)
    if frame.count <= 200:
        again = RecordFrame(b"".join(blank_records(frame, range(0, frame.count, 2), [(0, 1)])))
        assert (again.count, again.inline_size) == (frame.count, frame.inline_size)
        for number in range(0, frame.count, 2):
            assert not again.entry(number).row


def journal(data: bytes) -> None:
    list(read_journal(data)[1])


def payload(data: bytes) -> None:
    for encoding in range(5):
        try:
            decode_payload(encoding, data)
        except ReplaypackError:
            pass


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def pattern(data: bytes) -> None:
    try:
        compiled = compile_pattern(text_of(data[:200]))
    except PatternError:
        return
    for text in ("", "a" * 5000, text_of(data)):
        compiled.search.search(text)
        compiled.whole.match(text)


def text_json(data: bytes) -> object:
    try:
        return load_json(data)
    except ValueError:  # what it says it raises
        return None


def match_policy(data: bytes) -> None:
    value = text_json(data)
    if isinstance(value, dict):
        MatchPolicy.of(value)


class _Bytes:
    url = "memory"

    def __init__(self, data: bytes) -> None:
        self.data = data

    def suffix(self, length: int) -> bytes:
        return self.data[max(0, len(self.data) - length) :]

    def ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.data[start : start + length] for start, length in ranges]

    def close(self) -> None:
        pass


def zip_file(data: bytes) -> None:
    with ZipStorage(_Bytes(data)) as storage:
        for info in list(storage.list())[:20]:
            storage.get(info.key)


def imported(data: bytes) -> None:
    """A file of somebody else's, as `replaypack import` takes it."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "run.json"
        path.write_bytes(data)
        archive = Archive("memory://fuzzed-import")
        try:
            detect(path).load(path, archive, "x", if_exists="replace")
        finally:
            for name in list(archive.recordings()):
                archive.delete(name)


def _zips() -> list[bytes]:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("replaypack.json", '{"format":"replaypack","version":1}')
        archive.writestr("recordings/a/latest.json", "{}")
    return [out.getvalue()]


def _interchange() -> list[bytes]:
    lines = [
        {"kind": "tool", "identity": {"name": "f", "args": {}}, "response": {"$bytes": "AAE="}},
    ]
    interaction = {
        "created_at": 1.0, "generation_id": None, "key": "0" * 32, "kind": "tool", "request": {"name": "f", "args": {}},
        "response": {"text": "x"}, "run_id": None, "sequence": 0,
    }  # fmt: skip
    chassis = {"fallback": "error", "metadata": {}, "mode": "record", "records": [interaction]}
    karenina = {"version": 1, "miss_policy": "strict", "entries": []}
    return ["\n".join(map(json.dumps, lines)).encode(), json.dumps(chassis).encode(), json.dumps(karenina).encode()]


def _sections() -> list[bytes]:
    leaf = {"time": "2025-06-15T15:06:40Z", "reason": "r", "records": [[0, "0" * 64]]}
    source = {"manifest": "0" * 64, "policy": "whole"}
    values: list[Any] = [[[], ["identity", "request"], source, None], [[leaf], [], None, None]]
    return [json.dumps(value).encode() for value in values]


def _marks() -> list[bytes]:
    keys = ["packs/ab/" + "ab" * 32 + ".rpk", "recordings/x/" + "0" * 64 + "." + "0" * 16 + ".dsse.json"]
    return [encode_marks(3, {keys[0]: 1.7e9}, keys[1:]), encode_marks(1, {}, keys)] + [
        encode_marks(1, {}, keys).replace(b'"since":{', b'"since":{"%s":["packs/ab/x"]' % time)
        for time in (b"9999-12-31T23:59:59.999999Z", b"0001-01-01T00:00:00Z")
    ]


def _states() -> list[bytes]:
    done = {
        "kind": "recording", "recording": "x", "manifest": "0" * 64, "level": "full", "faults": [], "lost": [],
        "untold": [], "bad_frames": [["0" * 64, 24]],
    }  # fmt: skip
    head = {"kind": "replaypack-verify", "version": 1, "archive": "memory://a"}
    lines: list[Any] = [head, {"kind": "pack", "digest": "0" * 64, "size": 1}, done]
    return ["".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()]


#: Name to the decoder and what it accepts.
DECODERS: dict[str, tuple[Callable[[bytes], object], Callable[[], list[bytes]]]] = {
    "manifest": (manifest, lambda: _texts("manifest", "manifest")),
    "content": (content, lambda: _texts("manifest", "manifest")),
    "tombstones": (tombstones, _sections),
    "proof": (proof, lambda: _texts("proofs", "proof")),
    "proof_again": (proof_again, lambda: _texts("proofs", "proof")),
    "envelope": (envelope, lambda: _texts("signatures", "envelope")[:1]),
    "statement": (statement, lambda: [parse_envelope(_texts("signatures", "envelope")[0]).payload]),
    "marks": (marks, _marks),
    "summary": (summary, lambda: _hexed("summaries", "summary")),
    "state_file": (state_file, _states),
    "purged_frame": (purged_frame, lambda: _hexed("record_frames", "raw")),
    "marker": (lambda data: parse_document(data, where="marker"), lambda: _texts("manifest", "marker")),
    "frame": (decompress, lambda: _hexed("frames", "frame")),
    "pack": (parse_pack, lambda: _hexed("packs", "pack")),
    "toc": (toc, _tocs),
    "record_frame": (record_frame, lambda: _hexed("record_frames", "raw")),
    "row": (parse_row, lambda: _hexed("rows", "bytes")),
    "recipes": (recipes, lambda: [b"\x01\x1c\x00\x01\x06\x01\x00"]),
    "pages": (pages, lambda: _hexed("tables", "page") + _hexed("tables", "root")),
    "journal": (journal, lambda: _hexed("journal", "journal")),
    "structured": (decode, lambda: _hexed("values", "msgpack")),
    "payload": (payload, lambda: _hexed("values", "msgpack")),
    "catalog": (parse_catalog, lambda: _hexed("catalog", "catalog")),
    "locator": (lambda data: parse_locator(text_of(data)), lambda: _texts("names", "locator")),
    "json": (text_json, lambda: [b'{"a":[1,{"$bytes":"AA=="},{"$float":"nan"}]}']),
    "match_policy": (
        match_policy,
        lambda: [json.dumps(case["policy"]).encode() for case in _cases("match") if "policy" in case],
    ),
    "pattern": (pattern, lambda: _texts("match", "pattern")),
    "zip_file": (zip_file, _zips),
    "imported": (imported, _interchange),
}


@functools.cache
def seeds(name: str) -> list[bytes]:
    found = DECODERS[name][1]()
    assert found, name
    return found


def run(name: str, data: bytes) -> None:
    """Decode, and let pass what is one of ours; anything else is a finding."""
    try:
        DECODERS[name][0](data)
    except ReplaypackError as error:
        if not error.code or not error.message:
            raise
