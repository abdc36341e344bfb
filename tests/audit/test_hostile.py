"""What audits and maintenance make of archives of somebody who wants them to fail, or to do harm elsewhere."""

from __future__ import annotations

import json
import time
from datetime import timedelta

import msgspec
import pytest

from replaypack import Archive
from replaypack.audit import MAX_PROOF, check_proof, compact, copy, gc, purge, salvage
from replaypack.canonical import canonical_json
from replaypack.errors import FormatError, ObjectMissingError, ReplaypackError
from replaypack.format.catalog import CATALOG
from replaypack.format.digests import digest
from replaypack.format.dsse import MAX_ENVELOPE, parse_envelope
from replaypack.format.frame import Compressor
from replaypack.format.manifest import Manifest, encode_manifest, parse_manifest
from replaypack.format.manifest_members import PackRef
from replaypack.format.marks import MARKS
from replaypack.format.names import latest_key, pack_key_of, revision_key, signature_key
from replaypack.format.pack import TRAILER_SIZE
from replaypack.storage import MemoryStorage
from tests.archive.test_hostile import MIB, Forge, peak
from tests.support.operations import BYSTANDER, bystander, clone, is_whole, operate

pytestmark = pytest.mark.once


def newest(store: MemoryStorage, name: str = "x") -> Manifest:
    return parse_manifest(store.get(latest_key(name)))


def put(store: MemoryStorage, name: str, manifest: Manifest) -> None:
    store.put(revision_key(name, manifest.storage.revision), manifest.raw)
    store.put(latest_key(name), manifest.raw)


def beside(store: MemoryStorage) -> MemoryStorage:
    """The same archive with the bystander in it."""
    both = clone(store)
    both._space.objects.update(bystander()._space.objects)
    return both


def small() -> MemoryStorage:
    forge = Forge()
    return forge.finish([forge.records([forge.row(0), forge.row(1)])], inlines=4)


# Copies


def test_naming_a_pack_is_not_having_it() -> None:
    """A recording of another archive that lists a pack of this one does not get its bytes."""
    source = MemoryStorage()
    theirs = newest(bystander(), BYSTANDER)
    content = msgspec.structs.replace(theirs.content, id="e" * 32)
    put(source, "x", encode_manifest(content, theirs.storage))
    target = clone(bystander())
    before = dict(target._space.objects)
    with pytest.raises(ObjectMissingError):
        copy(Archive("", storage=source), Archive("", storage=target), ["x"])
    assert target._space.objects == before
    for ref in theirs.storage.packs:  # something of that name and size, with the same end
        data = bystander().get(pack_key_of(ref.digest))
        source.put(pack_key_of(ref.digest), bytes(ref.size - TRAILER_SIZE) + data[-TRAILER_SIZE:])
    with pytest.raises(ReplaypackError):
        copy(Archive("", storage=source), Archive("", storage=target), ["x"])
    assert {key for key in target._space.objects if key.startswith("recordings/x/")} == set()
    source._space.objects.update(bystander()._space.objects)
    assert copy(Archive("", storage=source), Archive("", storage=target), ["x"]).reused


def test_signatures_without_end() -> None:
    store = small()
    content = newest(store).content_digest
    store.put(signature_key("x", content, "f" * 64), bytes(MAX_ENVELOPE + 1))
    for number in range(1100):
        store.put(signature_key("x", content, f"{number:016x}" + "0" * 48), b"{}")
    target = MemoryStorage()
    [copied] = copy(Archive("", storage=store), Archive("", storage=target), ["x"]).recordings
    assert copied.signatures == 1000
    assert copied.note is not None
    assert max(info.size for info in target.list()) < MAX_ENVELOPE


@pytest.mark.parametrize("name", ["../x", "..", "a/../../x", "/etc/x", "C:\\x", "a//b", "."])
def test_names_lead_nowhere(name: str) -> None:
    """Keys that name no recording are none, whatever lies under them."""
    store = small()
    raw = store.get(latest_key("x"))
    for key in (f"recordings/{name}/latest.json", f"recordings/{name}/00000001.json"):
        store._space.objects[key] = (raw, time.time())
    archive = Archive("", storage=store)
    assert list(archive.recordings()) == ["x"]
    target = MemoryStorage()
    copy(archive, Archive("", storage=target))
    salvage(store, Archive("", storage=(rescued := MemoryStorage())))
    gc(archive, grace=timedelta(), apply=True)
    compact(archive)
    for found in (target, rescued):
        assert not [info.key for info in found.list() if ".." in info.key or "etc" in info.key or "C:" in info.key]
    assert store._space.objects[f"recordings/{name}/latest.json"][0] == raw


# Collecting


@pytest.mark.parametrize("lie", ["everything", "nothing", "unreadable", "pages"])
def test_manifests_that_lie_about_what_they_need(lie: str) -> None:
    store = beside(small())
    old = newest(store)
    packs = [PackRef(info.key[9:-4], info.size) for info in store.list("packs/")]
    packs += [PackRef(f"{number:064x}", 100) for number in range(1000)]
    if lie == "everything":
        put(store, "y", encode_manifest(old.content, msgspec.structs.replace(old.storage, packs=packs)))
    elif lie == "nothing":
        empty = msgspec.structs.replace(old.content, records=0, counts={}, merkle_root=digest(b"").hex())
        section = msgspec.structs.replace(old.storage, packs=[], segments=[], merkle_edge=[], literals=0, inlines=0)
        put(store, "y", encode_manifest(empty, section))
    elif lie == "unreadable":
        store.put(revision_key("y", 1), b"{" * 1000)
    else:
        [ref] = old.storage.packs
        page = {"pack": ref.digest, "offset": 24, "length": 50, "raw": 36, "digest": "0" * 32}
        document = json.loads(old.raw)
        document["storage"]["pack_pages"] = [page]
        document["storage"]["packs"] = []
        del document["digest"]
        text = canonical_json(document)
        store.put(revision_key("y", 1), canonical_json({**document, "digest": digest(text).hex()}))
    for _ in range(2):
        gc(Archive("", storage=store), keep_last=1, grace=timedelta(), apply=True)
    assert is_whole(store)
    assert len(Archive("", storage=store).open("x")) == 2


