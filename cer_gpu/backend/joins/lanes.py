"""Comparisons of one number with LANES neighbouring ones at once, as vectors of LLVM: a bit for each.

LLVM makes of them what the processor has; loops over arrays that would become such vectors do not where they are short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

LANES = 16
"""Numbers that are compared together."""
ALL_LANES = (1 << LANES) - 1
"""The bits of all."""

_CHUNK = 4
"""Numbers of one vector: of longer ones, LLVM packs the results of each comparison before it makes bits of them."""

_Generate = Callable[[Any, Any, Any, Any], Any]
_WORD, _NUMBER = ir.IntType(64), ir.IntType(32)


def _address(context: Any, builder: Any, kind: Any, value: Any, indices: Sequence[Any]) -> Any:
    """Return the address of a number of an array."""
    array = context.make_array(kind)(context, builder, value)
    address = builder.ptrtoint(array.data, _WORD)
    for axis, index in enumerate(indices):
        address = builder.add(address, builder.mul(builder.extract_value(array.strides, axis), index))
    return address


def _load(builder: Any, kind: Any, address: Any, chunk: int) -> Any:
    """Return a chunk of the numbers from an address on, as a vector."""
    vector = ir.VectorType(kind, _CHUNK)
    at = builder.add(address, ir.Constant(_WORD, 8 * _CHUNK * chunk))
    return builder.load(builder.inttoptr(at, vector.as_pointer()), align=8)


def _spread(builder: Any, number: Any) -> Any:
    """Return a vector of one number."""
    undefined = ir.Constant(ir.VectorType(number.type, _CHUNK), ir.Undefined)
    vector = builder.insert_element(undefined, number, ir.Constant(_NUMBER, 0))
    return builder.shuffle_vector(vector, undefined, ir.Constant(ir.VectorType(_NUMBER, _CHUNK), [0] * _CHUNK))


def _lane_bits(builder: Any, holds: Callable[[int], Any]) -> Any:
    """Return a word with a bit for each number, given a function that compares a chunk of them."""
    bits = ir.Constant(_WORD, 0)
    for chunk in range(LANES // _CHUNK):
        chunk_bits = builder.zext(builder.bitcast(holds(chunk), ir.IntType(_CHUNK)), _WORD)
        bits = builder.or_(bits, builder.shl(chunk_bits, ir.Constant(_WORD, _CHUNK * chunk)))
    return bits


def _beyond(n: int) -> Any:
    """Return a test of `n` columns: after the array, row and place, their numbers, their signs and their limits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, row, place = arguments[:3]
        columns, signs, limits = (arguments[3 + n * part : 3 + n * (part + 1)] for part in range(3))
        begins = [_address(context, builder, signature.args[0], array, (row, column, place)) for column in columns]
        flipped = [_spread(builder, sign) for sign in signs]
        limits_spread = [_spread(builder, limit) for limit in limits]

        def holds(chunk: int) -> Any:
            any_beyond = None
            for begin, sign, limit in zip(begins, flipped, limits_spread, strict=True):
                lanes = builder.xor(_load(builder, _WORD, begin, chunk), sign)
                beyond = builder.icmp_signed(">", lanes, limit)
                any_beyond = beyond if any_beyond is None else builder.or_(any_beyond, beyond)
            return any_beyond

        return _lane_bits(builder, holds)

    return generate


def _beyond_one(typing: Any, array: Any, row: Any, place: Any, c: Any, s: Any, y: Any) -> tuple[Any, _Generate]:
    return types.int64(array, *[types.int64] * 5), _beyond(1)


def _beyond_four(
    typing: Any, array: Any, row: Any, place: Any,
    c: Any, c1: Any, c2: Any, c3: Any, s: Any, s1: Any, s2: Any, s3: Any, y: Any, y1: Any, y2: Any, y3: Any,
) -> tuple[Any, _Generate]:  # fmt: skip
    return types.int64(array, *[types.int64] * 14), _beyond(4)


lanes_beyond: Any = intrinsic(_beyond_one)
"""``lanes_beyond(array, row, place, column, sign, limit)``: bits of the numbers of a column that are above a limit.

They begin at a place, and are exclusive-ored with `sign` before: -1 turns their order around.  `array` is of int64 and
three dimensions, the last contiguous; it goes on for LANES behind the place.
"""
lanes_beyond_one_of_four: Any = intrinsic(_beyond_four)
"""Bits of those of which one of four columns is above its limit: four columns, then four signs, then four limits."""


def _equal_lanes(typing: Any, array: Any, row: Any, place: Any, column: Any, number: Any) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        begin = _address(context, builder, signature.args[0], arguments[0], (arguments[1], arguments[3], arguments[2]))
        wanted = _spread(builder, arguments[4])
        return _lane_bits(builder, lambda chunk: builder.icmp_signed("==", _load(builder, _WORD, begin, chunk), wanted))

    return types.int64(array, *[types.int64] * 4), generate


lanes_equal: Any = intrinsic(_equal_lanes)
"""``lanes_equal(array, row, place, column, number)``: bits of those equal to a number."""


def _within(typing: Any, clocks: Any, row: Any, place: Any, clock: Any, length: Any) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        begin = _address(context, builder, signature.args[0], arguments[0], arguments[1:3])
        now, longest = _spread(builder, arguments[3]), _spread(builder, arguments[4])

        def holds(chunk: int) -> Any:
            lanes = _load(builder, arguments[3].type, begin, chunk)
            if clocks.dtype == types.float64:
                return builder.not_(builder.fcmp_ordered(">", builder.fsub(now, lanes), longest))
            return builder.icmp_unsigned("<=", builder.sub(now, lanes), longest)

        return _lane_bits(builder, holds)

    return types.int64(clocks, types.int64, types.int64, clocks.dtype, clocks.dtype), generate


lanes_within: Any = intrinsic(_within)
"""``lanes_within(clocks, row, place, clock, length)``: bits of the clocks that are at most a length before another."""


def _highest(typing: Any, bits: Any) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        zeros = builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))
        return builder.sub(ir.Constant(_WORD, 63), zeros)

    return types.int64(types.int64), generate


highest: Any = intrinsic(_highest)
"""``highest(bits)``: number of the highest bit that is set; -1 if none is."""


def _n_set(typing: Any, bits: Any) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


n_set: Any = intrinsic(_n_set)
"""``n_set(bits)``: how many bits are set."""
