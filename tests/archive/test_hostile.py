"""Archives of someone who wants the reader to fail: every digest is right, and what they vouch for is not.

Whatever is in an archive, a reader answers rightly or raises one of our errors, in bounded time and memory, and
`verify` lists faults and comes to an end.
"""

from __future__ import annotations

import base64
import gc
import os
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from replaypack import Archive
from replaypack._write.prepare import opaque_key
from replaypack.audit import compact
from replaypack.cli import main
from replaypack.errors import FormatError, JournalError, RecordingExistsError, ReplaypackError
from replaypack.format.digests import digest, short_digest
from replaypack.format.frame import Compressor
from replaypack.format.journal import JournalHead, encode_head
from replaypack.format.manifest import Manifest, encode_manifest, parse_manifest
from replaypack.format.manifest_members import Content, Match, PackRef, PageRef, Redaction, Segment, TableRef
from replaypack.format.manifest_members import Storage as StorageSection
from replaypack.format.manifest_pages import encode_pack_page
from replaypack.format.merkle import MerkleTree, leaf_hash
from replaypack.format.names import latest_key, pack_key_of, revision_key
from replaypack.format.pack import (
    MAX_EXTERNAL,
    External,
    FrameInfo,
    FrameKind,
    Origin,
    PackBuilder,
    Toc,
    parse_toc,
)
from replaypack.format.recipe import Op, Range, Run, encode_ops
from replaypack.format.record_frame import MAX_FRAME_RECORDS, Entry, RecordFrame, encode_frame, stored_row
from replaypack.format.row import BlobRef, Row, encode_row
from replaypack.format.table import (
    BLOBS,
    INLINE_SPACE,
    KEYS,
    LITERALS,
    RECORDS,
    BlobEntry,
    FrameEntry,
    FrameRef,
    KeyPage,
    Location,
    Root,
    TableShape,
    key_page,
    pack_blob,
    pack_frame,
    pack_key,
    pages_of,
    transpose,
)
from replaypack.format.varint import uvarint
from replaypack.storage import LocalStorage, MemoryStorage
from tests.support.operations import OPERATIONS, operate

NO_MATCH = Match(name="none", version=1)
NONE = Redaction(name="none", version=1)
TIME = "2025-06-15T15:06:40Z"
MIB = 1 << 20
KEY = opaque_key("k")
#: MiB of frames that are large for what is read of them, and of the memory that this may take. Those near the limit of
#: a frame take many seconds.
LARGE = [(15, 128), pytest.param(58, 256, marks=pytest.mark.heavy)]


class Forged(NamedTuple):
    """What a forger makes of a recording before its manifest is written."""

    content: Content
    storage: StorageSection


