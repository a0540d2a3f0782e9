"""Generator of CUDA C++ source from terms (`kernels/select.cuh` has the loop over the rows of a block).

The generated function makes the bit vector of one row by calls of device functions in `kernels/`.  As in
`cer_gpu.predicates.numba_source`, its text depends only on the tables below, on slots and on positions of bits.  It
finds all inputs by their places in one array of 64-bit numbers, `in`: addresses in device memory, first bits, constants
and last entries of tables.  The kernels of all queries therefore have the same arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cer_gpu.backend.kernel_source import read_kernel_source
from cer_gpu.predicates.numba_source import slots_of
from cer_gpu.predicates.terms import (
    F8,
    I8,
    IN_ORDER,
    U8,
    And,
    Arithmetic,
    Column,
    Compare,
    Constant,
    Fixed,
    Given,
    Known,
    Lookup,
    Negative,
    Or,
    Program,
    Sides,
    Test,
    ToFloat,
    ToInt64,
    Value,
    columns_in,
    divisors_in,
    parts,
)

_TYPES = {
    "i1": "cer_i8",
    "i2": "cer_i16",
    "i4": "cer_i32",
    I8: "cer_i64",
    "u1": "cer_u8",
    "u2": "cer_u16",
    "u4": "cer_u32",
    U8: "cer_u64",
    "f4": "cer_f32",
    F8: "cer_f64",
}
_ARITHMETIC = {"+": "cer_add", "-": "cer_sub", "*": "cer_mul", "/": "cer_div", "%": "cer_mod"}
_COMPARISONS = {"=": "cer_eq", "<>": "cer_ne", "<": "cer_lt", "<=": "cer_le", ">": "cer_gt", ">=": "cer_ge"}
_CONVERSIONS = {F8: "cer_to_f64", I8: "cer_to_i64"}
_CONSTANTS = {
    I8: "static_cast<cer_i64>(in[{place}])",
    U8: "in[{place}]",
    F8: "cer_f64_of_bits(in[{place}])",
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
        Place of the number itself, or of the bits of a float64.
    tables : dict from str or int to int
        First of two places, for ``"types"``, ``"streams"`` and the slots of tables: the address, and the last entry.
    given : dict from slot to int
        Place of the address of an answer (one byte) for each row.
    size : int
        Length of the array.
    """

    columns: dict[int, int]
    constants: dict[Constant, int]
    tables: dict[str | int, int]
    given: dict[int, int]
    size: int


def places_of(program: Program | Sides) -> Places:
    """Assign a place to each input of a program, or of sides of filters."""
    names: list[str | int] = []
    given: tuple[int, ...] = ()
    if isinstance(program, Sides):
        columns = program.columns
        every = (part for _, value in program.values for part in parts(value))
    else:
        slots = slots_of(program)
        columns, given = slots.columns, slots.given
        every = (part for _, test in program.tests for part in parts(test))
        codes = (("types", program.types), ("streams", program.streams))
        names += [name for name, column in codes if column is not None]
        names += slots.tables
    constants = dict.fromkeys(part for part in every if isinstance(part, Constant))
    first = 4 * len(columns)
    second = first + len(constants)
    third = second + 2 * len(names)
    return Places(
        {column.slot: 4 * k for k, column in enumerate(columns)},
        {constant: first + k for k, constant in enumerate(constants)},
        {name: second + 2 * k for k, name in enumerate(names)},
        {slot: third + k for k, slot in enumerate(given)},
        third + len(given),
    )


def struct_of(program: Program) -> str:
    """Return the generated struct ``cer_query`` of a program's kernels."""
    return "\n".join(_GuardWriter(program).struct()) + "\n"


def words_source_of(program: Program) -> str:
    """Return the source of the kernel ``cer_query_words`` of a program, which `kernels/select.cuh` documents."""
    words = read_kernel_source("query_words.cuh", without=["select.cuh"])
    return read_kernel_source("select.cuh") + struct_of(program) + words


def select_source_of(program: Program) -> str:
    """Return the source of a program's kernels ``cer_query_words`` and ``cer_query_select``."""
    return words_source_of(program) + read_kernel_source("query_select.cuh", without=["select.cuh"])


def sides_source_of(sides: Sides) -> str:
    """Return the source of the kernel ``cer_query_sides``, which `kernels/sides.cuh` documents."""
    struct = "\n".join(_SideWriter(sides).struct()) + "\n"
    return read_kernel_source("sides.cuh") + struct + read_kernel_source("query_sides.cuh", without=["sides.cuh"])


