"""Compilation of generated code, once for each shape of a query; Numba keeps the machine code on disk.

Numba keeps machine code under the name of the source file, so the source is written to a file named by its digest.
The file serves only Numba and human readers: the code is compiled from the text in memory.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from cer_gpu.backend.jit import INT64, array_type, is_cached, kernel, numba_cache_folder
from cer_gpu.cache import cache_folder, whole_file
from cer_gpu.expressions.targets.numba import CASTS, CONSTANTS, HEADER, NumbaWriter, index
from cer_gpu.expressions.terms import (
    BIT,
    I8,
    U8,
    WIDE,
    Column,
    Constant,
    ExternalPredicate,
    GuardProgram,
    Lookup,
    parts,
)

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
    tables, external : tuple of int
    constants : tuple of str
        Types of the constants.
    """

    columns: tuple[Column, ...]
    tables: tuple[int, ...]
    external: tuple[int, ...]
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
        float64, halves of wide integers), the tables of types and of streams, the tables of tests (uint8), the external
        results (uint8).  For at most 16 guards there follow the arguments of `select_relevant` after the words, and an
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
        return self._write_wide() if self._program.word == U8 else self._narrow()

    # ---- the loops ------------------------------------------------------------------------------------------

    def _narrow(self) -> list[str]:
        program, cast = self._program, CASTS[self._program.word]
        tests = self._tests()
        loop: list[str] = []
        if tests[1]:
            loop = ["for r in range(m):", *_indent(["i = U(begin + r)", *tests[0], f"allowed[U(r)] = {tests[1][0]}"])]
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
            *_indent(
                [f"m = min(n_rows - begin, {CHUNK})", *loop, "for r in range(m):", *_indent(select), "begin += m"]
            ),
            "return I(n_rows), I(kept), I(0)",
        ]
        return [f"def run({self._write_arguments()}):", *_indent(body)]

    def _write_wide(self) -> list[str]:
        lines, rows = self._tests()
        self._begin_source()
        loop = ["i = U(r)", *self._prefetches(), *lines]
        for k in range(self._program.n_parts):
            allowed = [*self._allowed_by_codes(f", U({k})"), *rows[k : k + 1]]
            self._lines.append(f"words[i, U({k})] = {' & '.join(allowed) or f'U({_bits(self._write_part(k))})'}")
        loop += self._lines
        body = [*self._preamble(), "for r in range(n_rows):", *_indent(loop)]
        return [f"def run({self._write_arguments()}):", *_indent(body)]

    def _write_part(self, k: int) -> range:
        return range(64 * k, min(64 * k + 64, self._program.n_guards))

    def _tests(self) -> tuple[list[str], list[str]]:
        """Return lines that compute all tests, and for each part of the word an expression of the bits they leave."""
        if not self._program.tests:
            return [], []
        self._begin_source()
        results = {guard: self._truth_name(test) for guard, test in self._program.tests}
        cast, words = CASTS[self._program.word], []
        for k in range(self._program.n_parts):
            untested = _bits(guard for guard in self._write_part(k) if guard not in results)
            bits = [
                f"{cast}({results[guard]}) << {cast}({guard % 64})" for guard in self._write_part(k) if guard in results
            ]
            words.append(f"{cast}({' | '.join([f'{cast}({untested})', *(f'({bit})' for bit in bits)])})")
        return self._lines, words

    def _allowed_by_codes(self, part: str) -> list[str]:
        """Return the expressions for the words that the tables of types and streams allow for the row."""
        codes = self._program.codes
        return [f"{name}[{self._code(column, f'last_{name}')}{part}]" for name, column in codes.items()]

    def _prefetches(self) -> list[str]:
        return [f"prefetch(c{c.slot}, {index(c, f'(i + U({AHEAD}))')})" for c in self._slots.columns if c.stored != BIT]

    def _write_arguments(self) -> str:
        slots = self._slots
        names = ["n_rows", *(f"c{c.slot}" for c in slots.columns)]
        if self._nullable:
            names += [f"v{c.slot}" for c in slots.columns]
        names += ["bits", *(CONSTANTS[dtype] for dtype in slots.constants)]
        names += [*self._program.codes, *(f"t{k}" for k in slots.tables), *(f"g{k}" for k in slots.external)]
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


