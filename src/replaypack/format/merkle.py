"""The Merkle tree over a recording's rows: RFC 9162's shape with BLAKE3-256 (spec chapter 01, "Merkle tree").

leaf = BLAKE3(0x00 ‖ row), node = BLAKE3(0x01 ‖ left ‖ right), the root of no rows = BLAKE3 of nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from replaypack.errors import FormatError

from .digests import DIGEST_SIZE, digest

__all__ = ["MerkleTree", "edge_sizes", "leaf_hash", "merkle_root", "node_hash"]


def leaf_hash(row: bytes) -> bytes:
    """Return the leaf of one row (32 bytes)."""
    return digest(b"\0" + row)


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the node over two children (32 bytes)."""
    return digest(b"\1" + left + right)


def edge_sizes(count: int) -> list[int]:
    """Sizes, largest first, of the whole subtrees that a tree of ``count`` leaves consists of."""
    return [1 << bit for bit in range(count.bit_length() - 1, -1, -1) if count >> bit & 1]


class MerkleTree:
    """Grows leaf by leaf and keeps only its right edge: one hash a set bit of the count, largest subtree first."""

    __slots__ = ("_edge", "count")

    def __init__(self, count: int = 0, edge: Sequence[bytes] = ()) -> None:
        if len(edge) != count.bit_count() or any(len(node) != DIGEST_SIZE for node in edge):
            raise FormatError(f"a Merkle edge of {len(edge)} nodes does not fit {count} records")
        self.count = count
        self._edge = list(edge)

    def add(self, leaf: bytes) -> None:
        """Add the leaf (32 bytes) of the next record."""
        edge = self._edge
        count = self.count
        while count & 1:
            leaf = node_hash(edge.pop(), leaf)
            count >>= 1
        edge.append(leaf)
        self.count += 1

    @property
    def edge(self) -> tuple[bytes, ...]:
        """The right edge, from which the tree can be continued later."""
        return tuple(self._edge)

    @property
    def root(self) -> bytes:
        """The Merkle tree hash of the leaves added so far (32 bytes)."""
        if not self._edge:
            return digest(b"")
        node = self._edge[-1]
        for left in reversed(self._edge[:-1]):
            node = node_hash(left, node)
        return node


def merkle_root(leaves: Iterable[bytes]) -> bytes:
    """Return the root over ``leaves`` (32 bytes each)."""
    tree = MerkleTree()
    for leaf in leaves:
        tree.add(leaf)
    return tree.root
