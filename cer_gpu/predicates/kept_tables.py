"""The arrays of a set of guards as a file, which a later process reads in place of binding the guards.

The file holds arrays of NumPy (npz, nothing pickled) and, as JSON, the names of columns and the late tests.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array
from cer_gpu.automaton.normal_form import Guard
from cer_gpu.backend.texts.scanning import Globs
from cer_gpu.ceql import values as v
from cer_gpu.columnar.memory import read_only
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.globs.compiling import Compiled
from cer_gpu.expressions.inputs import Inputs
from cer_gpu.predicates.late_tests import LateTest
from cer_gpu.predicates.set_tables import SetTables, joined_globs

_CLASSES: dict[str, type[Any]] = {
    each.__name__: each
    for each in (
        v.Name,
        v.Literal,
        v.Duration,
        v.Within,
        v.OwnKey,
        v.OverAggregate,
        v.Attribute,
        v.Negative,
        v.Arithmetic,
        v.Call,
        v.Aggregate,
        v.Element,
        v.Comparison,
        v.TextTest,
        v.Like,
        v.Membership,
        v.IsNull,
        v.Not,
        v.And,
        v.Or,
        v.AnyElement,
        v.Apart,
    )
}
_FRACTION = "/"


_NAMES = {name: tuple(each.name for each in fields(kind) if each.name != "span") for name, kind in _CLASSES.items()}


def to_plain(value: Any) -> Any:
    """Return a node, or a value in one, as lists, texts, numbers and None.

    Raises
    ------
    ValueError
        When it is of a class that is not listed.
    RecursionError
        When it is nested deeper than Python's stack.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, tuple):
        return [None, *map(to_plain, value)]
    if isinstance(value, Fraction):
        return [_FRACTION, value.numerator, value.denominator]
    kind = type(value)
    if _CLASSES.get(kind.__name__) is not kind:
        raise ValueError(f"{kind.__name__} is no node of the language of values")
    return [kind.__name__, *(to_plain(getattr(value, name)) for name in _NAMES[kind.__name__])]


def from_plain(data: Any) -> Any:
    """Return what `to_plain` was given.

    Raises
    ------
    KeyError, TypeError, ValueError
        When it is nothing that `to_plain` returns.
    """
    if not isinstance(data, list):
        return data
    kind = data[0]
    if kind is None:
        return tuple([from_plain(each) for each in data[1:]])
    if kind == _FRACTION:
        return Fraction(*data[1:])
    return _makers(kind)(*[from_plain(each) if type(each) is list else each for each in data[1:]])


@cache
def _makers(name: str) -> Callable[..., Any]:
    kind = _CLASSES[name]
    names = _NAMES[name]
    if [each.name for each in fields(kind)][: len(names)] == list(names):
        return kind
    return lambda *values: kind(**dict(zip(names, values, strict=True)))


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
