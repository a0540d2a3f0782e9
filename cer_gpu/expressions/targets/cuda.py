"""Target CUDA: statements of C++ over one ``row``, by calls of device functions in `kernels/`.

All inputs are read through their places in one array of 64-bit numbers, `in`: addresses in device memory, first bits,
constants and last entries of tables.  The kernels of all queries therefore have the same arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cer_gpu.expressions import terms as t
from cer_gpu.expressions.targets.source import TermWriter

TYPES = {
    "i1": "cer_i8",
    "i2": "cer_i16",
    "i4": "cer_i32",
    t.I8: "cer_i64",
    "u1": "cer_u8",
    "u2": "cer_u16",
    "u4": "cer_u32",
    t.U8: "cer_u64",
    "f4": "cer_f32",
    t.F8: "cer_f64",
    t.WIDE: "cer_wide",
    TermWriter.TRUTH: "bool",
}
_CONSTANTS = {
    t.I8: "static_cast<cer_i64>(in[{place}])",
    t.U8: "in[{place}]",
    t.F8: "cer_f64_of_bits(in[{place}])",
    t.WIDE: "cer_wide_of(in[{place}], in[{place} + 1])",
}


@dataclass(frozen=True)
class Places:
    """Places of the inputs of a program, or of sides of filters, in the array `in`.

    Attributes
    ----------
    columns : dict from slot to int
        First of four places: the address of the values, the bit of the first value (of packed booleans), the address of
        the validity bits (0: no row is NULL), and the first row's bit among these.
    constants : dict from Constant to int
        Place of the number itself, or of the bits of a float64; first of two places for the halves of a wide integer.
    tables : dict from str or int to int
        First of two places, for ``"types"``, ``"streams"`` and the slots of tables: the address, and the last entry.
    external : dict from slot to int
        Place of the address of an external result (one byte for each row).
    size : int
        Length of the array.
    """

    columns: dict[int, int]
    constants: dict[t.Constant, int]
    tables: dict[str | int, int]
    external: dict[int, int]
    size: int


def places(
    columns: Iterable[t.Column],
    terms: Iterable[t.Value | t.BoundPredicate],
    tables: Sequence[str | int],
    external: Sequence[int],
) -> Places:
    """Assign a place to each column, to each constant in some terms, to each table and to each result."""
    size = 0

    def taken(n: int) -> int:
        nonlocal size
        size += n
        return size - n

    constants = dict.fromkeys(part for term in terms for part in t.parts(term) if isinstance(part, t.Constant))
    return Places(
        {column.slot: taken(4) for column in columns},
        {constant: taken(2 if constant.dtype == t.WIDE else 1) for constant in constants},
        {name: taken(2) for name in tables},
        {slot: taken(1) for slot in external},
        size,
    )


class CudaWriter(TermWriter):
    """Writer for CUDA; a truth is a bool.

    Parameters
    ----------
    places
        Places of all that the terms read.
    """

    TARGET = "cuda"
    ZERO = "cer_i64(0)"
    WIDE_ZERO = "cer_wide_of(0, 0)"

    def __init__(self, places: Places) -> None:
        super().__init__()
        self._places = places

    def _assign_name(self, key: object, kind: str, expression: str) -> str:
        self._names[key] = name = f"x{len(self._names)}"
        self._lines.append(f"const {TYPES[kind]} {name} = {expression};")
        return name

    def _constant_source(self, term: t.Constant) -> str:
        return _CONSTANTS[term.dtype].format(place=self._places.constants[term])

    def _column_source(self, term: t.Column) -> str:
        place = self._places.columns[term.slot]
        if term.stored == t.BIT:
            return f"cer_bit(in[{place}], static_cast<cer_i64>(in[{place + 1}]) + row)"
        index = "row" if term.stride == 1 else f"row * {term.stride}"
        return f"cer_load<{TYPES[term.stored]}>(in[{place}], {index})"

    def _convert_source(self, term: t.ToFloat | t.ToWide, operand: str) -> str:
        if isinstance(term, t.ToWide):
            return f"cer_widened({operand}, {term.factor}LL)"
        return f"cer_to_f64({operand})"

    def _valid_name(self, column: t.Column) -> str:
        key, place = ("valid", column.slot), self._places.columns[column.slot]
        valid = f"cer_is_valid(in[{place + 2}], static_cast<cer_i64>(in[{place + 3}]), row)"
        return self._names.get(key) or self._assign_name(key, self.TRUTH, valid)

    def _looked_up(self, term: t.Lookup) -> str:
        return f"cer_load<cer_u8>(in[{self._places.tables[term.table]}], {self._entry(term.codes, term.table)}) != 0"

    def _entry(self, column: t.Column, table: str | int) -> str:
        """Return the name of the index at which to read a table."""
        key = ("entry", column.slot, table)
        if key in self._names:
            return self._names[key]
        code, last = f"static_cast<cer_u64>({self._value_name(column)})", f"in[{self._places.tables[table] + 1}]"
        return self._assign_name(key, t.I8, f"cer_entry({code}, {self._valid_name(column)}, {last})")

    def _external_truth(self, term: t.ExternalPredicate) -> str:
        return f"cer_load<cer_u8>(in[{self._places.external[term.slot]}], row) != 0"

    def _truth(self, holds: bool) -> str:
        return "true" if holds else "false"

    def _negation(self, truth: str) -> str:
        return f"!{truth}"

    def _join_truths(self, truths: Sequence[str], every: bool) -> str:
        return (" && " if every else " || ").join(truths)
