"""Comparing bytes from a place on, in few steps: slices are compared in C, ever longer ones, then ever shorter."""

from __future__ import annotations

__all__ = ["same_beginning", "same_end"]


def same_beginning(a: bytes, b: bytes, i: int, j: int, limit: int) -> int:
    """How many bytes of ``a`` from ``i`` and of ``b`` from ``j`` on are equal, ``limit`` at most."""
    done, step = 0, 64
    while done < limit:
        step = min(step, limit - done)
        if a[i + done : i + done + step] == b[j + done : j + done + step]:
            done += step
            step *= 4
        elif step <= 8:
            while done < limit and a[i + done] == b[j + done]:
                done += 1
            return done
        else:
            step //= 4
    return done


def same_end(a: bytes, b: bytes, i: int, j: int, limit: int) -> int:
    """How many bytes of ``a`` before ``i`` and of ``b`` before ``j`` are equal, ``limit`` at most."""
    done, step = 0, 64
    while done < limit:
        step = min(step, limit - done)
        if a[i - done - step : i - done] == b[j - done - step : j - done]:
            done += step
            step *= 4
        elif step <= 8:
            while done < limit and a[i - done - 1] == b[j - done - 1]:
                done += 1
            return done
        else:
            step //= 4
    return done
