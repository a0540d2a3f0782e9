"""Saturating numbers of matches, uint64: a count is exact, or seen to be too large.

Results beyond the largest number become that number; zero times any number is zero.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import helper

_U = np.uint64
_MAX_UNSIGNED = np.uint64(0xFFFFFFFFFFFFFFFF)
_HALF = np.uint64(0xFFFFFFFF)

MAX_SIGNED = np.uint64(0x7FFFFFFFFFFFFFFF)
"""The largest count that int64 holds."""


@helper
def plus(a, b):
    """Return the sum of two numbers."""
    total = a + b
    return total if total >= a else _MAX_UNSIGNED


@helper
def times(a, b):
    """Return the product of two numbers."""
    if (a | b) <= _HALF:
        product = a * b
    elif a == _U(0) or b == _U(0):
        product = _U(0)
    elif a > _MAX_UNSIGNED // b:
        product = _MAX_UNSIGNED
    else:
        product = a * b
    return product
