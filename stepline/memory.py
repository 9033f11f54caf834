"""Memory that was freed, given back to the system."""

import ctypes


def give_back() -> None:
    """Return freed memory to the system, where the C library can (glibc); elsewhere do nothing.

    glibc keeps what several threads freed, so that a long video would hold the recogniser's memory to its end.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # not glibc: macOS, musl, Windows
        return
    trim(0)
