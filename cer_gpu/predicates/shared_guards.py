"""Guards of many queries over one stream, each of which is evaluated once, whatever the number of queries.

The guards of a set are data (`cer_gpu.predicates.cuda.set_steps`), from which a loop finds the rows of all guards of a
block at once: on the CPU (`cer_gpu.predicates.host_sets`), or on a GPU (`cer_gpu.predicates.cuda.guard_sets`).  The
time depends on the rows that satisfy a test, and not on the number of guards.  The relevant events of a query are the
merge of the rows of its guards, with the word of each row (`cer_gpu.predicates.guards`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.arrays import Bools, Int32
from cer_gpu.automaton.normal_form import Guard
from cer_gpu.backend.compaction import merge_rows
from cer_gpu.cache import disk_cached
from cer_gpu.columnar.columns import Block, SelectedRows
from cer_gpu.columnar.dictionary_encoding import DictionaryCache
from cer_gpu.columnar.memory import Scratch, read_only
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.derived import is_descent, reads_one_event
from cer_gpu.expressions.inputs import Inputs
from cer_gpu.expressions.terms import BoundPredicate
from cer_gpu.predicates.cached_tables import BoundSet, digest_of, read_set, set_tables, written_set
from cer_gpu.predicates.cuda.blocks import Job, prefetch_one
from cer_gpu.predicates.cuda.guard_sets import SetInputs
from cer_gpu.predicates.cuda.set_steps import SetSteps
from cer_gpu.predicates.guards import (
    INTERPRETED,
    MAX_SEEN_TYPES,
    BoundGuards,
    SeenEventTypes,
    forced_device,
    sets_pass,
    type_names,
)
from cer_gpu.predicates.host_sets import HostSets
from cer_gpu.predicates.late_tests import LateTest, LateTests
from cer_gpu.predicates.placement import AUTO, CPU, CUDA, Placement
from cer_gpu.predicates.symbol_table import SymbolTable

MAX_GUARDS = 16
"""Most guards of a query that shares them: the number of bits of its words."""

FROM_GUARDS = 64
"""Guards of a set from which on their arrays are cached for later processes."""

SPARSE = 4
"""Ratio of the rows of a block to those that satisfy a guard, above which only these are looked up for partitions."""

NO_ROWS: Int32 = read_only(np.empty(0, np.int32))


@dataclass(frozen=True, eq=False)
class UnboundGuards:
    """Guards of a query that is not bound to the schema of the events, but could be, and may share them.

    Attributes
    ----------
    guards : tuple of Guard
    type_column : str or None
    columns : tuple of str
        Columns that they read.
    digests : tuple of str
        Those of the guards (`digest_of`), or () if unknown.
    program : None
        As of `BoundGuards`.
    """

    guards: tuple[Guard, ...]
    type_column: str | None
    columns: tuple[str, ...]
    digests: tuple[str, ...] = ()
    program: None = None

    @cached_property
    def of_any_type(self) -> list[int]:
        """Guards of events of any type."""
        return [i for i, guard in enumerate(self.guards) if guard.event_type is None]

    @property
    def dtype(self) -> npt.DTypeLike:
        """Type of a word."""
        return np.uint8 if len(self.guards) <= 8 else np.uint16


def may_share(bound: BoundGuards, *, negates: bool) -> bool:
    """Return True if the guards of a query may be shared: others need the words of all events, or columns of its own.

    Descent is a column of the blocks that all queries read (`cer_gpu.engine.over_groups`), and columns of functions of
    one event are made for the events in question.

    Parameters
    ----------
    bound
    negates
        True if an event that satisfies no guard may be relevant.
    """
    own = [column for column in bound.derived.values() if not (is_descent(column) or reads_one_event(column))]
    return not negates and not own and bound.program is not None and bound.n_guards <= MAX_GUARDS


class GuardList:
    """Guards over one schema, which all evaluations of a set know by the same numbers; more can be added.

    Parameters
    ----------
    schema, type_column, stream_column
        As of `SharedGuards`.

    Attributes
    ----------
    types : set of str
        Types that guards name.
    late : LateTests
        Tests that evaluations have bound so far.
    """

    def __init__(self, schema: pa.Schema, type_column: str | None, stream_column: str | None) -> None:
        self.schema: pa.Schema = schema
        self.type_column: str | None = type_column
        self.stream_column: str | None = stream_column
        self.types: set[str] = set()
        self._numbers: dict[Guard, int] = {}
        self._bound: list[tuple[Guard, BoundPredicate | None, Inputs | None]] = []
        self._digests: list[str | None] = []
        self._binder = Binder(schema, "")  # of guards that are not bound, though they can be
        self._steps = SetSteps(schema)
        self._set: BoundSet | None = None
        self.late: LateTests = LateTests(schema)
        self._lock = threading.Lock()

    def numbers(self, bound: BoundGuards | UnboundGuards) -> list[int]:
        """Return the numbers of the guards of a query, which are perhaps new."""
        of = bound if isinstance(bound, BoundGuards) else None
        tests, inputs = ({}, None) if of is None else (dict(of.tests), of.inputs)
        digests = bound.digests if isinstance(bound, UnboundGuards) else ()
        with self._lock:
            return [
                self._add_guard(guard, tests.get(k), inputs, digests[k] if digests else None)
                for k, guard in enumerate(bound.guards)
            ]

    def _add_guard(self, guard: Guard, test: BoundPredicate | None, inputs: Inputs | None, digest: str | None) -> int:
        new = len(self._bound)
        number = self._numbers.setdefault(guard, new)
        if number == new:
            self._bound.append((guard, test, inputs))
            self._digests.append(digest)
            if guard.event_type is not None:
                self.types.add(guard.event_type)
        return number

    @property
    def n_guards(self) -> int:
        """Number of guards."""
        return len(self._bound)

    def name_of_type(self, number: int) -> str | None:
        """Return the type of the events of a guard; None: any."""
        return None if self.type_column is None else self._bound[number][0].event_type

    def add_to(self, steps: SetSteps, number: int, type_number: int | None = None, *, typed: bool = True) -> None:
        """Add a guard to steps: its type by a number, or as a test of the strings of the column of types."""
        guard, test, inputs = self._bound[number]
        if inputs is None:
            inputs = self._binder.inputs
            test = None if guard.predicate is None else self._binder.bind(guard.predicate)
        name = self.name_of_type(number)
        named = [(self.type_column, name)] if typed and self.type_column is not None and name is not None else []
        if guard.stream is not None and self.stream_column is not None:
            named.append((self.stream_column, guard.stream))
        steps.add(guard.predicate, test, inputs, type_number, named)

    def bound(self) -> BoundSet:
        """Return all guards so far as arrays, which are read if an earlier process has cached them."""
        with self._lock:
            if self._set is None and (inputs := self._cache_inputs()) is not None:
                guards = [guard for guard, _, _ in self._bound]
                read = partial(read_set, schema=self.schema, guards=guards)
                self._set = disk_cached("guards", inputs, self._make_lists, written_set, read)
            elif self._set is None or self._set.n_guards < len(self._bound):
                self._set = self._make_lists()
            return self._set

    def _make_lists(self) -> BoundSet:
        for number in range(self._steps.n_guards, len(self._bound)):
            self.add_to(self._steps, number)
        return BoundSet(set_tables(self._steps), self._steps.inputs, dict(self._steps.late))

    def _cache_inputs(self) -> list[bytes | str] | None:
        """Return all inputs of the arrays, or None if caching is impossible, or reading no faster than computing."""
        if len(self._bound) < FROM_GUARDS:
            return None
        try:
            digests = [digest or digest_of(each[0]) for digest, each in zip(self._digests, self._bound, strict=True)]
        except (ValueError, RecursionError):
            return None
        columns = repr((pa.__version__, np.__version__, self.type_column, self.stream_column))
        return [columns, self.schema.serialize().to_pybytes(), *digests]


class SharedGuards:
    """Lists of the rows that satisfy the guards of many queries, block by block.

    Parameters
    ----------
    schema : pyarrow.Schema
    type_column
        Column of event types, or None if all events have one type.
    stream_column
        Column of the streams of events; None: guards test no stream.
    device
        "cpu", "cuda", or "auto": the CPU.

    Attributes
    ----------
    types_seen : dict from str to None
        Types seen in events, as many as hints need, and the types in guards.
    """

    def __init__(
        self, schema: pa.Schema, type_column: str | None, stream_column: str | None, device: str = CPU
    ) -> None:
        self._begin_guards(GuardList(schema, type_column, stream_column), forced_device(device))

    def _begin_guards(self, guards: GuardList, device: str) -> None:
        self.guards: GuardList = guards
        self.schema: pa.Schema = guards.schema
        self.requested: str = device
        self.device: str = CPU if device == AUTO else device
        self.types_seen: dict[str, None] = {}
        self._host: HostSets | None = None
        self._late = guards.late.clone()
        self._late_tests: dict[int, LateTest] = {}
        self._on_device: _OnDevice | None = None
        self._idle: list[_OnDevice] = []  # of evaluations that are over, for others of the same guards
        self._users: WeakSet[SharedWords] = WeakSet()
        self._numbers_of: WeakKeyDictionary[BoundGuards | UnboundGuards, list[int]] = WeakKeyDictionary()
        self._block: Block | None = None
        self._rows: dict[int, Int32] = {}
        self._some: tuple[Int32 | None] | None = None
        self._every: Int32 = NO_ROWS
        self._merged = {(step, size): (Scratch(np.int32), Scratch(f"u{size}")) for step in (0, 1) for size in (1, 2)}

    def may_be(self, other: SharedGuards) -> bool:
        """Return True if others are for events of the same schema, types and streams, on the same device."""
        own, others = ((x.guards.type_column, x.guards.stream_column, x.requested) for x in (self, other))
        return own == others and self.schema.equals(other.schema, check_metadata=True)

    def clone(self) -> SharedGuards:
        """Return the same guards, bound as these are, for another evaluation."""
        other = SharedGuards.__new__(SharedGuards)
        other._begin_guards(self.guards, self.requested)
        other._numbers_of, other._idle = WeakKeyDictionary(self._numbers_of), self._idle
        return other

    def words_for(self, bound: BoundGuards | UnboundGuards, seen_types: SeenEventTypes) -> SharedWords:
        """Return the view of one query, which must be allowed (`may_share`)."""
        words = SharedWords(self, bound, seen_types)
        self._users.add(words)
        return words

    def numbers(self, bound: BoundGuards | UnboundGuards) -> list[int]:
        """Return the numbers of the guards of a query, by which their rows are looked up."""
        numbers = self._numbers_of.get(bound)
        if numbers is None:
            n_before = self.guards.n_guards
            numbers = self._numbers_of[bound] = self.guards.numbers(bound)
            if self.guards.n_guards > n_before:
                self._block = None
        return numbers

    def prepare(self) -> None:
        """Build the arrays of the guards, which all evaluations share."""
        if self.device == CPU:
            self.guards.bound()

    def chosen(self, number: int, block: Block) -> Bools:
        """Return which rows of a block satisfy a guard."""
        mask = np.zeros(block.n_rows, np.bool_)
        mask[self.rows(number, block)] = True
        return mask

    def guards_in(self, block: Block) -> Iterable[int]:
        """Return the numbers of the guards that rows of a block may satisfy."""
        block = self._find_rows(block)
        if self._host is not None:
            alone = np.flatnonzero(self._host.tables.is_all) if block.n_rows else NO_ROWS
            return [*self._host_rows.guards.tolist(), *alone.tolist()]
        return () if self._on_device is None else self._on_device.guards_in(block)

    def rows(self, number: int, block: Block) -> Int32:
        """Return the rows of a block that satisfy the guard of a number, ascending."""
        block = self._find_rows(block)
        rows = self._rows.get(number)
        if rows is None:
            rows = self._rows[number] = self._rows_of(number, block)
        return rows

    def some_of(self, block: Block) -> Int32 | None:
        """Return the rows of a block that may satisfy a guard, ascending, if they are few, or None if they are not."""
        block = self._find_rows(block)
        if self._some is None:
            numbers = list(self.guards_in(block))
            lists = [self._in_question(number, block) for number in numbers]
            is_all = any(rows is None for rows in lists)
            marks = np.zeros(block.n_rows, np.bool_)
            for rows in () if is_all else lists:
                marks[rows] = True
            some = None if is_all else np.flatnonzero(marks).astype(np.int32)
            self._some = (some if some is not None and SPARSE * len(some) < block.n_rows else None,)
        return self._some[0]

    def _find_rows(self, block: Block) -> Block:
        """Find the rows of all guards of a block, unless they are known; return the block that all queries read."""
        block = block.source  # the guards of several queries read no column of one of them
        if block is self._block:
            return block
        self._block, self._some = block, None
        self._rows.clear()
        if self.device == CUDA and block.n_rows:
            if not (self._on_device and self._on_device.has(block)):
                # after a change of schema that leaves the queries' columns as they are, others' blocks are in flight
                for _ in self.prefetch([block]):
                    pass
            return block
        bound = self.guards.bound()
        if self._host is None or self._host.tables is not bound.tables:
            column = self.guards.type_column
            self._host, self._late_tests = HostSets(bound.tables, bound.inputs, column), dict(bound.late)
        self._host_rows = self._host.find(block)
        self._see(self._host.take_named())
        return block

    def _see(self, strings: pa.Array) -> None:
        """Note types that events have."""
        for name in type_names(strings, self.guards.type_column or "") if len(strings) else ():
            if name and (name in self.guards.types or len(self.types_seen) < MAX_SEEN_TYPES):
                self.types_seen[name] = None

    def _in_question(self, number: int, block: Block) -> Int32 | None:
        """Return the rows of a block that the steps of a guard leave, or None for all."""
        if self._host is None:
            return NO_ROWS if self._on_device is None else self._on_device.rows(number, block)
        return None if self._host.tables.is_all[number] else self._host_rows.of(number)

    def _rows_of(self, number: int, block: Block) -> Int32:
        rows = self._in_question(number, block)
        if rows is None:
            if len(self._every) != block.n_rows:
                self._every = read_only(np.arange(block.n_rows, dtype=np.int32))
            rows = self._every
        late = self._late_tests.get(number)
        return read_only(rows if late is None else self._late.rows(number, rows, block, late))

    def prefetch(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield blocks; on a GPU, the guards of each are evaluated before the previous one is yielded."""
        users = self._users if self.device == CUDA else ()
        wanted = sorted({number for user in users for number in user.numbers})
        if not wanted:
            yield from blocks
            return
        if self._on_device is None:
            with suppress(IndexError):
                self._on_device = self._idle.pop()
        on_device, columns = self._on_device, {name for user in users for name in user.bound.columns}
        # unused guards may stay, as they were bound already, but unused columns may not
        stays = on_device is not None and on_device.columns <= columns and on_device.places.keys() >= set(wanted)
        if on_device is None or not stays or 2 * len(wanted) < len(on_device.places):
            if on_device is not None:
                on_device.free()
            on_device = self._on_device = _OnDevice(wanted, self.guards, self)
        yield from on_device.prefetch(blocks)

    def release(self) -> None:
        """Free the memory on the device, and leave the bound tests to other evaluations."""
        self._late.forget()
        self.guards.late = self._late
        if self._on_device is not None:
            self._on_device.free()
            self._idle[:] = [self._on_device]
            self._on_device = None

    def merge(self, lists: list[Int32], dtype: npt.DTypeLike) -> tuple[Int32, npt.NDArray[Any]]:
        """Return the rows of all lists, ascending, and their words of a type, until the next call."""
        n_all = sum(map(len, lists))
        rows, words = lists[0], np.empty(0, dtype)
        for number, more in enumerate(lists[1:] or [NO_ROWS], 1):
            # the memory of the step before is read, so each step writes to the other
            memory = [scratch.empty(n_all) for scratch in self._merged[number % 2, np.dtype(dtype).itemsize]]
            n = merge_rows(rows, words, more, 1 << number, *memory)
            rows, words = (read_only(each[:n]) for each in memory)
        return rows, words