def _indent(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


Run = Callable[..., Any]

MAX_TERMS = 400
"""Most terms of a program that is compiled; a larger one would take too long."""
ROWS_TO_LOAD = 1 << 17
"""Rows of a program to interpret before its code is loaded from disk."""
ROWS_TO_COMPILE = 1 << 21
"""Rows of a program to interpret before its code is compiled."""


class Generated:
    """Code of one program, shared by all evaluations of this process; thread-safe.

    Parameters
    ----------
    program : GuardProgram
    """

    def __init__(self, program: GuardProgram) -> None:
        self.program = program
        self.slots: Slots = slots_of(program)
        self._lock = threading.Lock()
        self._rows = 0
        self._loaders: dict[bool, Run] = {}
        self._compiled: dict[bool, Run] = {}

    def may_run(self, n_rows: int, *, at_once: bool) -> bool:
        """Return False, having counted some rows, where `run` would return None whatever the columns are."""
        if at_once or self._compiled:
            return True
        with self._lock:
            few = self._rows + n_rows < ROWS_TO_LOAD
            self._rows += n_rows if few else 0
        return not few

    def run(self, nullable: bool, n_rows: int, at_once: bool = False) -> Run | None:
        """Return the compiled function for a block, or None if its compilation does not pay yet.

        Parameters
        ----------
        nullable
            True if a column of the block has NULLs.
        n_rows
            Rows of the block, which are added to those evaluated so far.
        at_once
            True: compile regardless of the cost.
        """
        run = self._compiled.get(nullable)
        if run is not None:
            return run
        with self._lock:
            if nullable not in self._compiled:
                self._rows += n_rows
                if not at_once and self._rows < ROWS_TO_LOAD:
                    return None
                signature = self._signature(nullable)
                if nullable not in self._loaders:
                    self._loaders[nullable] = _function(source_of(self.program, nullable))
                loader: Any = self._loaders[nullable]
                if not at_once and self._rows < ROWS_TO_COMPILE and not is_cached(loader, signature):
                    return None
                loader.compile(signature)
                loader.disable_compile()
                self._compiled[nullable] = loader
            return self._compiled[nullable]

    def _signature(self, nullable: bool) -> tuple[Any, ...]:
        program, slots = self.program, self.slots
        columns = [array_type("u1" if column.stored == BIT else column.stored) for column in slots.columns]
        if nullable:
            columns += [array_type("u1")] * len(slots.columns)
        constants = [array_type(I8 if dtype == WIDE else dtype) for dtype in slots.constants]
        codes = [column for column in (program.types, program.streams) if column is not None]
        tables = [array_type(program.word, 2 if program.word == U8 else 1)] * len(codes)
        tables += [array_type("u1")] * (len(slots.tables) + len(slots.external))
        read = [INT64, *columns, array_type(I8), *constants, *tables]
        if program.word == U8:
            return (*read, array_type(U8, 2, written=True))
        rows = array_type("i4", written=True)
        return (*read, rows, INT64, rows, rows, INT64, array_type(program.word, written=True))


_shared = lru_cache(256)(Generated)
_shared_lock = threading.Lock()  # lru_cache alone could make two of one program


def generated(program: GuardProgram) -> Generated | None:
    """Return the code of a program, one object for each shape; None: the program is too large."""
    n_terms = 0
    for _, test in program.tests:
        n_terms += sum(1 for _ in parts(test))
        if n_terms > MAX_TERMS:
            return None
    with _shared_lock:
        return _shared(program)


def source_folder() -> Path:
    """Return the folder for sources: within Numba's cache folder if one is set, else in the user's cache."""
    if numba_cache_folder():
        folder = Path(numba_cache_folder(), "cer_gpu_generated")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK | os.X_OK):
                return folder
        except OSError:
            pass
    return cache_folder("generated")


def _function(source: str) -> Run:
    """Return the function of a source as a kernel, not yet compiled."""
    name = f"run_{hashlib.sha256(source.encode()).hexdigest()[:32]}"
    try:
        path = source_folder() / f"{name}.py"
        if not path.exists():
            with whole_file(path, 0o644) as file:
                file.write(source.encode())
        return kernel(_exec_source(source, name, str(path)))
    except (OSError, RuntimeError):  # the folder cannot be written, or Numba finds no place for its cache
        return kernel(_exec_source(source, name, "<generated>"), keep=False)


def _exec_source(source: str, name: str, path: str) -> Run:
    # Numba imports the module of a cached function, so it must exist; in it, names of machine code must differ
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, path, "exec"), namespace)
    run: Any = namespace["run"]
    run.__name__ = run.__qualname__ = name
    return run  # type: ignore[no-any-return]