class Forge:
    """Builds an archive piece by piece with the library's own encoders. Nothing that it is told is checked."""

    def __init__(self) -> None:
        self.pack = PackBuilder(Origin(bytes(16), bytes(8), "x"))
        self.compress = Compressor(9)
        self.rows: list[bytes] = []

    def frame(self, kind: int, raw: bytes, *, first: int = 0, count: int = 0) -> Location:
        return self.pack.add(kind, self.compress(raw), raw=len(raw), first=first, count=count, digest=short_digest(raw))

    def literals(self, raw: bytes, *, first: int = 0, claimed: int | None = None) -> FrameEntry:
        at = self.frame(FrameKind.LITERAL, raw, first=first, count=len(raw))
        size = len(raw) if claimed is None else claimed
        return FrameEntry(first, at, size, size, short_digest(raw))

    def records(self, entries: Sequence[Entry], *, first: int = 0) -> FrameEntry:
        raw = b"".join(encode_frame(entries))
        at = self.frame(FrameKind.RECORD, raw, first=first, count=len(entries))
        return FrameEntry(first, at, len(raw), len(entries), short_digest(raw))

    def raw_records(self, raw: bytes, count: int) -> FrameEntry:
        at = self.frame(FrameKind.RECORD, raw, count=count)
        return FrameEntry(0, at, len(raw), count, short_digest(raw))

    def table(self, shape: TableShape, rows: Sequence[bytes], refs: Sequence[FrameRef] = ()) -> TableRef:
        fences, digests, places = [], [], []
        for batch in pages_of(shape, rows):
            joined = b"".join(batch)
            raw = key_page(joined, refs) if shape is KEYS else transpose(joined, shape.width)
            places.append(self.frame(FrameKind.PAGE, raw, first=shape.number, count=len(batch)))
            fences.append(batch[0][: shape.key])
            digests.append(short_digest(raw))
        root = Root(shape, len(rows), fences, digests, places)
        return TableRef(count=len(rows), root=base64.b64encode(root.encode()).decode(), page=None)

    def row(self, seq: int = 0, *, key: bytes = KEY, request: int = 0, response: bytes | None = b"\xa1r") -> Entry:
        """A record with an inline response; its request has ``request`` bytes of zeros, and no recipe yet."""
        ref = BlobRef(zeros(request), request, 3) if request else None
        sent = response or b""
        row = Row(
            seq, "k", None, key, "opaque", None, ref, None, 0, 0, 0, 0, None, bytes(8),
            len(sent), 1 if sent else 0, digest(sent),
        )  # fmt: skip
        data = encode_row(row)
        self.rows.append(data)
        return Entry(stored_row(data, response or b""), b"", response or b"")

    def finish(
        self,
        records: Sequence[FrameEntry],
        literals: Sequence[FrameEntry] = (),
        *,
        keys: Sequence[bytes] | None = None,
        refs: Sequence[FrameRef] | None = None,
        blobs: Sequence[bytes] = (),
        leaves: Sequence[bytes] | None = None,
        count: int | None = None,
        inlines: int = 0,
        segment: dict[str, Any] | None = None,
        storage: dict[str, Any] | None = None,
        content: dict[str, Any] | None = None,
    ) -> MemoryStorage:
        count = len(self.rows) if count is None else count
        if keys is None:
            keys = [pack_key(KEY, bytes(8), seq) for seq in range(count)]
        if refs is None:
            refs = [FrameRef(entry.first, entry.frame, entry.digest) for entry in records]
        tables = {
            "keys": self.table(KEYS, keys, refs),
            "records": self.table(RECORDS, [pack_frame(entry) for entry in records]),
            "literals": self.table(LITERALS, [pack_frame(entry) for entry in literals]),
            "blobs": self.table(BLOBS, list(blobs)),
        }
        members: dict[str, Any] = {
            "first": 0, "count": count, "inline_first": 0, "packs": None, "near": None, **tables, **(segment or {})
        }  # fmt: skip
        data = self.pack.finish()
        tree = MerkleTree()
        for row in self.rows[:count]:
            tree.add(leaf_hash(row))
        while tree.count < count:
            tree.add(bytes(32))
        made = Forged(
            Content(
                id="0" * 32, state="sealed", started=TIME, metadata={}, recorded_by="x", match=NO_MATCH, redaction=NONE,
                records=count, counts={"k": count}, merkle_root=tree.root.hex(), extends=None, derived_from=None,
                error=None,
            ),
            StorageSection(
                revision=1, checkpoint=0, cause="seal", claim=None, writer="0" * 16, created=TIME, previous=None,
                packs=[PackRef(digest(data).hex(), len(data))], pack_pages=[], segments=[Segment(**members)],
                literals=max([e.first + e.items for e in literals if e.first < INLINE_SPACE], default=0),
                inlines=inlines, merkle_edge=[node.hex() for node in tree.edge], tombstones=[], withheld=[],
                source=None,
            ),
        )  # fmt: skip
        manifest = encode_manifest(
            msgspec.structs.replace(made.content, **(content or {})),
            msgspec.structs.replace(made.storage, **(storage or {})),
        )
        return stored(manifest, {pack_key_of(digest(data).hex()): data})


def stored(manifest: Manifest, packs: dict[str, bytes]) -> MemoryStorage:
    store = MemoryStorage()
    for key, data in packs.items():
        store.put(key, data)
    store.put(revision_key("x", manifest.storage.revision), manifest.raw)
    store.put(latest_key("x"), manifest.raw)
    return store


def zeros(size: int) -> bytes:
    """The digest of so many zeros, up to what a test can afford; something else beyond."""
    return digest(bytes(size)) if size <= 64 * MIB else bytes(32)


def ops(entry: Entry, *recipes: Sequence[Op]) -> Entry:
    return entry._replace(recipes=b"".join(map(encode_ops, recipes)))


QUESTIONS: list[Callable[[Any], object]] = [
    lambda r: r.lookup(key="k"),
    lambda r: r.lookup(key="k", nth=3),
    lambda r: r.lookup(key="k", scope="s"),
    lambda r: r.lookup(key="other"),
    lambda r: r.count(key="k"),
    lambda r: len(r),
    lambda r: r.record(0).request,
    lambda r: r.record(len(r) - 1).response,
    lambda r: [(x.request, x.identity, x.response, x.time, x.attributes) for x in r.records()],
    lambda r: [x.seq for x in r.records(first=1)],
    lambda r: r.blob(digest(b"\0" * 5000).hex()),
]