class _OnDevice:
    """Guards on a GPU: the rows of all of them, of one block after the other.

    Parameters
    ----------
    numbers
        Numbers of the guards.
    guards : GuardList
    of : SharedGuards
        Guards of the first evaluation that uses these.

    Attributes
    ----------
    places : dict from int to int
        Place of each guard among these.
    """

    def __init__(self, numbers: list[int], guards: GuardList, of: SharedGuards) -> None:
        self.places: dict[int, int] = {number: place for place, number in enumerate(numbers)}
        self.guards: GuardList = guards
        self._see = of._see
        names = [guards.name_of_type(number) for number in numbers]
        self._types = {name: i for i, name in enumerate(dict.fromkeys(names)) if name is not None}
        self._numbers_of_types = DictionaryCache(self._of_dictionary, np.array(-1, np.int32))
        steps = SetSteps(guards.schema)
        for number, name in zip(numbers, names, strict=True):
            guards.add_to(steps, number, None if name is None else self._types[name], typed=False)
        self._sets = sets_pass(steps)
        self._block: Block | None = None
        self._results: list[Int32] = []

    @property
    def columns(self) -> set[str]:
        """Columns that the guards read."""
        return self._sets.steps.columns

    def free(self) -> None:
        """Free the memory of blocks on the device."""
        self._sets.free()
        self._block, self._results = None, []

    def prefetch(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield blocks whose rows are known; the next one is in flight meanwhile."""
        try:
            for block, _, job in prefetch_one(blocks, lambda block: (CUDA, block.n_rows > 0), self._submit):
                if block.n_rows:
                    self._results, self._block = self._sets.collect(job or self._submit(block)), block
                yield block
        finally:
            self._sets.wait()

    def has(self, block: Block) -> bool:
        """Return True if the rows are those of a block."""
        return block is self._block

    def guards_in(self, block: Block) -> list[int]:
        """Return the numbers of the guards that rows of a block may satisfy."""
        return [number for number, place in self.places.items() if len(self._results[place])] if self.has(block) else []

    def _of_dictionary(self, values: pa.Array) -> npt.NDArray[np.int32]:
        assert self.guards.type_column is not None
        names = type_names(values, self.guards.type_column)
        self._see(values)
        return np.array([-1 if name is None else self._types.get(name, -1) for name in names], np.int32)

    def _submit(self, block: Block) -> Job[None]:
        types, column = None, self.guards.type_column
        if column is not None and self._types:
            coded, valid = block.coded(column), block.valid(column)
            types = self._numbers_of_types(coded.values)[coded.codes]
            types = read_only(types if valid is None else np.where(valid, types, np.int32(-1)))
        return self._sets.submit((SetInputs(block.n_rows, block, types),), None)

    def rows(self, number: int, block: Block) -> Int32:
        """Return the rows of a block that satisfy a guard."""
        place = self.places.get(number)
        if place is None or not self.has(block):
            return NO_ROWS
        return self._sets.apply_late_tests(place, self._results[place], block)


class SharedWords:
    """View of one query on shared guards, in the place of its own (`cer_gpu.predicates.guards.GuardEvaluator`).

    Attributes
    ----------
    shared : SharedGuards
    numbers : list of int
        Numbers of the guards of the query.
    """

    def __init__(self, shared: SharedGuards, bound: BoundGuards | UnboundGuards, seen_types: SeenEventTypes) -> None:
        self.tier = CUDA if shared.device == CUDA else INTERPRETED
        self.shared: SharedGuards
        self.bound: BoundGuards | UnboundGuards
        self.seen_types: SeenEventTypes
        self.shared, self.bound, self.seen_types = shared, bound, seen_types
        self.numbers: list[int] = shared.numbers(bound)
        self.placement: Placement = Placement(shared.device, bound.program)
        if shared.device == CPU and shared.requested == AUTO:
            self.placement.reason = "predicates of several queries stay on the CPU, unless a GPU is asked for"

    def prefetch(self, blocks: Iterable[Block], symbols: SymbolTable) -> Iterator[Block]:
        """Yield blocks as they come."""
        yield from blocks

    def release(self) -> None:
        """Free nothing: the memory on a device is that of all queries (`SharedGuards.release`)."""

    def has_relevant_events(self, block: Block) -> bool:
        """Return True if an event of a block satisfies one of the guards."""
        return any(len(self.shared.rows(number, block)) for number in self.numbers)

    def select(self, block: Block, symbols: SymbolTable) -> SelectedRows:
        """Return the relevant events of a block, valid until the next call."""
        shared = self.shared
        lists = [shared.rows(number, block) for number in self.numbers]
        if not any(map(len, lists)):
            return SelectedRows(NO_ROWS, NO_ROWS)
        rows, words = shared.merge(lists, self.bound.dtype)
        chosen, selected = symbols.select(words)
        if len(selected) < len(rows):
            rows = rows[selected]
        return SelectedRows(chosen, rows, partial(shared.some_of, block))
