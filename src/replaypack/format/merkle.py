"""The Merkle tree over a recording's rows: RFC 9162's shape with BLAKE3-256 (spec chapter 01, "Merkle tree").

leaf = BLAKE3(0x00 ‖ row), node = BLAKE3(0x01 ‖ left ‖ right), the root of no rows = BLAKE3 of nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from replaypack.errors import FormatError

from .digests import DIGEST_SIZE, digest, digests

__all__ = [
    "MerkleTree",
    "audit_path",
    "audit_path_ranges",
    "edge_sizes",
    "leaf_hash",
    "leaf_hashes",
    "leaves_needed",
    "merkle_root",
    "node_hash",
    "root_of_path",
]


def leaf_hash(row: bytes) -> bytes:
    """Return the leaf of one row (32 bytes)."""
    return digest(b"\0" + row)


def leaf_hashes(rows: Iterable[bytes]) -> list[bytes]:
    """Return the leaf of each of several rows."""
    return digests([b"\0" + row for row in rows])


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

    def add_all(self, leaves: Sequence[bytes]) -> None:
        """Add the leaves (32 bytes each) of the next records, in order."""
        edge, left, nodes = self._edge, self.count, list(leaves)
        self.count += len(nodes)
        rest: list[bytes] = []
        # One level after another: what has no sibling yet stays on the edge.
        while nodes:
            if left & 1:
                nodes.insert(0, edge.pop())
            if len(nodes) & 1:
                rest.append(nodes.pop())
            nodes = digests([b"\1" + a + b for a, b in zip(nodes[::2], nodes[1::2], strict=True)])
            left >>= 1
        edge += reversed(rest)

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


# Inclusion proofs (spec chapter 09): RFC 9162, section 2.1.3, the sibling next to the leaf first


def audit_path_ranges(number: int, count: int) -> list[tuple[int, int]]:
    """Return the leaves [first, end) under each node of the audit path of leaf ``number`` among ``count``."""
    ranges, first, size = [], 0, count
    while size > 1:
        left = 1 << (size - 1).bit_length() - 1
        if number < first + left:
            ranges.append((first + left, first + size))
            size = left
        else:
            ranges.append((first, first + left))
            first += left
            size -= left
    return ranges[::-1]


def leaves_needed(number: int, count: int) -> tuple[int, int]:
    """Return the leaves [first, end) that the audit path of leaf ``number`` needs: the right edge has the others."""
    first = 0
    for size in edge_sizes(count):
        if number < first + size:
            return first, first + size
        first += size
    raise ValueError(f"there is no leaf {number} among {count}")


def audit_path(number: int, count: int, edge: Sequence[bytes], leaves: Iterable[bytes]) -> tuple[bytes, list[bytes]]:
    """Return leaf ``number`` and its audit path in the tree of ``count`` leaves with the right edge ``edge``.

    ``leaves`` are those that `leaves_needed` names, in order; a few nodes are held, not all of them. Raises
    `FormatError` where there are fewer.
    """
    first, end = leaves_needed(number, count)
    source = iter(leaves)
    own = b""
    nodes: dict[tuple[int, int], bytes] = {}
    inner = sorted(item for item in audit_path_ranges(number, count) if first <= item[0] and item[1] <= end)
    for low, high in sorted([*inner, (number, number + 1)]):
        tree = MerkleTree()
        for _ in range(low, high):
            leaf = next(source, None)
            if leaf is None:
                raise FormatError(f"the leaves from {first} to {end - 1} are not all there")
            tree.add(leaf)
        if low == number:
            own = tree.root
        else:
            nodes[low, high] = tree.root
    starts = [sum(edge_sizes(count)[:at]) for at in range(len(edge))]
    for low, high in audit_path_ranges(number, count):
        if (low, high) not in nodes:
            part = MerkleTree(high - low, [node for at, node in zip(starts, edge, strict=True) if low <= at < high])
            nodes[low, high] = part.root
    return own, [nodes[item] for item in audit_path_ranges(number, count)]


def root_of_path(leaf: bytes, number: int, count: int, path: Sequence[bytes]) -> bytes:
    """Return the root that ``leaf``, as number ``number`` of ``count``, has with the audit path ``path``.

    Raises `FormatError` where the path is not as long as it must be.
    """
    if not 0 <= number < count:
        raise FormatError(f"there is no leaf {number} among {count}")
    ranges = audit_path_ranges(number, count)
    if len(path) != len(ranges):
        raise FormatError(f"an audit path of {len(path)} nodes does not fit leaf {number} of {count}")
    node = leaf
    for (first, _), sibling in zip(ranges, path, strict=True):
        node = node_hash(sibling, node) if first < number else node_hash(node, sibling)
    return node
