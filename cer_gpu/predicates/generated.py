"""Generated code, compiled once for each shape of a query and kept on disk by Numba.

Numba keeps what it compiles under the name of the file that the source stands in; so the source is written to a file,
under its own digest.  It is for Numba and for people only: what runs is compiled from the text in memory.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from cer_gpu.backend.jit import is_kept, kernel
from cer_gpu.backend.signatures import INT64, array_of, kept_in
from cer_gpu.cache import cache_folder, whole_file
from cer_gpu.predicates.numba_source import slots_of, source_of
from cer_gpu.predicates.terms import BIT, I8, U8, Program, parts

Run = Callable[..., Any]

MOST_TERMS = 400
"""A program of more terms is not compiled: it would take too long."""
ROWS_TO_LOAD = 1 << 17
"""So many rows are evaluated another way before code that is kept on disk is loaded ..."""
ROWS_TO_COMPILE = 1 << 21
"""... or code is compiled."""


class Generated:
    """The code of one program, for all evaluations of this process; safe to use from many threads.

    Parameters
    ----------
    program : Program
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.slots = slots_of(program)
        self._lock = threading.Lock()
        self._rows = 0
        self._loaders: dict[bool, Run] = {}
        self._compiled: dict[bool, Run] = {}

    def run(self, nullable: bool, n_rows: int, at_once: bool = False) -> Run | None:
        """Return the compiled function for a block, or None while it does not pay.

        Parameters
        ----------
        nullable
            Whether a column of the block has NULLs.
        n_rows
            How many rows the block has; they are counted.
        at_once
            Whether to compile whatever it costs.
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
        columns = [array_of("u1" if column.stored == BIT else column.stored) for column in slots.columns]
        if nullable:
            columns += [array_of("u1")] * len(slots.columns)
        constants = [array_of(dtype) for dtype in slots.constants]
        codes = [column for column in (program.types, program.streams) if column is not None]
        tables = [array_of(program.word, 2 if program.word == U8 else 1)] * len(codes)
        tables += [array_of("u1")] * (len(slots.tables) + len(slots.given))
        read = [INT64, *columns, array_of(I8), *constants, *tables]
        if program.word == U8:
            return (*read, array_of(U8, 2, written=True))
        rows = array_of("i4", written=True)
        return (*read, rows, INT64, rows, rows, INT64, array_of(program.word, written=True))


_shared = lru_cache(256)(Generated)
_shared_lock = threading.Lock()  # so that there is one of each


def generated(program: Program) -> Generated | None:
    """Return the code of a program, the same object for each of its shape; None for a program that is too large."""
    n_terms = 0
    for _, test in program.tests:
        n_terms += sum(1 for _ in parts(test))
        if n_terms > MOST_TERMS:
            return None
    with _shared_lock:
        return _shared(program)


def source_folder() -> Path:
    """Return where sources are written: in Numba's own folder where one is set, else in the user's cache."""
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
    """Return the function of a source, as a kernel that is not compiled yet."""
    name = f"run_{hashlib.sha256(source.encode()).hexdigest()[:32]}"
    try:
        path = source_folder() / f"{name}.py"
        if not path.exists():
            with whole_file(path, 0o644) as file:
                file.write(source.encode())
        return kernel(_executed(source, name, str(path)))
    except (OSError, RuntimeError):  # nothing can be written, or Numba finds no place for what it would keep
        return kernel(_executed(source, name, "<generated>"), keep=False)


def _executed(source: str, name: str, path: str) -> Run:
    # Numba imports the module of what it kept, which must be there; in it, names of machine code must differ
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, path, "exec"), namespace)
    run: Any = namespace["run"]
    run.__name__ = run.__qualname__ = name
    return run  # type: ignore[no-any-return]