def ask(store: MemoryStorage) -> list[str]:
    """Ask everything; nothing but our own errors may come out. Returns what they say."""
    said: list[str] = []
    for question in QUESTIONS:
        try:
            question(Archive("", storage=store).open("x"))
        except ReplaypackError as error:
            said.append(str(error))
    return said


def verify(store: MemoryStorage) -> set[str]:
    return {fault.code for fault in Archive("", storage=store).verify()}


def peak(function: Callable[[], object]) -> int:
    """The most bytes of Python objects that a call holds."""
    tracemalloc.start()
    try:
        function()
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return most


def hostile(store: MemoryStorage, *expected: str, memory: int | None = None) -> None:
    """Reading is refused where it must be, `verify` says so, and nothing else is harmed by it.

    All of it in so much memory, where the archive is made to take much of it: to watch memory takes several times as
    long as the rest.
    """
    said: list[str] = []
    found: set[str] = set()
    for step in (
        lambda: said.extend(ask(store)),
        lambda: found.update(verify(store)),
        lambda: operate(store, *(name for name in OPERATIONS if name != "verify")),
    ):
        if memory is None:
            step()
        else:
            assert peak(step) < memory
    assert said
    assert found >= set(expected)
    assert found


def test_the_forge_makes_sound_archives() -> None:
    forge = Forge()
    lit = forge.literals(bytes(5000))
    records = forge.records([ops(forge.row(n, request=5000), [Range(0, 5000, 0)]) for n in range(3)])
    inline = FrameEntry(INLINE_SPACE, records.frame, records.raw, 6, records.digest)
    blobs = [pack_blob(BlobEntry(digest(bytes(5000))[:16], n, 0)) for n in range(3)]
    store = forge.finish([records], [lit, inline], inlines=6, blobs=blobs)
    assert ask(store) == []
    assert verify(store) == set()


# Frames


@pytest.mark.once
def test_millions_of_empty_records() -> None:
    count = 5_000_000
    forge = Forge()
    frame = forge.raw_records(uvarint(count) + bytes(12 * count), count)
    hostile(forge.finish([frame], count=4), "frame.corrupted", memory=256 * MIB)


def test_a_frame_of_as_many_records_as_there_may_be() -> None:
    raw = uvarint(MAX_FRAME_RECORDS) + bytes(12 * MAX_FRAME_RECORDS)
    assert peak(lambda: RecordFrame(raw)) < 16 * MIB
    with pytest.raises(FormatError, match="cannot hold"):
        RecordFrame(uvarint(MAX_FRAME_RECORDS + 1) + bytes(12 * MAX_FRAME_RECORDS + 12))


@pytest.mark.once
def test_millions_of_recipes_without_parts() -> None:
    forge = Forge()
    records = forge.records([forge.row(request=5000)._replace(recipes=bytes(30 * MIB)), forge.row(1)])
    hostile(forge.finish([records]), "blob.mismatch", memory=256 * MIB)


@pytest.mark.parametrize(("size", "memory"), LARGE)
@pytest.mark.once
def test_many_frames_that_are_large_once_they_are_read(size: int, memory: int) -> None:
    forge = Forge()
    recipes = bytes(size * MIB)
    frames = [forge.records([forge.row(n, request=5000)._replace(recipes=recipes)], first=n) for n in range(12)]
    hostile(forge.finish(frames), "blob.mismatch", memory=memory * MIB)


def test_what_is_reported_holds_nothing_of_what_was_read() -> None:
    forge = Forge()
    store = forge.finish([forge.records([forge.row(request=5000)._replace(recipes=bytes(30 * MIB))])])
    assert str(operate(store, "compact")["compact"]) == "None"
    tracemalloc.start()
    gc.disable()
    try:
        failed = compact(Archive("", storage=store), level=3).recordings[0].error
        held, most = tracemalloc.get_traced_memory()
    finally:
        gc.enable()
        tracemalloc.stop()
    assert isinstance(failed, FormatError)
    assert most > 30 * MIB > 2 * MIB > held


@pytest.mark.once
def test_millions_of_ranges_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replaypack.format.record_frame.MAX_FRAME_PARTS", 5000)
    forge = Forge()
    recipe = encode_ops([Range(0, 1, 0)] * 1000)
    records = forge.records([forge.row(n, request=1000)._replace(recipes=recipe) for n in range(20)])
    store = forge.finish([records], [forge.literals(b"\0")])
    hostile(store, "blob.mismatch")
    recording = Archive("", storage=store).open("x")
    assert recording.record(4).request == bytes(1000)
    for seq in (5, 6, 5):
        with pytest.raises(FormatError, match="parts of recipes"):
            _ = recording.record(seq).request
    assert recording.record(4).request == bytes(1000)


