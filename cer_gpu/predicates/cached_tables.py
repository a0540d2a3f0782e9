"""The arrays of a set of guards as a file, which a later process reads in place of binding the guards.

The file holds arrays of NumPy (npz, nothing pickled) and, as JSON, the names of columns and the late tests.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.arrays import Array, Int32, Int64
from cer_gpu.automaton.normal_form import Guard
from cer_gpu.backend.sets import finding as kernels
from cer_gpu.backend.string_codes import coding
from cer_gpu.backend.string_codes.coding import Patterns
from cer_gpu.backend.string_codes.scanning import FIRST_CLASS, Globs
from cer_gpu.ceql import values as v
from cer_gpu.columnar.memory import read_only
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.globs.compiling import Compiled, StringSample, grams
from cer_gpu.expressions.globs.folding import folds
from cer_gpu.expressions.inputs import Inputs
from cer_gpu.predicates.cuda.set_steps import IS_VALID, TYPE_NUMBERS, SetSteps
from cer_gpu.predicates.late_tests import LateTest

_OUTCOMES = {"=": 2, "<>": 5, "<": 1, "<=": 3, ">": 4, ">=": 6}


@dataclass(frozen=True)
class SetTables:
    """A set of guards as arrays.

    Attributes
    ----------
    n_lines : int
    begins, steps : int32 arrays
        As of `cer_gpu.backend.sets.finding.GuardSteps`.
    is_all : bool, shape (guards,)
        True for a guard that all rows satisfy, as far as the steps decide.
    number_columns : tuple of (t.Column, str)
        Columns of numbers that are tested, and their names.
    constants : uint64, shape (constants,)
        Those of all columns of numbers (`NumberTests`).
    constant_begins : int64, shape (columns + 1,)
    tests : int64, shape (lines of numbers, 5)
        For each line of numbers, its column (-1: it tests validity), the place of its constant among those of the
        column, the outcomes that hold, whether it holds of NaN, and 1 if it is no test of equality.
    validity_tests : tuple of (str, int, int)
        Columns whose validity is tested, with the lines of valid and of other rows, or -1.
    string_columns : tuple of str
        Columns of strings that are tested.
    sets : tuple of (int, bool, int, Compiled)
        Column, True if case is ignored, first pattern, and patterns.
    line_begins, lines : int32 arrays
        As of `cer_gpu.backend.string_codes.coding.Patterns`.
    globs : Globs
    chosen : dict from bool to tuple
        `Patterns` by whether their grams were chosen with a sample of strings, once computed.
    """

    n_lines: int
    begins: Int32
    steps: Int32
    is_all: npt.NDArray[np.bool_]
    number_columns: tuple[tuple[t.Column, str], ...]
    constants: npt.NDArray[np.uint64]
    constant_begins: Int64
    tests: Int64
    validity_tests: tuple[tuple[str, int, int], ...]
    string_columns: tuple[str, ...]
    sets: tuple[tuple[int, bool, int, Compiled], ...]
    line_begins: Int32
    lines: Int32
    globs: Globs
    chosen: dict[bool, tuple[Any, ...]] = field(default_factory=dict)


def set_tables(steps: SetSteps) -> SetTables:
    """Return the arrays of a set."""
    flat, begins = steps.steps()
    is_all = np.zeros(steps.n_guards, np.bool_)
    alone = np.flatnonzero(np.diff(begins) == 1)
    is_all[alone] = flat[begins[alone]] == kernels.PUSH_ALL
    columns: dict[t.Column, int] = {}
    validity: dict[str, list[int]] = {}
    tests = np.zeros((len(steps.number_tests), 5), np.int64)
    keys: list[list[int]] = []
    for line, test in enumerate(steps.number_tests):
        assert test.column != TYPE_NUMBERS
        if isinstance(test.column, str) or test.op == IS_VALID:
            name = test.column if isinstance(test.column, str) else steps.inputs.columns[test.column.slot][0]
            validity.setdefault(name, [-1, -1])[test.negated] = line
            tests[line, 0] = -1
            continue
        column = columns.setdefault(test.column, len(columns))
        if column == len(keys):
            keys.append([])
        keys[column].append(_ordered_key(test.bits, test.column.dtype))
        outcomes = _OUTCOMES[test.op] ^ (7 * test.negated)
        tests[line] = column, 0, outcomes, (test.op == "<>") != test.negated, outcomes != kernels.IS_EQUAL
    constants = [np.unique(np.array(each, np.uint64)) for each in keys]
    places = iter([np.searchsorted(constants[c], np.array(each, np.uint64)) for c, each in enumerate(keys)])
    for column, at in enumerate(places):
        tests[tests[:, 0] == column, 1] = at
    strings = [(name, of) for name, of in steps.strings.items() if of.n_tests]
    sets, line_begins, lines, n_patterns, n_numbers = [], [int32([0])], [], 0, 0
    for column, (name, of) in enumerate(strings):
        combined = of.combined_patterns()
        for nocase, globs in combined.sets.items():
            numbers, firsts = combined.askers(nocase)
            line_begins.append(firsts[1:] + n_numbers)
            n_numbers += len(numbers)
            lines.append(numbers + np.int32(steps.first_line(name)))
            sets.append((column, nocase, n_patterns, globs.compiled))
            n_patterns += globs.n_patterns
    return SetTables(
        steps.n_lines,
        begins,
        flat,
        is_all,
        tuple((column, steps.inputs.columns[column.slot][0]) for column in columns),
        read_only(np.concatenate([np.empty(0, np.uint64), *constants])),
        read_only(np.cumsum([0, *map(len, constants)])),
        tests,
        tuple((name, *each) for name, each in validity.items()),  # type: ignore[misc]
        tuple(name for name, _ in strings),
        tuple(sets),
        int32(np.concatenate(line_begins)),
        int32(np.concatenate([np.empty(0, np.int32), *lines])),
        joined_globs([each.globs for *_, each in sets]),
    )


def _ordered_key(bits: int, dtype: str) -> int:
    """Return the bits of a number of a type as a uint64 in the order of the numbers (`guard_sets._ordered_key`)."""
    top = 1 << 63
    if dtype == t.U8:
        return bits
    if dtype == t.I8:
        return bits ^ top
    bits = 0 if bits == top else bits  # -0.0
    return bits ^ (2 * top - 1) if bits & top else bits | top


def joined_globs(sets: Sequence[Globs]) -> Globs:
    """Return the patterns of several sets, one after the other."""
    signs, begins, pieces, class_begins, ranges = [], [int32([0])], [], [int32([0])], []
    n_signs = n_classes = n_ranges = 0
    for globs in sets:
        signs.append(np.where(globs.signs >= FIRST_CLASS, globs.signs + n_classes, globs.signs))
        begins.append(globs.begins[1:] + n_signs)
        class_begins.append(globs.class_begins[1:] + n_ranges)
        pieces.append(globs.is_piece)
        ranges.append(globs.ranges)
        n_signs, n_classes = n_signs + len(globs.signs), n_classes + len(globs.class_begins) - 1
        n_ranges += len(globs.ranges)
    none = np.empty(0, np.int32)
    return Globs(
        int32(np.concatenate([none, *signs])),
        int32(np.concatenate(begins)),
        read_only(np.concatenate([np.empty(0, np.bool_), *pieces])),
        int32(np.concatenate(class_begins)),
        int32(np.concatenate([none.reshape(0, 2), *ranges])),
    )


def int32(values: Any) -> Int32:
    """Return numbers as a read-only array of int32."""
    return read_only(np.ascontiguousarray(values, np.int32))


def patterns_of(tables: SetTables, sample: Array) -> tuple[Any, ...]:
    """Return `Patterns`, with grams that are rare in a sample of strings, and the globs."""
    begins, of_grams = [0], list[list[int]]()
    parts: tuple[list[Array], ...] = ([], [], [], [], [])
    sizes = [0, 0, 0, 0, 0]
    samples = {False: StringSample(sample), True: StringSample(_upper_ascii(sample))}
    for column in range(len(tables.string_columns)):
        for _, nocase, first_pattern, patterns in (each for each in tables.sets if each[0] == column):
            for width, table in grams(patterns, samples[nocase]).items():
                entries = table.entries + np.array([first_pattern, sizes[4], sizes[4], 0], np.int32)
                shift = 64 - ((8 * len(table.bits)).bit_length() - 1)
                of_grams.append(
                    [nocase, width, sizes[0], shift, sizes[1], len(table.slots) - 2, sizes[2], len(table.keys)]
                )
                arrays: tuple[Array, ...] = (table.bits, table.slots, table.keys, entries, table.pieces)
                for k, array in enumerate(arrays):
                    parts[k].append(array)
                    sizes[k] += len(array)
        begins.append(len(of_grams))
    kinds = np.uint8, np.int32, np.uint32, np.int32, np.uint8
    empty = [np.empty((0, 4) if k == 3 else 0, kind) for k, kind in enumerate(kinds)]
    joined = [read_only(np.concatenate([none, *part])) for none, part in zip(empty, parts, strict=True)]
    numbers = read_only(np.array(of_grams, np.int64).reshape(-1, coding.N_OF_TABLE))
    chosen = Patterns(int32(begins), numbers, tables.line_begins, tables.lines, folds())
    return tuple(chosen), tuple(joined), tuple(tables.globs)


def _upper_ascii(sample: Array) -> Array:
    """Return the bytes of strings with ASCII letters in upper case, a sample for the choice of rare grams."""
    small = (sample >= ord("a")) & (sample <= ord("z"))
    return np.where(small, sample - 32, sample).astype(np.uint8)


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
        v.StringTest,
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
    """Return a node, or a value in one, as lists, strings, numbers and None.

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
    """Return the argument of `to_plain`.

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
        "known": tables.validity_tests,
        "texts": tables.string_columns,
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
    """Return the set of guards over a schema, the argument of `written_set`."""
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
        validity_tests=tuple(map(tuple, names["known"])),
        string_columns=tuple(names["texts"]),
        sets=tuple(sets),
        globs=joined_globs([each.globs for *_, each in sets]),
        **{name: arrays[name] for name in _ARRAYS},  # type: ignore[arg-type]
    )
    return BoundSet(tables, Inputs(schema, [(name, read) for name, read in names["inputs"]]), late)
