"""Scalar functions of predicates, computed by Arrow for a block at once: ``abs``, ``lower``, ``hour`` and their kin.

NULL in, NULL out.  Integers of fewer bits become int64 first, so that only the least int64 is its own ``abs``, as in
Arrow; floats become float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.columnar.columns import DECIMAL, FLOAT, INTEGER, MOMENT, Block, is_string, kind_of, plain_texts
from cer_gpu.columnar.dictionaries import same_memory

MOST_DIGITS = 15
"""Most digits after the point that `round` keeps: more are not exact in a float64."""

_WHOLE = 2.0**52
"""Floats from here on are whole numbers."""

Compute = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True)
class Function:
    """A function of one value, and perhaps of a number of digits.

    Attributes
    ----------
    expected : str
        Values that it takes, for messages.
    takes : callable
        True for a type of its values.
    gives : callable
        Type of the result, from that of the values.
    most_operands : int
    """

    expected: str
    takes: Callable[[pa.DataType], bool]
    gives: Callable[[pa.DataType], pa.DataType]
    most_operands: int = 1

    @property
    def of_text(self) -> bool:
        """True if it is computed once for each distinct text."""
        return self.takes(pa.string())


def _number(data_type: pa.DataType) -> pa.DataType:
    """Return the type in which a number is computed."""
    if pa.types.is_signed_integer(data_type):
        return pa.int64()
    if pa.types.is_floating(data_type):
        return pa.float64()
    if pa.types.is_decimal(data_type) and data_type.byte_width < 16:
        return pa.decimal128(data_type.precision, data_type.scale)
    return data_type


def _rounded(data_type: pa.DataType) -> pa.DataType:
    """Return the type of a rounded number: a decimal may have one digit more."""
    if not pa.types.is_decimal(data_type):
        return _number(data_type)
    digits, scale = data_type.precision + 1, data_type.scale
    return pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(min(digits, 76), scale)


def _is_number(data_type: pa.DataType) -> bool:
    return kind_of(data_type) in (INTEGER, FLOAT, DECIMAL) and not pa.types.is_duration(data_type)


def _is_date(data_type: pa.DataType) -> bool:
    return kind_of(data_type) == MOMENT and not pa.types.is_time(data_type)


def _int64(_: pa.DataType) -> pa.DataType:
    return pa.int64()


FUNCTIONS: dict[str, Function] = {
    "abs": Function("a number or a duration", lambda t: kind_of(t) in (INTEGER, FLOAT, DECIMAL), _number),
    "round": Function("a number", _is_number, _rounded, most_operands=2),
    "lower": Function("a text", is_string, lambda _: pa.large_string()),
    "upper": Function("a text", is_string, lambda _: pa.large_string()),
    "length": Function("a text", is_string, _int64),
    "hour": Function(
        "a timestamp or a time of day",
        lambda t: kind_of(t) == MOMENT and not pa.types.is_date(t),
        _int64,
    ),
    "day": Function("a timestamp or a date", _is_date, _int64),
    "weekday": Function("a timestamp or a date", _is_date, _int64),
}
"""The functions by name; hours, days and weekdays (0 is Monday) are those of the time zone of a timestamp."""


def compute(function: str, digits: int, data_type: pa.DataType) -> Compute:
    """Return the function of an array without a dictionary whose values have this type.

    Parameters
    ----------
    function
        Name in `FUNCTIONS`.
    digits
        Digits after the point, of `round`.
    data_type
    """
    match function:
        case "abs":
            return lambda values: pc.abs(values.cast(_number(data_type)))
        case "round" if pa.types.is_integer(data_type):
            return lambda values: values.cast(_number(data_type))
        case "round" if pa.types.is_floating(data_type):
            return partial(_round_floats, digits=digits)
        case "round":
            return lambda values: pc.round(values.cast(_rounded(data_type)), min(digits, max(0, data_type.scale)))
        case "lower":
            return lambda values: pc.utf8_lower(plain_texts(values)).cast(pa.large_string())
        case "upper":
            return lambda values: pc.utf8_upper(plain_texts(values)).cast(pa.large_string())
        case "length":
            return lambda values: pc.utf8_length(plain_texts(values)).cast(pa.int64())
        case _:
            part = {"hour": pc.hour, "day": pc.day, "weekday": pc.day_of_week}[function]
            return lambda values: part(values).cast(pa.int64())


def _round_floats(values: pa.Array, digits: int) -> pa.Array:
    """Round floats, half to even; Arrow refuses large ones, which are whole."""
    values = values.cast(pa.float64())
    small = pc.less(pc.abs(values), _WHOLE)
    return pc.if_else(small, pc.round(pc.if_else(small, values, 0.0), digits), values)


class OfTexts:
    """A function of texts over the blocks of a stream: computed once for each value of a dictionary.

    Parameters
    ----------
    column
        Name of the column.
    function
    """

    def __init__(self, column: str, function: Compute) -> None:
        self._column, self._function = column, function
        self._values: pa.Array | None = None  # kept alive, so that no other array gets its address
        self._made: pa.Array | None = None

    def __call__(self, block: Block) -> pa.Array:
        """Return the results of a block, texts as a dictionary."""
        array = block.column(self._column)
        if pa.types.is_dictionary(array.type):
            codes, values = array.indices, array.dictionary
        else:
            coded, valid = block.coded(self._column), block.valid(self._column)
            codes, values = pa.array(coded.codes, mask=None if valid is None else ~valid), coded.values
        if self._made is None or self._values is None or not same_memory(values, self._values):
            self._made, self._values = self._function(values), values
        if is_string(self._made.type):
            return pa.DictionaryArray.from_arrays(codes, self._made)
        return self._made.take(codes)
