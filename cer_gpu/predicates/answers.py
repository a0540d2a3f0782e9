"""Answers of many tests over the same rows: those of one column are answered together.

A test compares a column with a constant, or looks a text up.  The rows of a column that many tests read are put in
classes once: texts by their codes, numbers by the constants that they lie between.  The rows that satisfy a test then
stand in a range of classes, or in a few of them, and an answer costs as much as it has rows.  If several tests must
hold, the one with the fewest rows is answered so, and the others are asked of these rows alone; of several tests of
which one must hold, the rows are taken together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Int32
from cer_gpu.backend.compaction import classify, group_rows
from cer_gpu.ceql.syntax import Predicate
from cer_gpu.columnar.columns import Block, RowsOfBlock
from cer_gpu.columnar.memory import read_only
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.inputs import Inputs
from cer_gpu.expressions.targets.numpy import rows_of, values_of

FROM_TESTS = 8
"""Tests of one column from which on its rows are put in classes."""

FROM_ROWS = 1 << 12
"""Rows of a block from which on they are; fewer are read as fast one test at a time."""

FEW_OF = 8
"""Rows of a block for each row of an answer, from which on it is made of classes."""

MOST_CLASSES = 64
"""Most texts of an answer that is made of classes."""

TestParts = list[t.Test]
"""Tests that must all hold; one that no row satisfied comes first, as it is asked first in the next block."""

_UNKNOWN = None, None
_NUMBERS = {t.I8: np.int64, t.U8: np.uint64, t.F8: np.float64}
_RANGES = {"=": (1, 2), "<": (0, 1), "<=": (0, 2), ">": (2, None), ">=": (1, None)}
"""Classes that satisfy a comparison with constant 0 of one: below it, equal, above."""


class Answers:
    """Tests of the rows of a schema.

    Parameters
    ----------
    schema : pyarrow.Schema
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._binder = Binder(schema, "")  # each predicate was bound before, by itself
        self._classes: dict[object, _Classes] = {}
        # by the addresses of tests, which are kept, so that no others get them
        self._of_test: dict[int, tuple[t.Test, _Classes]] = {}
        self._parts_of: dict[int, tuple[t.Test, TestParts]] = {}

    def fresh(self) -> Answers:
        """Return the same for another evaluation, of the same tests."""
        other = Answers.__new__(Answers)
        other._binder = self._binder.fresh()
        copies = {id(each): each.fresh(other._binder.inputs) for each in self._classes.values()}
        other._classes = {key: copies[id(each)] for key, each in self._classes.items()}
        other._parts_of = {}
        other._of_test = {key: (test, copies[id(each)]) for key, (test, each) in self._of_test.items()}
        return other

    def bind(self, predicate: Predicate) -> TestParts:
        """Return a predicate as tests, to be asked over blocks from the next one on."""
        test = self._binder.bind(predicate)
        for each in _leaves(test):
            key = self._key(each)
            if key is not None:
                known = self._classes.get(key)
                if known is None:
                    of = _ByConstants if isinstance(each, t.Compare) else _ByText
                    known = self._classes[key] = of(self._binder.inputs)
                known.add(each)
                self._of_test[id(each)] = each, known
        return list(test.tests) if isinstance(test, t.And) else [test]

    def rows(self, parts: TestParts, block: Block) -> Array | None:
        """Return the rows of a block, ascending, that satisfy tests which were bound; None: all of them."""
        few = self._fewest(parts, block) if block.n_rows >= FROM_ROWS else None
        if few is None:
            test = parts[0] if len(parts) == 1 else t.And(tuple(parts))
            return _found(rows_of(test, self._binder.inputs, block), block.n_rows)
        rows = few.rows()
        others = [part for part in parts if part is not few.answered]
        if not others or not len(rows):
            return rows
        kept = rows_of(t.And(tuple(others)), self._binder.inputs, RowsOfBlock(block, rows, {}))
        found = _found(kept, len(rows))
        return rows if found is None else rows[found]

    def _is_dear(self, test: t.Test) -> bool:
        """Return True for a test of texts that is asked by itself: better of few of them."""
        return isinstance(test, t.Lookup) and self._binder.inputs.tables[test.table][1].is_dear

    def _fewest(self, parts: TestParts, block: Block) -> _Few | None:
        """Return the rows that satisfy one of several tests; None: no test is known to have few."""
        least = None
        for i, part in enumerate(parts):
            if least is not None and self._is_dear(part):
                continue
            few = self._few(part, block, block.n_rows // FEW_OF if least is None else least.n_rows - 1)
            if few is not None:
                least = few
                if few.n_rows == 0:
                    if i:
                        parts.insert(0, parts.pop(i))
                    break
        return least

    def _few(self, test: t.Test, block: Block, most: int) -> _Few | None:
        """Return rows, at most so many, among which all are that satisfy a test; None: it may have more."""
        if isinstance(test, t.Or):
            found = list[_Few]()
            for part in test.tests:
                few = self._few(part, block, most)
                if few is None:
                    return None
                most -= few.n_rows
                found.append(few)
            exact = all(few.answered is part for few, part in zip(found, test.tests, strict=True))
            return _Few([place for few in found for place in few.places], test if exact else None)
        if isinstance(test, t.And):
            few = self._fewest(self._parts_of.setdefault(id(test), (test, list(test.tests)))[1], block)
            return None if few is None or few.n_rows > most else few._replace(answered=None)
        classes = self._of_test.get(id(test), _UNKNOWN)[1]
        if classes is None or classes.n_tests < FROM_TESTS:
            return None
        ranges = classes.ranges(test, block)
        if ranges is None or sum(end - begin for begin, end in ranges) > most:
            return None
        return _Few([(classes, begin, end) for begin, end in ranges], test)

    def _key(self, test: t.Test) -> object:
        """Return what tests have in common that are answered by the same classes; None: there are none."""
        if isinstance(test, t.Compare) and isinstance(test.right, t.Constant) and not test.negated:
            same = test.op in _RANGES and test.left.dtype == test.right.dtype
            return test.left if same and test.left.dtype in _NUMBERS else None
        return self._binder.inputs.columns[test.codes.slot] if isinstance(test, t.Lookup) else None


def _leaves(test: t.Test) -> Iterator[t.Test]:
    """Yield the tests of which one is made by AND and OR."""
    if isinstance(test, t.And | t.Or):
        for part in test.tests:
            yield from _leaves(part)
    else:
        yield test


def _found(kept: Array | bool, n_rows: int) -> Array | None:
    if isinstance(kept, np.ndarray):
        return np.flatnonzero(kept)
    return None if kept else np.empty(0, np.int64)


class _Classes(ABC):
    """Classes of the rows of a block, of whose values several tests ask.

    Attributes
    ----------
    n_tests : int
    """

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self.n_tests = 0
        self._block: Block | None = None
        self._begins = np.zeros(1, np.int64)
        self._rows: Int32 = np.empty(0, np.int32)

    def fresh(self, inputs: Inputs) -> Self:
        """Return the same for another evaluation, given its inputs."""
        other = type(self)(inputs)
        other.n_tests = self.n_tests
        return other

    def add(self, test: t.Test) -> None:
        """Answer one more test, from the next block on."""
        self.n_tests += 1
        self._block = None

    @abstractmethod
    def _of(self, block: Block, test: t.Test) -> tuple[Int32, int]:
        """Return the class of each row of a block (-1: it satisfies no test), and the number of classes."""

    @abstractmethod
    def ranges(self, test: t.Test, block: Block) -> list[tuple[int, int]] | None:
        """Return where the rows that satisfy a test stand (`rows_in`); None: in many places."""

    def _read(self, block: Block, test: t.Test) -> None:
        if block is not self._block:
            classes, n = self._of(block, test)
            rows, self._begins = np.empty(len(classes), np.int32), np.empty(n + 1, np.int64)
            group_rows(classes, self._begins, rows)
            self._rows, self._block = rows, block

    def rows_in(self, begin: int, end: int) -> Int32:
        """Return the rows that stand in a range, ascending within each class."""
        return self._rows[begin:end]


class _Few(NamedTuple):
    """Few rows of a block, among which all are that satisfy a test.

    Attributes
    ----------
    places : list of (_Classes, begin, end)
        Ranges of the rows of classes.
    answered : Test or None
        The test that all these rows satisfy; None: there may be others among them.
    """

    places: list[tuple[_Classes, int, int]]
    answered: t.Test | None

    @property
    def n_rows(self) -> int:
        """Number of rows, those in several ranges counted for each."""
        return sum(end - begin for _, begin, end in self.places)

    def rows(self) -> Int32:
        """Return the rows, ascending, each once."""
        parts = [classes.rows_in(begin, end) for classes, begin, end in self.places]
        if len(parts) == 1:
            return np.sort(parts[0])
        return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int32)


