"""Compilation of generated code, once for each shape of a query; Numba keeps the machine code on disk.

Numba keeps machine code under the name of the source file, so the source is written to a file named by its digest.
The file serves only Numba and human readers: the code is compiled from the text in memory.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from cer_gpu.backend.jit import INT64, array_type, is_kept, kept_in, kernel
from cer_gpu.cache import cache_folder, whole_file
from cer_gpu.expressions.terms import BIT, I8, U8, WIDE, GuardProgram, parts
from cer_gpu.predicates.numba_source import Slots, slots_of, source_of

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
                if not at_once and self._rows < ROWS_TO_COMPILE and not is_kept(loader, signature):
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
        tables += [array_type("u1")] * (len(slots.tables) + len(slots.given))
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
    if kept_in():
        folder = Path(kept_in(), "cer_gpu_generated")
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
        return kernel(_executed(source, name, str(path)))
    except (OSError, RuntimeError):  # the folder cannot be written, or Numba finds no place for its cache
        return kernel(_executed(source, name, "<generated>"), keep=False)


def _executed(source: str, name: str, path: str) -> Run:
    # Numba imports the module of a kept function, so it must exist; in it, names of machine code must differ
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, path, "exec"), namespace)
    run: Any = namespace["run"]
    run.__name__ = run.__qualname__ = name
    return run  # type: ignore[no-any-return]
