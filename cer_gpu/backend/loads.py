"""Loads from addresses: columns of Arrow, of any number and of any layout, as one table of addresses."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from cer_gpu.backend.jit import helper


def _loading(bits: int, *, signed: bool = False, floating: bool = False) -> Any:
    """Return a function that loads a number from an address: as int64, uint64 or, from floats, float64."""
    result = types.float64 if floating else types.int64 if signed else types.uint64

    def load(typing: Any, address: Any) -> Any:

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            stored = (ir.FloatType() if bits == 32 else ir.DoubleType()) if floating else ir.IntType(bits)
            value = builder.load(builder.inttoptr(arguments[0], stored.as_pointer()), align=1)
            if floating:
                return value if bits == 64 else builder.fpext(value, ir.DoubleType())
            if bits == 64:
                return value
            return (builder.sext if signed else builder.zext)(value, ir.IntType(64))

        return result(types.uint64), generate

    return intrinsic(load)


load_u1, load_u2, load_u4, load_u8 = (_loading(bits) for bits in (8, 16, 32, 64))
load_i1, load_i2, load_i4, load_i8 = (_loading(bits, signed=True) for bits in (8, 16, 32, 64))
load_f4, load_f8 = (_loading(bits, floating=True) for bits in (32, 64))


def _bits_of(typing: Any, number: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.uint64(types.float64), generate


bits_of: Any = intrinsic(_bits_of)
"""``bits_of(number)`` gives the 64 bits of a float64."""


@helper
def bit_at(address, place):
    """Return a bit of a bitmap, least significant first; True if there is no bitmap (its address is 0)."""
    return address == 0 or load_u1(address + (place >> 3)) >> (place & 7) & 1 == 1
