"""Guards of many queries over one stream, each of which is evaluated once, over the events of its type alone.

The rows of a block are put in the order of their types once (`cer_gpu.columnar.groups`).  A guard gives a list of rows,
with their places in that order, for each block; the relevant events of a query are the merge of the lists of its
guards, with the word of each row (`cer_gpu.predicates.guards`).  A query whose types do not occur in a block reads
nothing of it.

On a GPU, kernels find the rows of all guards of a block at once, from which the lists are taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.arrays import Array, Bools
from cer_gpu.automaton.normal_form import Guard
from cer_gpu.backend.compaction import gather, merge_rows
from cer_gpu.ceql.syntax import Predicate
from cer_gpu.columnar.columns import Block
from cer_gpu.columnar.dictionaries import PerDictionary
from cer_gpu.columnar.groups import Groups, OfGroup, Picked
from cer_gpu.columnar.memory import Scratch, read_only
from cer_gpu.columnar.strings import StringCoder
from cer_gpu.expressions.derived import is_descent
from cer_gpu.predicates.answers import Answers, TestParts
from cer_gpu.predicates.cuda.blocks import Job, one_ahead
from cer_gpu.predicates.cuda.guard_sets import SetInputs
from cer_gpu.predicates.cuda.set_steps import SetSteps
from cer_gpu.predicates.guards import INTERPRETED, BoundGuards, forced, sets_pass, type_names
from cer_gpu.predicates.placement import AUTO, CPU, CUDA, Placement
from cer_gpu.predicates.symbols import SymbolTable
from cer_gpu.predicates.types_met import TypesMet

MOST_GUARDS = 16
"""Most guards of a query that shares them: its words have so many bits."""

Rows = npt.NDArray[np.int32]
List = tuple[Rows, Rows]
"""Rows, ascending, and the place of each."""

NO_ROWS: Rows = read_only(np.empty(0, np.int32))
NO_LIST: List = (NO_ROWS, NO_ROWS)


@dataclass(frozen=True, eq=False)
class UnboundGuards:
    """Guards of a query that is not bound to the schema of the events, but could be, and may share them.

    Attributes
    ----------
    guards : tuple of Guard
    type_column : str or None
    columns : tuple of str
        Columns that they read.
    program : None
        As of `BoundGuards`.
    """

    guards: tuple[Guard, ...]
    type_column: str | None
    columns: tuple[str, ...]
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

    Descent is a column of the blocks that all queries read (`cer_gpu.engine.pasts`).

    Parameters
    ----------
    bound
    negates
        True if an event that satisfies no guard may be relevant.
    """
    own = [column for column in bound.derived.values() if not is_descent(column)]
    return not negates and not own and bound.program is not None and bound.n_guards <= MOST_GUARDS


