"""Ed25519 (RFC 8032, section 5.1) in plain integers: slow, not safe for real keys, and in need of nothing."""

from __future__ import annotations

from hashlib import sha512

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT = pow(2, (P - 1) // 4, P)
Point = tuple[int, int]


def add(a: Point, b: Point) -> Point:
    (x1, y1), (x2, y2) = a, b
    t = D * x1 * x2 * y1 * y2 % P
    return (x1 * y2 + x2 * y1) * pow(1 + t, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - t, -1, P) % P


def times(number: int, point: Point) -> Point:
    result = (0, 1)
    while number:
        if number & 1:
            result = add(result, point)
        point = add(point, point)
        number >>= 1
    return result


def point_of(data: bytes) -> Point | None:
    y = int.from_bytes(data, "little")
    odd, y = y >> 255, y & (1 << 255) - 1
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT % P
    if y >= P or (x * x - square) % P or (not x and odd):
        return None
    return (P - x if x & 1 != odd else x), y


def bytes_of(point: Point) -> bytes:
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def number_of(*parts: bytes) -> int:
    return int.from_bytes(sha512(b"".join(parts)).digest(), "little")


BASE = point_of((4 * pow(5, -1, P) % P).to_bytes(32, "little")) or (0, 0)


def secret_of(seed: bytes) -> tuple[int, bytes]:
    head = sha512(seed).digest()
    return int.from_bytes(head[:32], "little") & (1 << 254) - 8 | 1 << 254, head[32:]


def public_key(seed: bytes) -> bytes:
    return bytes_of(times(secret_of(seed)[0], BASE))


def sign(seed: bytes, message: bytes) -> bytes:
    secret, prefix = secret_of(seed)
    nonce = number_of(prefix, message) % L
    r = bytes_of(times(nonce, BASE))
    return r + ((nonce + number_of(r, public_key(seed), message) * secret) % L).to_bytes(32, "little")


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    s = int.from_bytes(signature[32:], "little")
    key, r = point_of(public), point_of(signature[:32])
    if len(signature) != 64 or s >= L or key is None or r is None:
        return False
    return times(s, BASE) == add(r, times(number_of(signature[:32], public, message) % L, key))
