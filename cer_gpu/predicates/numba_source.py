"""Generator of Numba source from terms: one loop over the rows of a block.

The text depends only on the tables below, on slots and on positions of bits: on the shape of the terms.  Its loops have
no branch on the values of a row, so tests of numbers are vectorised.

For at most 16 guards, `run` looks up the word of each row in the symbol table and keeps the relevant rows, as
`cer_gpu.backend.compaction.select_by_table` does.  For more guards, `run` writes the words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cer_gpu.predicates.terms import (
    BIT,
    F8,
    I8,
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
    Test,
    ToFloat,
    ToInt64,
    Value,
    columns_in,
    divisors_in,
    parts,
)

CHUNK = 1024
"""Rows tested before their words are looked up: the results stay in the innermost cache."""
AHEAD = 2 * CHUNK
"""Distance in rows at which columns are prefetched."""

HEADER = """\
from numpy import float64 as F, int64 as I, uint8 as B, uint16 as H, uint64 as U
from cer_gpu.backend.operations import fmod, prefetch, quotient, remainder


"""
_CASTS = {I8: "I", U8: "U", F8: "F", "u1": "B", "u2": "H"}
_CONSTANTS = {I8: "integers", U8: "naturals", F8: "floats"}
# Numba assumes that signed integers do not overflow, so LLVM would turn x + d < x into d < 0; unsigned ones wrap around
_NEGATIVE = {I8: "I(U(0) - U({x}))", F8: "-{x}"}
_ARITHMETIC = {
    (I8, "+"): "I(U({x}) + U({y}))",
    (I8, "-"): "I(U({x}) - U({y}))",
    (I8, "*"): "I(U({x}) * U({y}))",
    (I8, "/"): "quotient({x}, {y})",
    (I8, "%"): "remainder({x}, {y})",
    (F8, "+"): "{x} + {y}",
    (F8, "-"): "{x} - {y}",
    (F8, "*"): "{x} * {y}",
    (F8, "/"): "{x} / {y}",
    (F8, "%"): "fmod({x}, {y})",
}
_COMPARISONS = {
    "=": "B({x} == {y})",
    "<>": "B({x} != {y})",
    "<": "B({x} < {y})",
    "<=": "B({x} <= {y})",
    ">": "B({x} > {y})",
    ">=": "B({x} >= {y})",
}
_COMPARISONS_WITH_NATURAL = {
    "=": "B(B({x} >= I(0)) & B(U({x}) == {y}))",
    "<>": "B(B({x} < I(0)) | B(U({x}) != {y}))",
    "<": "B(B({x} < I(0)) | B(U({x}) < {y}))",
    "<=": "B(B({x} < I(0)) | B(U({x}) <= {y}))",
    ">": "B(B({x} >= I(0)) & B(U({x}) > {y}))",
    ">=": "B(B({x} >= I(0)) & B(U({x}) >= {y}))",
}


@dataclass(frozen=True)
class Slots:
    """Slots that a program reads, in the order of the arguments of generated code.

    Attributes
    ----------
    columns : tuple of Column
    tables, given : tuple of int
    constants : tuple of str
        Types of which there are constants.
    """

    columns: tuple[Column, ...]
    tables: tuple[int, ...]
    given: tuple[int, ...]
    constants: tuple[str, ...]


def slots_of(program: Program) -> Slots:
    """Return the slots that a program reads."""
    every = [part for _, test in program.tests for part in parts(test)]
    codes = [column for column in (program.types, program.streams) if column is not None]
    columns = {column.slot: column for column in [*codes, *(part for part in every if isinstance(part, Column))]}
    return Slots(
        tuple(columns[slot] for slot in sorted(columns)),
        tuple(sorted({part.table for part in every if isinstance(part, Lookup)})),
        tuple(sorted({part.slot for part in every if isinstance(part, Given)})),
        tuple(dtype for dtype in _CONSTANTS if any(isinstance(p, Constant) and p.dtype == dtype for p in every)),
    )


def source_of(program: Program, nullable: bool) -> str:
    """Return the source of a module with a function `run`.

    Parameters
    ----------
    program : Program
    nullable
        True if columns may hold NULL; else their validity is not read.

    Returns
    -------
    str
        Source of ``run(n_rows, ...)``, whose arguments are, if the program has them: the columns, their validity
        (bits), int64 first bits (of the values and of the validity of each column in turn), constants (int64, uint64,
        float64), the tables of types and of streams, the tables of tests (uint8), the given answers (uint8).  For at
        most 16 guards there follow the arguments of `select_by_table` after the words, and an array of `CHUNK` words;
        it returns the row after the last one read, the number selected, and the unseen word of that row.  For more
        guards there follow the words, written.
    """
    return HEADER + "\n".join(_Writer(program, nullable).function()) + "\n"


class _Writer:
    """Writer of one function; a term that occurs twice is computed once."""

    def __init__(self, program: Program, nullable: bool) -> None:
        self._program = program
        self._nullable = nullable
        self._slots = slots_of(program)
        self._lines: list[str] = []
        self._names: dict[object, str] = {}
        self._n_names = 0

    def function(self) -> list[str]:
        """Return the lines of the function."""
        return self._wide() if self._program.word == U8 else self._narrow()

    # ---- the loops ------------------------------------------------------------------------------------------

    def _narrow(self) -> list[str]:
        program, cast = self._program, _CASTS[self._program.word]
        tests = self._tests()
        loop: list[str] = []
        if tests[1]:
            loop = ["for r in range(m):", *_indented(["i = U(begin + r)", *tests[0], f"allowed[U(r)] = {tests[1][0]}"])]
        self._begin()
        words = [*(["allowed[U(r)]"] if loop else []), *self._allowed_by_codes("")]
        word = f"{cast}({' & '.join(words)})" if words else f"{cast}({(1 << program.n_guards) - 1})"
        select = [
            "i = U(begin + r)",
            *self._prefetches(),
            *self._lines,
            f"word = {word}",
            "symbol = table[U(word)]",
            "if symbol < 0:",
            "    return I(i), I(kept), I(word)",
            "symbols[kept] = symbol",
            "positions[kept] = i",
            "kept += U(symbol > 0)",
        ]
        body = [
            *self._preamble(),
            "kept = U(n_selected)",
            "begin = start",
            "while begin < n_rows:",
            *_indented(
                [f"m = min(n_rows - begin, {CHUNK})", *loop, "for r in range(m):", *_indented(select), "begin += m"]
            ),
            "return I(n_rows), I(kept), I(0)",
        ]
        return [f"def run({self._arguments()}):", *_indented(body)]

    def _wide(self) -> list[str]:
        lines, rows = self._tests()
        self._begin()
        loop = ["i = U(r)", *self._prefetches(), *lines]
        for k in range(self._program.n_parts):
            allowed = [*self._allowed_by_codes(f", U({k})"), *rows[k : k + 1]]
            self._lines.append(f"words[i, U({k})] = {' & '.join(allowed) or f'U({_bits(self._part(k))})'}")
        loop += self._lines
        body = [*self._preamble(), "for r in range(n_rows):", *_indented(loop)]
        return [f"def run({self._arguments()}):", *_indented(body)]

    def _part(self, k: int) -> range:
        return range(64 * k, min(64 * k + 64, self._program.n_guards))

    def _tests(self) -> tuple[list[str], list[str]]:
        """Return lines that compute all tests, and for each part of the word an expression of the bits they leave."""
        if not self._program.tests:
            return [], []
        self._begin()
        results = {guard: self._test(test) for guard, test in self._program.tests}
        cast, words = _CASTS[self._program.word], []
        for k in range(self._program.n_parts):
            untested = _bits(guard for guard in self._part(k) if guard not in results)
            bits = [f"{cast}({results[guard]}) << {cast}({guard % 64})" for guard in self._part(k) if guard in results]
            words.append(f"{cast}({' | '.join([f'{cast}({untested})', *(f'({bit})' for bit in bits)])})")
        return self._lines, words

    def _begin(self) -> None:
        self._lines, self._names = [], {}

    def _allowed_by_codes(self, part: str) -> list[str]:
        """Return the expressions for the words that the tables of types and streams allow for the row."""
        tables = self._code_tables()
        return [f"{name}[{self._code(column, f'last_{name}')}{part}]" for name, column in tables.items()]

    def _code_tables(self) -> dict[str, Column]:
        tables = {"types": self._program.types, "streams": self._program.streams}
        return {name: column for name, column in tables.items() if column is not None}

    def _prefetches(self) -> list[str]:
        return [
            f"prefetch(c{c.slot}, {_index(c, f'(i + U({AHEAD}))')})" for c in self._slots.columns if c.stored != BIT
        ]

    def _arguments(self) -> str:
        slots = self._slots
        names = ["n_rows", *(f"c{c.slot}" for c in slots.columns)]
        if self._nullable:
            names += [f"v{c.slot}" for c in slots.columns]
        names += ["bits", *(_CONSTANTS[dtype] for dtype in slots.constants)]
        names += self._code_tables()
        names += [*(f"t{k}" for k in slots.tables), *(f"g{k}" for k in slots.given)]
        if self._program.word == U8:
            return ", ".join([*names, "words"])
        return ", ".join([*names, "table", "start", "symbols", "positions", "n_selected", "allowed"])

    def _preamble(self) -> list[str]:
        """Return the lines before the loop: first bits, constants, last entries of tables."""
        slots = self._slots
        lines = []
        for k, column in enumerate(slots.columns):
            if column.stored == BIT:
                lines.append(f"b{column.slot} = U(bits[{2 * k}])")
            if self._nullable:
                lines.append(f"p{column.slot} = U(bits[{2 * k + 1}])")
        every = (part for _, test in self._program.tests for part in parts(test))
        for constant in dict.fromkeys(part for part in every if isinstance(part, Constant)):
            name = _CONSTANTS[constant.dtype]
            lines.append(f"{_constant(constant)} = {name}[{constant.slot}]")
        tables = [n for n, c in (("types", self._program.types), ("streams", self._program.streams)) if c is not None]
        return [
            *lines,
            *(f"last_{name} = U({name}.shape[0] - 1)" for name in [*tables, *(f"t{k}" for k in slots.tables)]),
        ]

    # ---- one row --------------------------------------------------------------------------------------------

    def _named(self, key: object, expression: str) -> str:
        self._names[key] = name = f"x{self._n_names}"
        self._n_names += 1
        self._lines.append(f"{name} = {expression}")
        return name

    def _value(self, term: Value) -> str:
        if isinstance(term, Constant):
            return _constant(term)
        if term in self._names:
            return self._names[term]
        match term:
            case Column(stored="bit"):
                return self._named(term, f"I({_bit(f'c{term.slot}', f'b{term.slot}')})")
            case Column():
                return self._named(term, f"{_CASTS[term.dtype]}(c{term.slot}[{_index(term, 'i')}])")
            case ToFloat() | ToInt64():
                return self._named(term, f"{_CASTS[term.dtype]}({self._value(term.operand)})")
            case Negative():
                return self._named(term, _NEGATIVE[term.dtype].format(x=self._value(term.operand)))
            case Arithmetic():
                x, y = self._value(term.left), self._value(term.right)
                return self._named(term, _ARITHMETIC[term.dtype, term.op].format(x=x, y=y))

    def _test(self, term: Test) -> str:
        """Return the name of a uint8 with the result of a test, 0 or 1."""
        if term in self._names:
            return self._names[term]
        match term:
            case Compare():
                x, y = self._value(term.left), self._value(term.right)
                mixed = (term.left.dtype, term.right.dtype) == (I8, U8)
                templates = _COMPARISONS_WITH_NATURAL if mixed else _COMPARISONS
                holds = templates[term.op].format(x=x, y=y)
                factors = [f"({holds} ^ B(1))" if term.negated else holds, *self._known(term.left, term.right)]
            case Known():
                factors = self._known(term.operand) or ["B(1)"]
            case Lookup():
                table = f"t{term.table}"
                factors = [f"{table}[{self._code(term.codes, f'last_{table}')}]"]
            case Given():
                factors = [f"g{term.slot}[i]"]
            case Fixed():
                factors = [f"B({int(term.holds)})"]
            case And():
                factors = [self._test(test) for test in term.tests]
            case Or():
                return self._named(term, f"B({' | '.join([self._test(test) for test in term.tests])})")
        return self._named(term, f"B({' & '.join(factors)})")

    def _known(self, *terms: Value) -> list[str]:
        """Return the names of uint8s that are all 1 if nothing in the terms is NULL."""
        found: dict[str, None] = {}
        for term in terms:
            if self._nullable:
                found |= dict.fromkeys(self._valid(column) for column in columns_in(term))
            for divisor in divisors_in(term):
                name = self._value(divisor)
                found[self._names.get(("nonzero", name)) or self._named(("nonzero", name), f"B({name} != I(0))")] = None
        return list(found)

    def _valid(self, column: Column) -> str:
        key = ("valid", column.slot)
        bit = _bit(f"v{column.slot}", f"p{column.slot}")
        return self._names.get(key) or self._named(key, f"B({bit})")

    def _code(self, column: Column, last: str) -> str:
        """Return the name of the index at which to read a table: the last entry for NULL and codes outside of it."""
        key = ("code", column.slot, last)
        if key in self._names:
            return self._names[key]
        code = f"min(U({self._value(column)}), {last})"
        if self._nullable:
            code = f"{code} if {self._valid(column)} else {last}"
        return self._named(key, code)


def _constant(constant: Constant) -> str:
    return f"{_CONSTANTS[constant.dtype]}_{constant.slot}"


def _index(column: Column, row: str) -> str:
    return row if column.stride == 1 else f"{row} * U({column.stride})"


def _bit(array: str, first: str) -> str:
    return f"({array}[({first} + i) >> U(3)] >> (({first} + i) & U(7))) & U(1)"


def _bits(guards: Iterable[int]) -> int:
    return sum(1 << guard % 64 for guard in guards)


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]