class _Writer:
    """Writer of one function of a struct; a term that occurs twice is computed once."""

    def __init__(self, program: Program | Sides) -> None:
        self._places = places_of(program)
        self._lines: list[str] = []
        self._names: dict[object, str] = {}

    def _named(self, key: object, kind: str, expression: str) -> str:
        self._names[key] = name = f"x{len(self._names)}"
        self._lines.append(f"const {kind} {name} = {expression};")
        return name

    def _value(self, term: Value) -> str:
        if term in self._names:
            return self._names[term]
        kind = _TYPES[term.dtype]
        match term:
            case Constant():
                return self._named(term, kind, _CONSTANTS[term.dtype].format(place=self._places.constants[term]))
            case Column(stored="bit"):
                place = self._places.columns[term.slot]
                first = f"static_cast<cer_i64>(in[{place + 1}])"
                return self._named(term, kind, f"cer_bit(in[{place}], {first} + row)")
            case Column():
                index = "row" if term.stride == 1 else f"row * {term.stride}"
                place = self._places.columns[term.slot]
                return self._named(term, kind, f"cer_load<{_TYPES[term.stored]}>(in[{place}], {index})")
            case ToFloat() | ToInt64():
                return self._named(term, kind, f"{_CONVERSIONS[term.dtype]}({self._value(term.operand)})")
            case Negative():
                return self._named(term, kind, f"cer_neg({self._value(term.operand)})")
            case Arithmetic():
                x, y = self._value(term.left), self._value(term.right)
                return self._named(term, kind, f"{_ARITHMETIC[term.op]}({x}, {y})")

    def _known(self, *terms: Value) -> list[str]:
        """Return the names of bools that are all true if nothing in the terms is NULL."""
        found: dict[str, None] = {}
        for term in terms:
            found |= dict.fromkeys(self._valid(column) for column in columns_in(term))
            for divisor in divisors_in(term):
                key, name = ("nonzero", divisor), self._value(divisor)
                found[self._names.get(key) or self._named(key, "bool", f"{name} != 0")] = None
        return list(found)

    def _valid(self, column: Column) -> str:
        key, place = ("valid", column.slot), self._places.columns[column.slot]
        valid = f"cer_is_valid(in[{place + 2}], static_cast<cer_i64>(in[{place + 3}]), row)"
        return self._names.get(key) or self._named(key, "bool", valid)


class _SideWriter(_Writer):
    """Writer of the struct of sides of filters."""

    def __init__(self, sides: Sides) -> None:
        super().__init__(sides)
        self._sides = sides

    def struct(self) -> list[str]:
        """Return the lines of the struct."""
        for k, (kind, value) in enumerate(self._sides.values):
            name, known = self._value(value), self._known(value)
            if kind == IN_ORDER:
                known.append(f"cer_has_order({name})")
            self._lines.append(f"side[{k}] = {'cer_order' if kind == IN_ORDER else 'cer_bits'}({name});")
            self._lines.append(f"valid |= static_cast<cer_u64>({' && '.join(known) or 'true'}) << {k};")
        return [
            "struct cer_sides {",
            f"  enum {{ n_sides = {len(self._sides.values)} }};",
            "  CER_DEVICE static cer_u64 of_row(const cer_u64* __restrict__ in, cer_i64 row, cer_i64* side) {",
            "    (void)in, (void)row;",
            "    cer_u64 valid = 0;",
            *(f"    {line}" for line in self._lines),
            "    return valid;",
            "  }",
            "};",
        ]


class _GuardWriter(_Writer):
    """Writer of the struct of guards."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._program = program

    def struct(self) -> list[str]:
        """Return the lines of the struct."""
        program = self._program
        results = {guard: self._test(test) for guard, test in program.tests}
        for k in range(program.n_parts):
            guards = range(64 * k, min(64 * k + 64, program.n_guards))
            untested = sum(1 << guard % 64 for guard in guards if guard not in results)
            bits = [f"word({untested}ULL)"]
            bits += [f"word({results[guard]}) << {guard % 64}" for guard in guards if guard in results]
            factors = [f"({' | '.join(f'({bit})' for bit in bits)})", *self._allowed_by_codes(k)]
            self._lines.append(f"w[{k}] = static_cast<word>({' & '.join(factors)});")
        return [
            "struct cer_query {",
            f"  typedef {_TYPES[program.word]} word;",
            f"  enum {{ n_parts = {program.n_parts} }};",
            "  CER_DEVICE static void words(const cer_u64* __restrict__ in, cer_i64 row, word* w) {",
            "    (void)in, (void)row;",
            *(f"    {line}" for line in self._lines),
            "  }",
            "};",
        ]

    def _allowed_by_codes(self, part: int) -> Iterable[str]:
        """Yield the words that the tables of types and streams allow for the row."""
        for name, column in (("types", self._program.types), ("streams", self._program.streams)):
            if column is not None:
                entry = self._entry(column, name)
                index = f"{entry} * {self._program.n_parts} + {part}"
                yield f"cer_load<word>(in[{self._places.tables[name]}], {index})"

    def _test(self, term: Test) -> str:
        """Return the name of a bool with the result of a test."""
        if term in self._names:
            return self._names[term]
        match term:
            case Compare():
                holds = f"{_COMPARISONS[term.op]}({self._value(term.left)}, {self._value(term.right)})"
                factors = [f"!{holds}" if term.negated else holds, *self._known(term.left, term.right)]
            case Known():
                factors = self._known(term.operand) or ["true"]
            case Lookup():
                entry = self._entry(term.codes, term.table)
                factors = [f"cer_load<cer_u8>(in[{self._places.tables[term.table]}], {entry}) != 0"]
            case Given():
                factors = [f"cer_load<cer_u8>(in[{self._places.given[term.slot]}], row) != 0"]
            case Fixed():
                factors = ["true" if term.holds else "false"]
            case And():
                factors = [self._test(test) for test in term.tests]
            case Or():
                return self._named(term, "bool", " || ".join([self._test(test) for test in term.tests]))
        return self._named(term, "bool", " && ".join(factors))

    def _entry(self, column: Column, table: str | int) -> str:
        """Return the name of the index at which to read a table."""
        key = ("entry", column.slot, table)
        if key in self._names:
            return self._names[key]
        code, last = f"static_cast<cer_u64>({self._value(column)})", f"in[{self._places.tables[table] + 1}]"
        return self._named(key, "cer_i64", f"cer_entry({code}, {self._valid(column)}, {last})")