class SharedGuards:
    """Lists of the rows that satisfy the guards of many queries, block by block.

    Parameters
    ----------
    schema : pyarrow.Schema
    type_column
        Column of event types; None: all events have one type.
    stream_column
        Column of the streams of events; None: guards test no stream.
    device
        "cpu", "cuda", or "auto": the CPU.
    """

    def __init__(
        self, schema: pa.Schema, type_column: str | None, stream_column: str | None, device: str = CPU
    ) -> None:
        self.schema = schema
        self._type_column, self._stream_column = type_column, stream_column
        self.asked: str = forced(device)
        self.device: str = CPU if self.asked == AUTO else self.asked
        self._on_device: _OnDevice | None = None
        self._idle: list[_OnDevice] = []  # of evaluations that are over, for others of the same guards
        self._users: WeakSet[SharedWords] = WeakSet()
        self._block: Block | None = None
        self._of_type: dict[str | None, _OfType] = {}
        self._numbers_of: WeakKeyDictionary[BoundGuards | UnboundGuards, list[int]] = WeakKeyDictionary()
        self._number_of: dict[Guard, int] = {}
        self._guards: list[Guard] = []
        self._found: dict[int, List] = {}
        self._groups = PerDictionary(self._groups_of)
        self.groups: Groups = Groups()
        self._types_read = Scratch(np.int32)
        self._merged = {
            (step, size): (Scratch(np.int32), Scratch(np.int32), Scratch(f"u{size}"))
            for step in (0, 1)
            for size in (1, 2)
        }
        self.types: list[str | None] = []

    def may_be(self, other: SharedGuards) -> bool:
        """Return True if others are for events of the same schema, types and streams, on the same device."""
        own, others = ((x._type_column, x._stream_column, x.asked, x.device) for x in (self, other))
        return own == others and self.schema.equals(other.schema, check_metadata=True)

    def another(self) -> SharedGuards:
        """Return the same guards, bound as these are, for another evaluation."""
        other = SharedGuards(self.schema, self._type_column, self._stream_column, self.asked)
        other._of_type = {event_type: each.fresh() for event_type, each in self._of_type.items()}
        other._numbers_of, other._number_of = WeakKeyDictionary(self._numbers_of), dict(self._number_of)
        other._guards, other._idle = list(self._guards), self._idle
        return other

    def words_for(self, bound: BoundGuards | UnboundGuards, types_met: TypesMet) -> SharedWords:
        """Return the view of one query, which must be allowed (`may_share`)."""
        self.know(bound)
        words = SharedWords(self, bound, types_met)
        self._users.add(words)
        return words

    def know(self, bound: BoundGuards | UnboundGuards) -> None:
        """Group the events of the types of some guards, too, from the next block on."""
        for guard in bound.guards:
            if guard.event_type not in self._of_type:
                of_all = guard.event_type is None or self._type_column is None
                self._of_type[guard.event_type] = (_OfAll if of_all else _OfType)(self.schema)
                self._block, self._groups = None, PerDictionary(self._groups_of)

    def numbers(self, bound: BoundGuards | UnboundGuards) -> list[int]:
        """Return the numbers of the guards of a query."""
        numbers = self._numbers_of.get(bound)
        if numbers is None:
            numbers = self._numbers_of[bound] = [self.number(guard) for guard in bound.guards]
        return numbers

    def number(self, guard: Guard) -> int:
        """Return the number of a guard, by which it is asked for."""
        new = len(self._guards)
        number = self._number_of.setdefault(guard, new)  # guards are asked for by their numbers: hashes are dear
        if number == new:
            self._guards.append(guard)
            self._of_type[guard.event_type].add(number, guard.predicate)
        return number

    def chosen(self, guard: Guard, block: Block) -> Bools:
        """Return which rows of a block satisfy a guard, of a query that is allowed to share it."""
        found = np.zeros(block.n_rows, np.bool_)
        found[self.rows(self.number(guard), block)[0]] = True
        return found

    def rows(self, number: int, block: Block) -> List:
        """Return the rows of a block that satisfy the guard of a number, and their places."""
        block = block.source  # the guards of several queries read no column of one of them
        if block is not self._block:
            self._read(block)
        found = self._found.get(number)
        if found is None:
            found = self._found[number] = self._rows(number)
        return found

    def _read(self, block: Block) -> None:
        """Group the rows of a block by their types."""
        self._block = block
        self._found.clear()
        self.groups.read(self._types_of(block), len(self._of_type))
        for i, of_type in enumerate(self._of_type.values()):
            of_type.read(block, self.groups, i)
        if self.device == CUDA and block.n_rows and not (self._on_device and self._on_device.has(block)):
            # after a change of schema that leaves the queries' columns as they are, others' blocks are in flight
            for _ in self.ahead([block]):
                pass

    def ahead(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield blocks; on a GPU, the guards of each are evaluated before the previous one is yielded."""
        users = self._users if self.device == CUDA else ()
        of_users = {number for user in users for number in user.numbers}
        wanted = {
            number: self._guards[number] for number in sorted(of_users) if self._guards[number].predicate is not None
        }
        if not wanted:
            yield from blocks
            return
        if self._on_device is None:
            with suppress(IndexError):
                self._on_device = self._idle.pop()
        made, columns = self._on_device, {name for user in users for name in user.bound.columns}
        # guards that nobody asks for may stay, as they were bound already, but columns that nobody reads may not
        stays = made is not None and made.columns <= columns and all(made.guards.get(k) is g for k, g in wanted.items())
        if made is None or not stays or 2 * len(wanted) < len(made.guards):
            if made is not None:
                made.free()
            made = self._on_device = _OnDevice(wanted, self.schema, self._type_column)
        yield from made.ahead(blocks)

    def release(self) -> None:
        """Free the memory on the device."""
        if self._on_device is not None:
            self._on_device.free()
            self._idle[:] = [self._on_device]
            self._on_device = None

    def _types_of(self, block: Block) -> npt.NDArray[np.int32]:
        """Return the number of the type of each row; -1 for types that no guard names."""
        if self._type_column is None:
            return np.zeros(block.n_rows, np.int32)
        coded = block.coded(self._type_column)
        groups: npt.NDArray[np.int32] = self._types_read.empty(block.n_rows)
        gather(read_only(self._groups(coded.values)), read_only(coded.codes.astype(np.int32, copy=False)), groups)
        valid = block.valid(self._type_column)
        if valid is not None:
            groups[~valid] = -1
        return groups

    def _groups_of(self, values: pa.Array) -> npt.NDArray[np.int32]:
        numbers = {name: i for i, name in enumerate(self._of_type) if name is not None}
        assert self._type_column is not None
        self.types = type_names(values, self._type_column)
        return np.array([-1 if name is None else numbers.get(name, -1) for name in self.types], np.int32)

    def _rows(self, number: int) -> List:
        guard = self._guards[number]
        of_type = self._of_type[guard.event_type]
        found = None
        if guard.predicate is not None and len(of_type.rows):
            rows = None if self._on_device is None else self._on_device.rows(number, self._block)
            found = of_type.found(number) if rows is None else of_type.among(rows)
        if guard.stream is not None and self._stream_column is not None:
            streams = of_type.taken.coded(self._stream_column)
            named = np.array([name == guard.stream for name in streams.values.to_pylist()] or [False])[streams.codes]
            found = np.flatnonzero(named) if found is None else found[named[found]]
        if found is None:
            return of_type.rows, of_type.places
        if not len(found):
            return NO_LIST
        places = np.add(found, of_type.first, dtype=np.int32, casting="same_kind")
        return read_only(of_type.rows[found]), read_only(places)

    def merge(self, lists: list[List], dtype: npt.DTypeLike) -> tuple[Rows, Rows, npt.NDArray[Any]]:
        """Return the rows of all lists, ascending, their places, and their words of a type, until the next call."""
        n_all = sum(len(rows) for rows, _ in lists)
        rows, places = lists[0]
        words = np.empty(0, dtype)
        for number, more in enumerate(lists[1:] or [NO_LIST], 1):
            # the memory of the step before is read, so each step writes to the other
            memory = [scratch.empty(n_all) for scratch in self._merged[number % 2, np.dtype(dtype).itemsize]]
            n = merge_rows(rows, places, words, *more, 1 << number, *memory)
            rows, places, words = (read_only(each[:n]) for each in memory)
        return rows, places, words


class _OfType:
    """The events of one type in a block, and the tests on them."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._answers = Answers(schema)
        self._coders: dict[str, StringCoder] = {}
        self._tests: dict[int, TestParts] = {}
        self._taken: OfGroup | None = None
        self.rows = self.places = NO_ROWS
        self.first = 0  # place

    def fresh(self) -> Self:
        """Return the same tests for another evaluation."""
        other = type(self)(self._schema)
        other._answers = self._answers.fresh()
        other._tests = {number: list(parts) for number, parts in self._tests.items()}
        return other

    def read(self, block: Block, groups: Groups, number: int) -> None:
        """Go on to another block, in which this type is the group of a number."""
        self._block, self._groups, self._number, self._taken = block, groups, number, None
        places = groups.places(number)
        self.rows, self.places, self.first = groups.rows[places], groups.every[places], places.start

    @property
    def taken(self) -> OfGroup:
        """Columns of the events, taken at their first use."""
        if self._taken is None:
            self._taken = OfGroup(self._block, self._groups, self._number, self._coders)
        return self._taken

    def add(self, number: int, predicate: Predicate | None) -> None:
        """Ask for the predicate of the guard of a number from the next block on."""
        if predicate is not None:
            self._tests[number] = self._answers.bind(predicate)

    def found(self, number: int) -> Array | None:
        """Return which events satisfy the predicate of the guard of a number, ascending; None: all."""
        return self._answers.rows(self._tests[number], self.taken)

    def among(self, rows: Rows) -> Array:
        """Return which events stand in some rows of the block, all of this type, ascending."""
        return np.searchsorted(self.rows, rows)


class _OfAll(_OfType):
    """All events of a block, of whatever type; their places are their rows, which stand in no group."""

    _taken: Block | None  # type: ignore[assignment]

    def read(self, block: Block, groups: Groups, number: int) -> None:
        """See `_OfType`."""
        self._block, self._taken = block, block
        if len(self.rows) != block.n_rows:
            self.rows = self.places = read_only(np.arange(block.n_rows, dtype=np.int32))

    def among(self, rows: Rows) -> Array:
        """See `_OfType`."""
        return rows


class _OnDevice:
    """Guards on a GPU: the rows of all of them, of one block after the other.

    Parameters
    ----------
    guards
        Guards with predicates, by the numbers by which they are asked for.
    schema : pyarrow.Schema
    type_column
        As of `SharedGuards`.

    Attributes
    ----------
    guards : dict from int to Guard
    """

    def __init__(self, guards: dict[int, Guard], schema: pa.Schema, type_column: str | None) -> None:
        self.guards = guards
        self._places = {number: place for place, number in enumerate(guards)}
        names = [guard.event_type if type_column is not None else None for guard in guards.values()]
        self._types = {name: i for i, name in enumerate(dict.fromkeys(names)) if name is not None}
        self._type_column = type_column
        self._numbers_of_types = PerDictionary(self._of_dictionary, np.array(-1, np.int32))
        numbered = [None if name is None else self._types[name] for name in names]
        asked = [(number, guard.predicate) for number, guard in zip(numbered, guards.values(), strict=True)]
        self._sets = sets_pass(SetSteps(asked, schema))
        self._block: Block | None = None
        self._found: list[Rows] = []

    @property
    def columns(self) -> set[str]:
        """Columns that the guards read."""
        return self._sets.steps.columns

    def free(self) -> None:
        """Free the memory of blocks on the device."""
        self._sets.free()
        self._block, self._found = None, []

    def ahead(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield blocks whose rows are known; the next one is in flight meanwhile."""
        try:
            for block, _, job in one_ahead(blocks, lambda block: (CUDA, block.n_rows > 0), self._submitted):
                if block.n_rows:
                    self._found, self._block = self._sets.collect(job or self._submitted(block)), block
                yield block
        finally:
            self._sets.wait()

    def has(self, block: Block) -> bool:
        """Return True if the rows are those of a block."""
        return block is self._block

    def _of_dictionary(self, values: pa.Array) -> npt.NDArray[np.int32]:
        assert self._type_column is not None
        names = type_names(values, self._type_column)
        return np.array([-1 if name is None else self._types.get(name, -1) for name in names], np.int32)

    def _submitted(self, block: Block) -> Job[None]:
        types = None
        if self._type_column is not None and self._types:
            coded, valid = block.coded(self._type_column), block.valid(self._type_column)
            types = self._numbers_of_types(coded.values)[coded.codes]
            types = read_only(types if valid is None else np.where(valid, types, np.int32(-1)))
        return self._sets.submit((SetInputs(block.n_rows, block, types),), None)

    def rows(self, number: int, block: Block | None) -> Rows | None:
        """Return the rows of a block, of the type of a guard, that satisfy its predicate; None: they are not known."""
        place = self._places.get(number)
        if block is None or place is None or not self.has(block):
            return None
        return self._sets.tested(place, self._found[place], block)


class SharedWords:
    """View of one query on shared guards, in the place of its own (`cer_gpu.predicates.guards.GuardWords`)."""

    def __init__(self, shared: SharedGuards, bound: BoundGuards | UnboundGuards, types_met: TypesMet) -> None:
        self.tier = CUDA if shared.device == CUDA else INTERPRETED
        self._shared = shared
        self._in_groups = bound.type_column is not None and not bound.of_any_type
        self._types: list[str | None] = []
        self.bound: BoundGuards | UnboundGuards
        self.types_met: TypesMet
        self.bound, self.types_met = bound, types_met
        self.numbers: list[int] = shared.numbers(bound)
        self.placement: Placement = Placement(shared.device, bound.program)
        if shared.device == CPU and shared.asked == AUTO:
            self.placement.reason = "predicates of several queries stay on the CPU, unless a GPU is asked for"

    def ahead(self, blocks: Iterable[Block], symbols: SymbolTable) -> Iterator[Block]:
        """Yield blocks as they come."""
        yield from blocks

    def release(self) -> None:
        """Free nothing: the memory on a device is that of all queries (`SharedGuards.release`)."""

    def any_in(self, block: Block) -> bool:
        """Return True if an event of a block satisfies one of the guards."""
        return any(len(rows) for rows, _ in self._lists(block))

    def _lists(self, block: Block) -> list[List]:
        shared = self._shared
        lists = [shared.rows(number, block) for number in self.numbers]
        if self._types is not shared.types:
            self._types = shared.types
            self.types_met.add(self._types)
        return lists

    def select(self, block: Block, symbols: SymbolTable) -> Picked:
        """Return the relevant events of a block, valid until the next call."""
        shared, lists = self._shared, self._lists(block)
        if not any(len(rows) for rows, _ in lists):
            return Picked(NO_ROWS, NO_ROWS)
        rows, places, words = shared.merge(lists, self.bound.dtype)
        chosen, kept = symbols.select(words)
        if len(kept) < len(rows):
            rows, places = rows[kept], places[kept]
        return Picked(chosen, rows, places, shared.groups) if self._in_groups else Picked(chosen, rows)
