"""Freed memory that the C library keeps for the next step instead of giving it back to the system."""

import ctypes

MALLOC_TRIM, MALLOC_MMAP = -1, -3
"""Parameters of glibc's `mallopt`: bytes of free memory that it keeps, and of the smallest block that is
mapped by itself."""
KEPT_BYTES = 1 << 30


def keep_freed_memory() -> None:
    """Makes the C library keep freed memory for the next step. By default it gives large blocks back to the
    system, which clears each of their pages again when the next step touches it. Other libraries than glibc
    are left as they are."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(MALLOC_TRIM, KEPT_BYTES)
        mallopt(MALLOC_MMAP, KEPT_BYTES)
