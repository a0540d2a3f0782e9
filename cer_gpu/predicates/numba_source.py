"""Generator of Numba source from terms: one loop over the rows of a block.

The loops have no branch on the values of a row, so tests of numbers are vectorised.

For at most 16 guards, `run` looks up the word of each row in the symbol table and keeps the relevant rows, as
`cer_gpu.backend.compaction.select_relevant` does.  For more guards, `run` writes the words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cer_gpu.expressions.targets.numba import CASTS, CONSTANTS, HEADER, NumbaWriter, index
from cer_gpu.expressions.terms import BIT, U8, Column, Constant, ExternalPredicate, GuardProgram, Lookup, parts

CHUNK = 1024
"""Rows tested before their words are looked up: the results stay in the innermost cache."""
AHEAD = 2 * CHUNK
"""Distance in rows at which columns are prefetched."""


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


def slots_of(program: GuardProgram) -> Slots:
    """Return the slots that a program reads."""
    every = [part for _, test in program.tests for part in parts(test)]
    read = [*program.codes.values(), *(part for part in every if isinstance(part, Column))]
    columns = {column.slot: column for column in read}
    return Slots(
        tuple(columns[slot] for slot in sorted(columns)),
        tuple(sorted({part.table for part in every if isinstance(part, Lookup)})),
        tuple(sorted({part.slot for part in every if isinstance(part, ExternalPredicate)})),
        tuple(dtype for dtype in CONSTANTS if any(isinstance(p, Constant) and p.dtype == dtype for p in every)),
    )


def source_of(program: GuardProgram, nullable: bool) -> str:
    """Return the source of a module with a function `run`.

    Parameters
    ----------
    program : GuardProgram
    nullable
        True if columns may hold NULL; else their validity is not read.

    Returns
    -------
    str
        Source of ``run(n_rows, ...)``, whose arguments are, if the program has them: the columns, their validity
        (bits), int64 first bits (of the values and of the validity of each column in turn), constants (int64, uint64,
        float64, halves of wide integers), the tables of types and of streams, the tables of tests (uint8), the given
        answers (uint8).  For at most 16 guards there follow the arguments of `select_relevant` after the words, and an
        array of `CHUNK` words; it returns what that returns, and the slot for an unseen word is the word.  For more
        guards there follow the words, written.
    """
    return HEADER + "\n".join(_Writer(program, nullable).function()) + "\n"


class _Writer(NumbaWriter):
    """Writer of one function."""

    def __init__(self, program: GuardProgram, nullable: bool) -> None:
        super().__init__(nullable)
        self._program = program
        self._slots = slots_of(program)

    def function(self) -> list[str]:
        """Return the lines of the function."""
        return self._wide() if self._program.word == U8 else self._narrow()

    # ---- the loops ------------------------------------------------------------------------------------------

    def _narrow(self) -> list[str]:
        program, cast = self._program, CASTS[self._program.word]
        tests = self._tests()
        loop: list[str] = []
        if tests[1]:
            loop = ["for r in range(m):", *_indented(["i = U(begin + r)", *tests[0], f"allowed[U(r)] = {tests[1][0]}"])]
        self._begin_source()
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
        self._begin_source()
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
        self._begin_source()
        results = {guard: self._truth_name(test) for guard, test in self._program.tests}
        cast, words = CASTS[self._program.word], []
        for k in range(self._program.n_parts):
            untested = _bits(guard for guard in self._part(k) if guard not in results)
            bits = [f"{cast}({results[guard]}) << {cast}({guard % 64})" for guard in self._part(k) if guard in results]
            words.append(f"{cast}({' | '.join([f'{cast}({untested})', *(f'({bit})' for bit in bits)])})")
        return self._lines, words

    def _allowed_by_codes(self, part: str) -> list[str]:
        """Return the expressions for the words that the tables of types and streams allow for the row."""
        codes = self._program.codes
        return [f"{name}[{self._code(column, f'last_{name}')}{part}]" for name, column in codes.items()]

    def _prefetches(self) -> list[str]:
        return [f"prefetch(c{c.slot}, {index(c, f'(i + U({AHEAD}))')})" for c in self._slots.columns if c.stored != BIT]

    def _arguments(self) -> str:
        slots = self._slots
        names = ["n_rows", *(f"c{c.slot}" for c in slots.columns)]
        if self._nullable:
            names += [f"v{c.slot}" for c in slots.columns]
        names += ["bits", *(CONSTANTS[dtype] for dtype in slots.constants)]
        names += [*self._program.codes, *(f"t{k}" for k in slots.tables), *(f"g{k}" for k in slots.given)]
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
            lines.append(self._constant_read(constant))
        tables = [*self._program.codes, *(f"t{k}" for k in slots.tables)]
        return [*lines, *(f"last_{name} = U({name}.shape[0] - 1)" for name in tables)]


def _bits(guards: Iterable[int]) -> int:
    return sum(1 << guard % 64 for guard in guards)


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]
