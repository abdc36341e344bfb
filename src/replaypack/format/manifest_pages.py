"""What a manifest keeps in pages where it grows too large: roots of tables, and its packs (spec chapters 05 and 06)."""

from __future__ import annotations

import base64
import binascii

from replaypack.errors import FormatError

from .digests import SHORT_SIZE, digest
from .manifest_members import PACK_ENTRY, PackRef, PageRef, TableRef
from .table import Root, TableShape

__all__ = ["encode_pack_page", "inline_root", "parse_pack_page", "read_root"]


def inline_root(root: Root) -> TableRef:
    """A table reference whose root stands in the manifest."""
    return TableRef(count=root.count, root=base64.b64encode(root.encode()).decode(), page=None)


def read_root(shape: TableShape, ref: TableRef, page: bytes | None, *, where: str) -> Root:
    """Decode the root of ``ref``; ``page`` is the decompressed root page where it has one."""
    if ref.root is None:
        if page is None or ref.page is None:
            raise FormatError(f"the root page of {shape.name} is missing", where=where)
        if len(page) != ref.page.raw or digest(page)[:SHORT_SIZE].hex() != ref.page.digest:
            raise FormatError(f"the root page of {shape.name} does not match its digest", where=where)
        data = page
    else:
        try:
            data = base64.b64decode(ref.root, validate=True)
        except (binascii.Error, ValueError):
            raise FormatError(f"the root of {shape.name} is not base64", where=where) from None
    return Root.parse(shape, ref.count, data, where=where)


def encode_pack_page(packs: list[PackRef]) -> bytes:
    """Return a page of packs before compression: ``digest (32) ‖ size (4)`` a pack."""
    return b"".join(PACK_ENTRY.pack(bytes.fromhex(pack.digest), pack.size) for pack in packs)


def parse_pack_page(ref: PageRef, raw: bytes, *, where: str) -> list[PackRef]:
    """Check and decode a page of packs."""
    if len(raw) != ref.raw or digest(raw)[:SHORT_SIZE].hex() != ref.digest or len(raw) % PACK_ENTRY.size:
        raise FormatError("a page of packs does not match its digest", where=where)
    packs = [PackRef(name.hex(), size) for name, size in PACK_ENTRY.iter_unpack(raw)]
    if not all(pack.size for pack in packs):
        raise FormatError("a page of packs names an empty pack", where=where)
    return packs