class _ByConstants(_Classes):
    """Classes of numbers: class 2i + 1 is that of constant i, class 2i that of the numbers between it and the last."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self._constants: Array = np.empty(0)
        self._known: set[int | float] = set()
        self._ranges: dict[tuple[str, int | float], list[tuple[int, int]]] = {}  # in the block at hand

    def fresh(self, inputs: Inputs) -> Self:
        """See `_Classes`."""
        other = super().fresh(inputs)
        other._known = set(self._known)
        return other

    def _constant(self, test: t.Test) -> int | float:
        assert isinstance(test, t.Compare)
        assert isinstance(test.right, t.Constant)
        value: int | float = self._inputs.constants[test.right.dtype][test.right.slot]
        return value

    def add(self, test: t.Test) -> None:
        """See `_Classes`."""
        super().add(test)
        self._known.add(self._constant(test))

    def _of(self, block: Block, test: t.Test) -> tuple[Int32, int]:
        assert isinstance(test, t.Compare)
        dtype = _NUMBERS[test.left.dtype]
        self._ranges = {}
        self._constants = np.array(sorted(self._known), dtype)
        values, valid = values_of(test.left, self._inputs, block)
        values = np.broadcast_to(np.asarray(values, dtype), (block.n_rows,))
        classes = np.empty(block.n_rows, np.int32)
        valid = np.empty(0, np.bool_) if valid is None else valid
        classify(read_only(np.ascontiguousarray(values)), read_only(valid), read_only(self._constants), classes)
        return classes, 2 * len(self._constants) + 1

    def ranges(self, test: t.Test, block: Block) -> list[tuple[int, int]] | None:
        """See `_Classes`."""
        assert isinstance(test, t.Compare)
        self._read(block, test)
        constant = self._constant(test)
        found = self._ranges.get((test.op, constant))
        if found is None:
            i = 2 * int(np.searchsorted(self._constants, self._constants.dtype.type(constant)))
            first, end = _RANGES[test.op]
            first, end = 0 if test.op.startswith("<") else i + first, -1 if end is None else i + end
            found = self._ranges[test.op, constant] = [(int(self._begins[first]), int(self._begins[end]))]
        return found


class _ByText(_Classes):
    """Classes of texts: their codes."""

    _values: pa.Array

    def _of(self, block: Block, test: t.Test) -> tuple[Int32, int]:
        assert isinstance(test, t.Lookup)
        name = self._inputs.columns[test.codes.slot][0]
        coded, valid = block.coded(name), block.valid(name)
        self._values = coded.values
        codes = coded.codes.astype(np.int32)
        if valid is not None:
            codes[~valid] = -1
        return codes, len(coded.values)

    def ranges(self, test: t.Test, block: Block) -> list[tuple[int, int]] | None:
        """See `_Classes`."""
        assert isinstance(test, t.Lookup)
        self._read(block, test)
        codes = self._inputs.tables[test.table][1].codes(self._values)
        if not 0 < len(codes) <= MOST_CLASSES:
            return None if len(codes) else []
        return list(zip(self._begins[codes].tolist(), self._begins[codes + 1].tolist(), strict=True))