@pytest.mark.once
def test_runs_in_many_frames() -> None:
    """What recipes resolve to is not kept for every frame that was ever looked at."""
    forge = Forge()
    doubling: list[list[Op]] = [[Range(0, 1, 0)] * 2] + [[Run(1, 0, 2 << n), Run(1, 0, 2 << n)] for n in range(15)]
    frames = []
    for number in range(12):
        entries = []
        recipes = [*doubling, *[[Run(1, 0, 1 << 16)]] * 44]
        for at in range(0, len(recipes), 3):
            entries.append(ops(forge.row(number * 20 + at // 3, request=65536), *recipes[at : at + 3]))
        frames.append(forge.records(entries, first=number * 20))
    hostile(forge.finish(frames, [forge.literals(b"\0")]), "blob.mismatch", memory=256 * MIB)


def test_recipes_that_are_refused_stay_refused() -> None:
    forge = Forge()
    broken = encode_ops([Range(0, 1, 0)]) + encode_ops([Run(2, 0, 1)])
    frame = RecordFrame(b"".join(encode_frame([forge.row()._replace(recipes=broken), forge.row(1)])))
    for number in (0, 0, 1, 0):
        with pytest.raises(FormatError, match="2 recipes back"):
            frame.recipes(number)


# Blobs


@pytest.mark.once
def test_a_blob_of_gigabytes_out_of_one_frame() -> None:
    forge = Forge()
    lit = forge.literals(bytes(4 * MIB))
    size = 4 * 1023 * MIB
    records = forge.records([ops(forge.row(request=size), [Range(0, 4 * MIB, 0)] * 1023)])
    store = forge.finish([records], [lit])
    hostile(store, "blob.unreadable", memory=256 * MIB)
    with pytest.raises(FormatError, match="out of all proportion"):
        _ = Archive("", storage=store).open("x").record(0).request


@pytest.mark.parametrize(("size", "memory"), LARGE)
@pytest.mark.once
def test_a_blob_of_few_bytes_out_of_gigabytes_of_frames(size: int, memory: int) -> None:
    forge = Forge()
    raw = bytes(size * MIB)
    first = forge.literals(raw)
    entries = [first]
    for number in range(1, 12):
        entries.append(forge.literals(raw[:-number], first=entries[-1].first + entries[-1].items))
    ranges = [Range(entry.first, 1, 0) for entry in entries]
    records = forge.records([ops(forge.row(request=len(ranges)), ranges)])
    hostile(forge.finish([records], entries), "blob.unreadable", memory=memory * MIB)


def test_one_frame_mapped_many_times_is_held_once() -> None:
    forge = Forge()
    raw = bytes(20 * MIB)
    one = forge.literals(raw)
    entries = [one._replace(first=n * len(raw)) for n in range(40)]
    ranges = [Range(entry.first, 1, 0) for entry in entries]
    records = forge.records([ops(forge.row(request=40), ranges)])
    store = forge.finish([records], entries)
    assert peak(lambda: Archive("", storage=store).open("x").record(0).request) < 64 * MIB
    assert Archive("", storage=store).open("x").record(0).request == bytes(40)


def test_a_large_blob_in_proportion_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    forge = Forge()
    noise = os.urandom(3 * MIB)
    data = noise * 25
    row = forge.row(request=8)
    old = msgspec.msgpack.decode(forge.rows[0], type=Row)
    whole = encode_row(msgspec.structs.replace(old, request=BlobRef(digest(data), len(data), 3)))
    forge.rows[0] = whole
    entry = ops(row._replace(row=whole[:-32]), [Range(0, 3 * MIB, 0)] * 25)
    store = forge.finish([forge.records([entry])], [forge.literals(noise)])
    recording = Archive("", storage=store).open("x")
    assert recording.record(0).request == data
    monkeypatch.setattr("replaypack._read.index.BLOB_RATIO", 2)
    recording = Archive("", storage=store).open("x")
    with pytest.raises(FormatError, match="blob_limit"):
        _ = recording.record(0).request
    recording.blob_limit = 100 * MIB
    assert recording.record(0).request == data


# Tables


@pytest.mark.once
def test_literals_that_lie_about_a_frame_that_is_cached() -> None:
    """The second entry names the same frame and says that it is longer: that gave an endless loop."""
    forge = Forge()
    one = forge.literals(bytes(5000))
    lie = FrameEntry(5000, one.frame, 1 << 20, 1 << 20, one.digest)
    records = forge.records(
        [ops(forge.row(0, request=5000), [Range(0, 5000, 0)]), ops(forge.row(1, request=9000), [Range(5000, 9000, 0)])]
    )
    store = forge.finish([records], [one, lie])
    recording = Archive("", storage=store).open("x")
    assert recording.record(0).request == bytes(5000)
    with pytest.raises(FormatError):
        _ = recording.record(1).request
    hostile(store, "toc.mismatch")


@pytest.mark.parametrize("second", [0, 10, 4999])
@pytest.mark.once
def test_literals_that_overlap(second: int) -> None:
    forge = Forge()
    one = forge.literals(bytes(5000))
    two = forge.literals(b"\1" * 5000)._replace(first=second)
    records = forge.records([ops(forge.row(request=6000), [Range(0, 6000, 0)])])
    hostile(forge.finish([records], [one, two]), "literals.gap")


@pytest.mark.once
def test_one_place_for_a_page_and_a_frame() -> None:
    """What was read as one thing is not taken for another."""
    forge = Forge()
    records = forge.records([forge.row(0), forge.row(1)])
    lit = FrameEntry(0, records.frame, records.raw, records.raw, records.digest)
    store = forge.finish([records], [lit, lit._replace(first=lit.items)])
    recording = Archive("", storage=store).open("x")
    recording.index.literals([(0, 10)])
    found = recording.lookup(key="k")
    assert found is not None
    assert found.response == "r"
    assert [r.seq for r in recording.records()] == [0, 1]
    [segment] = recording.manifest.storage.segments
    root = Root.parse(KEYS, 2, base64.b64decode(segment.keys.root or ""))
    page = FrameEntry(0, root.locations[0], 2, 2, root.digests[0])
    other = Forge()
    other.pack = forge.pack
    hostile(other.finish([page], [page], count=2, refs=[FrameRef(0, page.frame, page.digest)]))


@pytest.mark.once
def test_records_that_stand_twice_in_their_table() -> None:
    forge = Forge()
    records = forge.records([forge.row(0), forge.row(1)])
    gap = forge.records([forge.row(3)], first=3)
    for frames in ([records, records], [records, gap], [records], [records._replace(first=1)]):
        store = forge_again(forge).finish(frames, count=4)
        with pytest.raises(FormatError):
            list(Archive("", storage=store).open("x").records())
        hostile(store)


def forge_again(forge: Forge) -> Forge:
    """The same frames for another archive."""
    other = Forge()
    other.rows = forge.rows
    other.pack._frames = list(forge.pack._frames)
    other.pack._parts = list(forge.pack._parts)
    other.pack.size = forge.pack.size
    return other


@pytest.mark.once
def test_a_table_that_names_one_frame_thousands_of_times() -> None:
    forge = Forge()
    records = forge.records([forge.row(n) for n in range(50)])
    frames = [records._replace(first=n * 50) for n in range(1500)]
    store = forge.finish(frames, count=1500)
    hostile(store, "row.order")


@pytest.mark.parametrize("lie", ["order", "equal", "beyond", "pack"])
@pytest.mark.once
def test_dictionaries_of_frames_that_lie(lie: str) -> None:
    forge = Forge()
    one, two = forge.records([forge.row(0)]), forge.records([forge.row(1)], first=1)
    refs = [FrameRef(entry.first, entry.frame, entry.digest) for entry in (one, two)]
    if lie == "order":
        refs.reverse()
    elif lie == "equal":
        refs = [refs[0], refs[0]]
    elif lie == "beyond":
        refs = [refs[0]._replace(first=1), refs[1]._replace(first=2)]
    else:
        refs = [ref._replace(frame=ref.frame._replace(pack=7)) for ref in refs]
    hostile(forge.finish([one, two], refs=refs))


@pytest.mark.once
def test_a_dictionary_of_millions_of_frames() -> None:
    rows = pack_key(KEY, bytes(8), 0)
    count = 500_000
    firsts = b"".join(n.to_bytes(6, "big") + bytes(28) for n in range(count))
    raw = rows + transpose(firsts, 34)
    assert len(raw) == KEYS.width + 34 * count
    with pytest.raises(FormatError, match="more frames"):
        KeyPage(raw, 1, short_digest(raw))
    forge = Forge()
    records = forge.records([forge.row(0)])
    at = forge.frame(FrameKind.PAGE, raw)
    root = Root(KEYS, 1, [rows], [short_digest(raw)], [at])
    keys = TableRef(count=1, root=base64.b64encode(root.encode()).decode(), page=None)
    hostile(forge.finish([records], segment={"keys": keys}), "page.corrupted", memory=64 * MIB)


def test_a_root_that_repeats_itself() -> None:
    for fence in (bytes(6), None):
        one = [RECORDS.fence.pack(fence or n.to_bytes(6, "big"), bytes(16), 0, 24, 9) for n in range(2)]
        data = one[0] * 500_000 if fence else b"".join(one)
        count = RECORDS.page_entries * (len(data) // RECORDS.fence.size)

        def parse(count: int = count, data: bytes = data) -> None:
            with pytest.raises(FormatError, match=r"order|twice"):
                Root.parse(RECORDS, count, data)

        assert peak(parse) < MIB


def test_appending_to_tables_that_name_packs_which_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    forge = Forge()
    records = forge.records([forge.row(0)])
    lit = forge.literals(bytes(10))
    store = forge.finish([records], [lit._replace(frame=lit.frame._replace(pack=9))])
    recorder = Archive("", storage=store).recorder("x", if_exists="append", flush_interval=None)
    recorder.append(kind="k", key="k2", response=1)
    with pytest.raises(ReplaypackError):
        recorder.seal()


@pytest.mark.once
def test_blobs_that_name_records_which_are_not_there() -> None:
    forge = Forge()
    records = forge.records([forge.row(0)])
    entry = pack_blob(BlobEntry(digest(bytes(5000))[:16], 99, 0))
    store = forge.finish([records], blobs=[entry])
    with pytest.raises(FormatError, match="names record 99"):
        Archive("", storage=store).open("x").blob(digest(bytes(5000)).hex())
    hostile(store, "blob.index")


# Manifests


def refused(store: MemoryStorage) -> None:
    with pytest.raises(FormatError):
        Archive("", storage=store).open("x")
    assert verify(store)


@pytest.mark.parametrize("count", [(1 << 48) + 1, 1 << 62, 1 << 63])
def test_records_beyond_any_number(count: int) -> None:
    forge = Forge()
    records = forge.records([forge.row(0)])
    store = forge.finish([records])
    old = parse_manifest(store.get(latest_key("x")))
    [segment] = old.storage.segments
    edge = [bytes(32)] * count.bit_count()
    tree = MerkleTree(count, edge)
    keys = msgspec.structs.replace(segment.keys, count=count)
    manifest = encode_manifest(
        msgspec.structs.replace(old.content, records=count, counts={"k": count}, merkle_root=tree.root.hex()),
        msgspec.structs.replace(
            old.storage,
            segments=[msgspec.structs.replace(segment, count=count, keys=keys)],
            merkle_edge=[node.hex() for node in edge],
        ),
    )
    refused(stored(manifest, {}))


@pytest.mark.parametrize(
    "changes",
    [
        {"storage": {"literals": (1 << 47) + 1}},
        {"storage": {"inlines": 1 << 60}},
        {"storage": {"revision": -1}},
        {"content": {"counts": {"k": 1 << 80}}},
    ],
)
def test_numbers_out_of_their_bounds(changes: dict[str, Any]) -> None:
    forge = Forge()
    refused(forge.finish([forge.records([forge.row(0)])], **changes))


def test_more_record_frames_than_records() -> None:
    forge = Forge()
    records = forge.records([forge.row(0)])
    refused(forge.finish([records, records._replace(first=1)], count=1))


def test_pages_of_packs_without_end() -> None:
    forge = Forge()
    records = forge.records([forge.row(0)])
    raw = encode_pack_page([PackRef("0" * 64, 1)]) * 400_000
    pack = PackBuilder(None)
    at = pack.add(FrameKind.PAGE, Compressor()(raw), raw=len(raw), first=0, count=0, digest=short_digest(raw))
    data = pack.finish()
    page = PageRef(
        pack=digest(data).hex(), offset=at.offset, length=at.length, raw=len(raw), digest=short_digest(raw).hex()
    )
    store = forge.finish([records], storage={"packs": [], "pack_pages": [page] * 30})
    store.put(pack_key_of(digest(data).hex()), data)
    assert peak(lambda: refused(store)) < 32 * MIB
    small = msgspec.structs.replace(page, raw=36)
    refused(forge_again(forge).finish([records], storage={"packs": [], "pack_pages": [small] * 2000}))


def test_metadata_nested_without_end() -> None:
    store = MemoryStorage()
    for body in (b"[" * 5_000_000, b'{"a":' * 5000 + b"1" + b"}" * 5000):
        store.put(latest_key("x"), b'{"format":"replaypack","version":1,"x":' + body)
        store.put(revision_key("x", 1), store.get(latest_key("x")))
        refused(store)


# Packs


def pack_with(raw: bytes) -> tuple[bytes, int, bytes]:
    return Compressor()(raw), len(raw), short_digest(raw)


@pytest.mark.parametrize("which", ["frames", "origins", "external"])
def test_a_table_of_contents_of_millions(which: str) -> None:
    frame = FrameInfo(3, 24, 1, 1, 0, 0, b"", None)
    items = {"frames": frame, "origins": Origin(b"", b"", ""), "external": External(0, 0, b"", 0, 0, 0, 0, b"")}
    one = msgspec.msgpack.encode(items[which])
    count = max(1_000_000, MAX_EXTERNAL + 1)
    parts = dict.fromkeys(Toc.__struct_fields__, b"\x90")
    parts[which] = b"\xdd" + count.to_bytes(4, "big") + one * count
    raw = b"\x83" + b"".join(msgspec.msgpack.encode(name) + part for name, part in parts.items())
    body, size, short = pack_with(raw)

    def parse() -> None:
        with pytest.raises(FormatError, match=r"entries|origins"):
            parse_toc(body, size, short, 10_000)

    assert peak(parse) < len(raw) + MIB


# Revisions, names, the storage


class Endless(MemoryStorage):
    """A server that has every revision."""

    asked = 0

    def get(self, key: str) -> bytes:
        number = key.rpartition("/")[2].partition(".")[0]
        if number.isdigit() and ".open" not in key:
            self.asked += 1
            return self.revision(int(number))
        return super().get(key)

    def revision(self, number: int) -> bytes:
        old = parse_manifest(super().get(latest_key("x")))
        return encode_manifest(old.content, msgspec.structs.replace(old.storage, revision=number)).raw


def test_a_server_with_every_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replaypack._read.manifests._MAX_PROBES", 50)
    forge = Forge()
    plain = forge.finish([forge.records([forge.row(0)])])
    store = Endless()
    for info in plain.list():
        store.put(info.key, plain.get(info.key))
    with pytest.raises(FormatError, match="behind"):
        Archive("", storage=store).open("x", fresh=True)
    assert store.asked < 60
    monkeypatch.setattr(Endless, "revision", lambda self, number: plain.get(latest_key("x")))
    with pytest.raises(FormatError, match="manifest of revision 1"):
        Archive("", storage=store).open("x", fresh=True)
    with pytest.raises(FormatError, match="manifest of revision 1"):
        Archive("", storage=store).open("x", 7)


@pytest.mark.parametrize("revision", [10**8, 10**9, 2**53])
def test_revisions_that_no_key_has(revision: int) -> None:
    forge = Forge()
    refused(forge.finish([forge.records([forge.row(0)])], storage={"revision": revision}))


def test_latest_of_a_revision_that_is_not_there() -> None:
    forge = Forge()
    store = forge.finish([forge.records([forge.row(0)])], storage={"revision": 10**8 - 1})
    store.delete(revision_key("x", 10**8 - 1))
    assert len(Archive("", storage=store).open("x", fresh=True)) == 1
    assert verify(store) == {"manifest.missing"}


def test_a_claim_of_the_future_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = Forge().finish([], count=0, content={"state": "open", "counts": {}}, storage={
        "cause": "claim", "claim": "create", "created": "9999-12-31T23:59:59Z", "segments": [],
    })  # fmt: skip
    with Archive("", storage=made).recorder("x", flush_interval=None) as recorder:
        recorder.append(kind="k", key="k", response=1)
    assert len(Archive("", storage=made).open("x")) == 1


def test_what_cannot_be_a_name_is_not_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forge = Forge()
    store = forge.finish([forge.records([forge.row(0)])])
    raw = store.get(latest_key("x"))
    for name in ("con", "a.json", "b.", "x/nul"):
        store.put(f"recordings/{name}/00000001.json", raw)
    assert list(Archive("", storage=store).recordings()) == ["x"]
    verify(store)


def on_disk(store: MemoryStorage, path: Path) -> Path:
    local = LocalStorage(path, fsync=False)
    local.put("replaypack.json", b'{"format":"replaypack","version":1}')
    for info in store.list():
        local.put(info.key, store.get(info.key))
    return path


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_pipes_in_the_archive_do_not_block(tmp_path: Path) -> None:
    forge = Forge()
    path = on_disk(forge.finish([forge.records([forge.row(0)])]), tmp_path / "a")
    latest = path / latest_key("x")
    latest.unlink()
    os.mkfifo(latest)
    assert len(Archive(path).open("x")) == 1  # the hint is damaged; the revision is not
    assert list(Archive(path).verify())
    revision = path / revision_key("x", 1)
    revision.unlink()
    os.mkfifo(revision)
    with pytest.raises(ReplaypackError):
        Archive(path).open("x")


def test_the_command_line_lists_faults_and_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forge = Forge()
    one = forge.records([forge.row(0), ops(forge.row(1, request=4095 * MIB), [Range(0, MIB, 0)] * 4095)])
    lit = forge.literals(bytes(MIB))
    path = on_disk(forge.finish([one, one._replace(first=7)], [lit, lit._replace(first=5)], count=9), tmp_path / "a")
    for arguments in (["verify", str(path)], ["show", "-r", f"{path}#x"], ["cat", f"{path}#x", "1"]):
        assert main(arguments) == 1
        out = capsys.readouterr()
        assert "Traceback" not in out.err + out.out
        assert "unexpected" not in out.err


# Journals


def head(**changes: Any) -> JournalHead:
    content = {
        "id": "0" * 32, "state": "open", "started": TIME, "metadata": {}, "recorded_by": "x",
        "match": {"name": "none", "version": 1}, "redaction": {"name": "none", "version": 1}, "records": 0,
        "counts": {}, "merkle_root": digest(b"").hex(), "extends": None, "derived_from": None, "error": None,
    }  # fmt: skip
    members: dict[str, Any] = {
        "version": 1, "archive": "a", "name": "x", "revision": 1, "claim": "create", "writer": "0" * 16, "number": 0,
        "first": 0, "literals": 0, "inlines": 0, "external": [], "content": content, **changes,
    }  # fmt: skip
    return JournalHead(**members)


EXTERNAL = (0, 10, 10, bytes(16), "0" * 64, 100, 0, 24, 9)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../../x"},
        {"name": "/etc/x"},
        {"writer": "../../../x"},
        {"writer": "zz"},
        {"claim": "other"},
        {"revision": -1},
        {"revision": 10**12},
        {"number": -1},
        {"first": -1},
        {"literals": 1 << 60},
        {"inlines": -5},
        {"content": {}},
        {"content": {"id": "../x"}},
        {"external": [(*EXTERNAL[:4], "../../x", *EXTERNAL[5:])]},
        {"external": [(1 << 50, *EXTERNAL[1:])]},
        {"external": [(0, 10, 11, *EXTERNAL[3:])]},
        {"external": [(*EXTERNAL[:8], 1000)]},
        {"external": [EXTERNAL, EXTERNAL]},
    ],
    ids=str,
)
def test_heads_of_journals_are_checked(tmp_path: Path, changes: dict[str, Any]) -> None:
    forge = Forge()
    path = on_disk(forge.finish([forge.records([forge.row(0)])]), tmp_path / "deep" / "er" / "a")
    journal = path / "journal" / f"{'0' * 16}-000000.rpj"
    journal.parent.mkdir()
    journal.write_bytes(encode_head(head(**changes)))
    before = sorted(p for p in tmp_path.rglob("*"))
    [result] = recovered(path)
    assert isinstance(result.error, ReplaypackError)
    assert sorted(p for p in tmp_path.rglob("*")) == before, "nothing was written or deleted anywhere"


def recovered(path: Path) -> list[Any]:
    from replaypack.recover import recover

    return list(recover(Archive(path)))


def things(directory: Path) -> Iterator[Path]:
    """Other things than files under the names of journals."""
    elsewhere = directory.parent.parent / "precious"
    elsewhere.write_bytes(encode_head(head()))
    link = directory / f"{'1' * 16}-000000.rpj"
    link.symlink_to(elsewhere)
    yield link
    folder = directory / f"{'2' * 16}-000000.rpj"
    folder.mkdir()
    yield folder
    pipe = directory / f"{'3' * 16}-000000.rpj"
    os.mkfifo(pipe)
    yield pipe
    wrong = directory / f"{'4' * 16}-000000.rpj"
    wrong.write_bytes(encode_head(head()))
    yield wrong
    unnamed = directory / f"{'5' * 16}-000000.new"
    unnamed.symlink_to(elsewhere)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_only_plain_files_are_journals(tmp_path: Path) -> None:
    forge = Forge()
    path = on_disk(forge.finish([forge.records([forge.row(0)])]), tmp_path / "a")
    directory = path / "journal"
    directory.mkdir()
    made = list(things(directory))
    results = recovered(path)
    assert {result.journal for result in results} == set(map(str, made))
    assert all(isinstance(result.error, FormatError | JournalError) for result in results)
    assert (tmp_path / "precious").exists()
    with pytest.raises(RecordingExistsError):
        Archive(path).recorder("x")
