"""The arrays of a set of guards as a file, which a later process reads in place of binding the guards.

The file holds arrays of NumPy (npz, nothing pickled) and, as JSON, the names of columns and the late tests.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array
from cer_gpu.automaton.normal_form import Guard
from cer_gpu.backend.texts.scanning import Globs
from cer_gpu.columnar.memory import read_only
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.globs.compiling import Compiled
from cer_gpu.expressions.inputs import Inputs
from cer_gpu.predicates.late_tests import LateTest
from cer_gpu.predicates.plain_nodes import to_plain
from cer_gpu.predicates.set_tables import SetTables, joined_globs

_ARRAYS = ("begins", "steps", "is_all", "constants", "constant_begins", "tests", "line_begins", "lines")


class BoundSet(NamedTuple):
    """The guards of a set over a schema.

    Attributes
    ----------
    tables : SetTables
    inputs : Inputs
        Columns of numbers that the tests read.
    late : mapping from int to LateTest
        Tests that the arrays do not decide, by the numbers of their guards.
    """

    tables: SetTables
    inputs: Inputs
    late: Mapping[int, LateTest]

    @property
    def n_guards(self) -> int:
        """Number of guards."""
        return len(self.tables.is_all)


def digest_of(guard: Guard) -> str:
    """Return a digest of a guard; ValueError, RecursionError: it cannot be written."""
    plain = json.dumps([guard.event_type, guard.stream, to_plain(guard.predicate)])
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()


def written_set(bound: BoundSet) -> bytes:
    """Return the arrays of a set as a file."""
    tables = bound.tables
    names = {
        "lines": tables.n_lines,
        "inputs": bound.inputs.columns,
        "numbers": [(column.slot, column.stored, column.stride, name) for column, name in tables.number_columns],
        "known": tables.known,
        "texts": tables.text_columns,
        "sets": [(column, nocase, first) for column, nocase, first, _ in tables.sets],
        "late": [(number, places) for number, (_, places) in bound.late.items()],
    }
    arrays: dict[str, Array] = {name: getattr(tables, name) for name in _ARRAYS}
    arrays["names"] = np.frombuffer(json.dumps(names).encode(), np.uint8)
    for k, (*_, each) in enumerate(tables.sets):
        for name, array in zip(Globs._fields, each.globs, strict=True):
            arrays[f"{k}.globs.{name}"] = array
        for name in Compiled._fields[1:]:
            arrays[f"{k}.{name}"] = getattr(each, name)
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def read_set(content: bytes, schema: pa.Schema, guards: Sequence[Guard]) -> BoundSet:
    """Return the set of guards over a schema that `written_set` was given."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays: dict[str, Array] = {name: read_only(array) for name, array in file.items()}
    names: dict[str, Any] = json.loads(arrays["names"].tobytes())
    sets = []
    for k, (column, nocase, first) in enumerate(names["sets"]):
        globs = Globs(*(arrays[f"{k}.globs.{name}"] for name in Globs._fields))
        sets.append((column, nocase, first, Compiled(globs, *(arrays[f"{k}.{name}"] for name in Compiled._fields[1:]))))
    late: dict[int, LateTest] = {}
    for number, places in names["late"]:
        predicate = guards[number].predicate
        assert predicate is not None
        late[number] = predicate, tuple(places)
    tables = SetTables(
        n_lines=names["lines"],
        number_columns=tuple((t.Column(slot, stored, stride), name) for slot, stored, stride, name in names["numbers"]),
        known=tuple(map(tuple, names["known"])),
        text_columns=tuple(names["texts"]),
        sets=tuple(sets),
        globs=joined_globs([each.globs for *_, each in sets]),
        **{name: arrays[name] for name in _ARRAYS},  # type: ignore[arg-type]
    )
    return BoundSet(tables, Inputs(schema, [(name, read) for name, read in names["inputs"]]), late)