@pytest.mark.parametrize(
    "times",
    ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "99999-01-01T00:00:00Z", "-1", "1e400", "2025-01-01"],
)
def test_marks_of_any_time(times: str) -> None:
    """Marks are believed for times only: what something refers to stays, and no time breaks a run."""
    store = beside(small())
    orphan = pack_key_of("ab" * 32)
    store.put(orphan, b"x")
    keys = [info.key for info in store.list("packs/")]
    document = {"format": "replaypack-gc", "new": [], "run": 1 << 62, "since": {times: keys}, "version": 1}
    store.put(MARKS, json.dumps(document).encode())
    for _ in range(3):
        gc(Archive("", storage=store), apply=True)
        assert is_whole(store)
    assert store.get(orphan) == b"x", "it was written a moment ago"


# Purging


def test_a_recording_with_the_id_of_another() -> None:
    """Purging it takes nothing of the other."""
    forge = Forge()
    store = beside(
        forge.finish([forge.records([forge.row(0)])], content={"id": newest(bystander(), BYSTANDER).content.id})
    )
    for keep in (False, True):
        try:
            purge(Archive("", storage=store), "x", [0], "why", keep_shared=keep)
        except ReplaypackError:
            pass
        assert is_whole(store)


def test_a_recording_that_names_the_packs_of_another() -> None:
    store = beside(small())
    theirs = newest(store, BYSTANDER)
    mine = newest(store)
    content = msgspec.structs.replace(theirs.content, id=mine.content.id)
    for name, body in (("y", content), ("z", theirs.content)):
        put(store, name, encode_manifest(body, theirs.storage))
        for keep in (False, True):
            try:
                purge(Archive("", storage=store), name, [0, 3], "why", keep_shared=keep)
            except ReplaypackError:
                pass
            assert is_whole(store)


# Lies of the storage section


def test_what_is_withheld_or_copied_by_its_own_word() -> None:
    store = small()
    old = newest(store)
    for changes in (
        {"withheld": ["identity", "request"], "source": {"manifest": "0" * 64, "policy": "responses-only"}},
        {"withheld": ["identity", "request"]},
        {"source": {"manifest": old.digest, "policy": "whole"}, "cause": "copy"},
        {"tombstones": [{"time": "9999-12-31T23:59:59Z", "reason": "\x1b[31m", "records": [[0, "0" * 64]]}]},
        {"tombstones": [{"time": "0001-01-01T00:00:00Z", "reason": "r", "records": [[0, "0" * 64], [1, "1" * 64]]}]},
        {"tombstones": [{"time": "2025-06-15T15:06:40Z", "reason": "r", "records": [[0, "0" * 64]]}] * 2},
    ):
        document = json.loads(old.raw)
        document["storage"] |= changes
        del document["digest"]
        raw = canonical_json({**document, "digest": digest(canonical_json(document)).hex()})
        lying = clone(store)
        lying.put(revision_key("x", 1), raw)
        lying.put(latest_key("x"), raw)
        assert peak(lambda lying=lying: operate(lying)) < 64 * MIB


# Documents


def test_proofs_without_end() -> None:
    good = json.loads(canonical_json({"path": []}))
    for proof in (
        canonical_json({**good, "path": ["0" * 64] * 400_000, "format": "replaypack", "version": 1}),
        b"[" * 1_000_000,
        b'{"a":' * 100_000,
        b" " * (MAX_PROOF + 1),
    ):

        def check(proof: bytes = proof) -> None:
            with pytest.raises(FormatError):
                check_proof(proof, "0" * 64)

        assert peak(check) < 256 * MIB


def test_envelopes_of_nested_json() -> None:
    for envelope in (b"[" * MAX_ENVELOPE, b'{"payload":' * 90_000, b'{"a":' + b"9" * 1_000_000 + b"}"):

        def check(envelope: bytes = envelope) -> None:
            with pytest.raises(FormatError):
                parse_envelope(envelope)

        assert peak(check) < 64 * MIB


def test_catalogs_of_air() -> None:
    head = b'{"created":"2025-06-15T15:06:40Z","format":"replaypack-catalog","recordings":60000000,"version":1}\n'
    line = {
        "bytes": 0, "cause": "seal", "content": "", "counts": {}, "manifest": "", "name": "a", "recorded_by": "",
        "records": 0, "revision": 1, "started": "", "state": "sealed",
    }  # fmt: skip
    for body in (b"\n" * 60_000_000, json.dumps({**line, "more": [[]] * 10_000_000}).encode() + b"\n"):
        store = MemoryStorage()
        store.put(CATALOG, Compressor()(head + body))

        def read(store: MemoryStorage = store) -> None:
            with pytest.raises(FormatError):
                _ = Archive("", storage=store).manifests.catalog()

        assert peak(read) < 256 * MIB
