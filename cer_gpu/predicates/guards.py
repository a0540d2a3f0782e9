"""Evaluation of guards into words, one bit vector for each event of a block: bit g is set if guard g holds.

papers: CORE, section 5.4.  A bit stands for a guard (a type test and all the predicates on one event together), not
for a single comparison: that gives fewer distinct vectors, and fewer symbols.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.arrays import Array
from cer_gpu.automaton.normal_form import Guard
from cer_gpu.backend.compaction import gather
from cer_gpu.columnar.columns import NOTHING, Block, is_string, kind_of
from cer_gpu.columnar.dictionary_encoding import DictionaryCache
from cer_gpu.columnar.fields import attribute_type, column_type
from cer_gpu.columnar.memory import read_only
from cer_gpu.columnar.resident import is_resident, refuse_resident, some_are_resident
from cer_gpu.errors import EventsError, QueryTypeError, nearest
from cer_gpu.expressions.binder import Binder, columns_of
from cer_gpu.expressions.derived import DerivedColumn
from cer_gpu.expressions.inputs import CODES, BlockInputs, Inputs, Stored
from cer_gpu.expressions.side_columns import SideColumns
from cer_gpu.expressions.targets.numpy import rows_of
from cer_gpu.expressions.terms import NO_SIDES, BoundPredicate, GuardProgram, Lookup
from cer_gpu.predicates.cuda.blocks import Job, ReadyBlock, prefetch_one
from cer_gpu.predicates.cuda.guard_sets import CudaSets
from cer_gpu.predicates.cuda.selection import CudaPass, CudaWords
from cer_gpu.predicates.cuda.set_steps import SetSteps
from cer_gpu.predicates.generated import CHUNK, Generated, Slots, generated, slots_of
from cer_gpu.predicates.placement import AUTO, CPU, CUDA, Placement, open_device
from cer_gpu.predicates.symbol_table import Selected, SymbolTable, Words

MAX_SEEN_TYPES = 1000
"""Most types to remember, as candidates to propose in place of a missing one."""
FEW_STRINGS = 8
"""Rows for each string of a dictionary, from which on all tests of the string are looked up at once."""
MAX_NAMED_TYPES = 8
"""Most types to list if none is close to the missing one."""


class SeenEventTypes:
    """Event types seen so far, by the dictionaries of the type column: its possible values.

    Threads may share one.

    Parameters
    ----------
    wanted
        Types that the query names.
    """

    def __init__(self, wanted: Iterable[str]) -> None:
        self._missing = dict.fromkeys(wanted)
        self._names: dict[str, None] = {}

    def add(self, values: Sequence[str | None]) -> None:
        """Add the values of a dictionary."""
        if self._missing:
            there = set(values)
            for name in [name for name in list(self._missing) if name in there]:
                self._missing.pop(name, None)  # another thread may have been first
        if len(self._names) < MAX_SEEN_TYPES:
            new = (value for value in values if value)
            self._names.update(dict.fromkeys(islice(new, MAX_SEEN_TYPES)))

    @property
    def notes(self) -> list[str]:
        """Remarks on the types that no event has, once all events were read."""
        return [f"no event has the type {name!r}" + self._instead(name) for name in self._missing]

    def _instead(self, name: str) -> str:
        close = nearest(name, self._names)
        if close is not None:
            return f"; did you mean {close!r}?"
        if not self._names:
            return ""
        shown = sorted(self._names)
        more = ", ..." if len(shown) > MAX_NAMED_TYPES else ""
        return f"; there are {', '.join(map(repr, shown[:MAX_NAMED_TYPES]))}{more}"


def types_named(event_types: Iterable[str | None], type_column: str | None) -> SeenEventTypes:
    """Return the types that a query expects; none without a type column."""
    return SeenEventTypes(name for name in event_types if name is not None and type_column is not None)


TIER: str | None = os.environ.get("CER_GPU_PREDICATES")
"""Forced tier of predicates: `INTERPRETED`, `COMPILED` or (with "auto") `CUDA`; None: the one that pays."""
INTERPRETED, COMPILED = "interpreted", "compiled"


def forced_device(device: str) -> str:
    """Return the requested device, or with "auto" that of a forced `TIER`."""
    return device if TIER is None or device != AUTO else CUDA if TIER == CUDA else CPU


class BoundGuards:
    """Guards of a query bound to one schema: typed tests, and the code generated for them; immutable.

    Parameters
    ----------
    guards
        Guards of the CEA; at least one.
    schema : pyarrow.Schema
    type_column
        Column of event types, or None if all events have one type.
    text
        The query, for error messages.
    stream_column
        Column of the streams of events; None: guards test no stream.

    Attributes
    ----------
    columns : tuple of str
        Columns that the guards read.
    derived : dict from str to DerivedColumn
        Columns that are made before they are evaluated.
    n_guards : int
    of_any_type : list of int
        Guards of events of any type, or of none.
    program : GuardProgram or None
        Tests as terms, or None if no event has a type, so there is nothing to evaluate.

    Raises
    ------
    QueryTypeError
        When the predicates do not fit the schema.
    """

    def __init__(
        self,
        guards: tuple[Guard, ...],
        schema: pa.Schema,
        type_column: str | None,
        text: str,
        stream_column: str | None = None,
    ) -> None:
        self.n_guards: int = len(guards)
        self.guards = guards
        self.type_column = type_column
        self.stream_column = stream_column
        self.of_any_type: list[int] = [i for i, guard in enumerate(guards) if guard.event_type is None]
        data_type = None if type_column is None else type_column_type(schema, type_column)
        binder = Binder(schema, text)
        bound = {g.predicate: binder.bind(g.predicate) for g in guards if g.predicate is not None}
        inputs = binder.inputs
        self.inputs: Inputs = inputs
        self.derived: dict[str, DerivedColumn] = binder.derived
        self.tests: tuple[tuple[int, BoundPredicate], ...] = tuple(
            (i, bound[g.predicate]) for i, g in enumerate(guards) if g.predicate is not None
        )
        no_type = data_type is not None and kind_of(data_type) == NOTHING
        # the type test has the same result for all events: there is one type, or no event has any
        self.constant: npt.NDArray[Any] | None = None
        if data_type is None or no_type:
            self.constant = self.pack([self.of_any_type if no_type else range(self.n_guards)])
        named = [name for name in (type_column, stream_column) if name is not None]
        read = columns_of([g.predicate for g in guards if g.predicate is not None])
        self.columns: tuple[str, ...] = tuple(dict.fromkeys([*named, *read]))
        types, streams = (None if n is None else inputs.column(n, CODES) for n in (type_column, stream_column))
        program = GuardProgram(self.n_guards, types, streams, self.tests)
        self.program: GuardProgram | None = None if no_type else program
        self.slots: Slots = slots_of(program)
        self.code: Generated | None = None if no_type else generated(program)
        constants = inputs.constant_arrays()
        self.constants: dict[str, Array] = {dtype: constants[dtype] for dtype in self.slots.constants}

    @property
    def dtype(self) -> npt.DTypeLike:
        """Type of a word: uint8 or uint16 if the guards fit, else uint64, several to a word."""
        return np.uint8 if self.n_guards <= 8 else np.uint16 if self.n_guards <= 16 else np.uint64

    @property
    def may_compile(self) -> bool:
        """True if there is a compiled pass, to be used when it pays."""
        return self.code is not None and TIER != INTERPRETED

    def pack(self, rows: Sequence[Collection[int]]) -> npt.NDArray[Any]:
        """Return one word for each list of guards."""
        if self.dtype != np.uint64:
            return np.array([sum(1 << g for g in guards) for guards in rows], self.dtype)
        words = np.zeros((len(rows), (self.n_guards + 63) // 64), np.uint64)
        for row, guards in zip(words, rows, strict=True):
            for g in guards:
                row[g // 64] |= np.uint64(1 << g % 64)
        return words


class GuardEvaluator:
    """Evaluation of bound guards over blocks, with its state from block to block.

    Parameters
    ----------
    bound : BoundGuards
    device
        "cpu", "cuda" or "auto".
    seen_types
        Collects the types that occur.
    sides
        Sides of join predicates, which a GPU computes for the relevant events, or None if there are none.

    Attributes
    ----------
    bound : BoundGuards
    tier : str
        Tier of the last block: `INTERPRETED` (NumPy, one operation at a time), `COMPILED` (one pass) or `CUDA` (one
        kernel on a GPU).
    placement : Placement
        Device of the next block, with the reason.
    seen_types : SeenEventTypes
    """

    def __init__(
        self,
        bound: BoundGuards,
        device: str = CPU,
        seen_types: SeenEventTypes | None = None,
        sides: SideColumns | None = None,
    ) -> None:
        device = forced_device(device)
        self.bound = bound
        self.seen_types: SeenEventTypes = seen_types or types_named(
            (g.event_type for g in bound.guards), bound.type_column
        )
        self.tier: str = INTERPRETED
        self.placement: Placement = Placement(device, bound.program)
        self._inputs = bound.inputs.fresh()
        self._types = DictionaryCache(self._type_words, bound.pack([bound.of_any_type]))
        self._streams = DictionaryCache(self._stream_words)
        self._tests_of_strings = _tests_of_strings(bound)
        self._words_of_strings = {
            name: DictionaryCache(partial(self._string_words, tests)) for name, tests in self._tests_of_strings.items()
        }
        self._allowed = np.empty(CHUNK, bound.dtype)
        self._sides = sides if sides is not None and sides.sides.values else None
        self._pass: CudaPass | None = None
        self._words_pass: CudaWords | None = None
        self._ready: ReadyBlock[SymbolTable] | None = None

    def prefetch(self, blocks: Iterable[Block], symbols: SymbolTable) -> Iterator[Block]:
        """Yield blocks; on a GPU, each is submitted before the previous one is yielded for `select`."""
        try:
            for ready in prefetch_one(blocks, self._choose, lambda block: self._submit(block, symbols)):
                self._ready = ready
                yield ready.block
        finally:
            if self._pass is not None:
                self._pass.wait()
            self._ready = None

    def select(self, block: Block, symbols: SymbolTable) -> Selected:
        """Return symbols and rows (int32) of the relevant events of a block, valid until the next call."""
        ready = self._ready
        if ready is None or ready.block is not block:
            ready = ReadyBlock(block, self.placement.device if block.n_rows else CPU, None)
        begun = time.perf_counter()
        if ready.device == CUDA:
            relevant = self._cuda().collect(ready.job or self._submit(block, symbols))
            if self._sides is not None:
                self._sides.take(block, relevant.rows, relevant.sides)
            selected, self.tier = (relevant.symbols, relevant.rows), CUDA
        else:
            selected = self._select_on_host(block, symbols)
        self.placement.took(ready.device, block.n_rows, time.perf_counter() - begun)
        return selected

    def all_words(self, blocks: Iterable[Block]) -> Iterator[tuple[Block, Words]]:
        """Yield blocks with the words of all their events (`words`), valid until the next one.

        On a GPU, each is submitted before the previous one is yielded.
        """
        try:
            for block, device, job in prefetch_one(blocks, self._choose, self._words_submitted):
                begun = time.perf_counter()
                if device == CUDA:
                    job = job or self._words_submitted(block)
                    assert self._words_pass is not None
                    (words,), self.tier = self._words_pass.collect(job), CUDA
                else:
                    words, self.tier = self.words(block), INTERPRETED
                self.placement.took(device, block.n_rows, time.perf_counter() - begun)
                yield block, words
        finally:
            if self._words_pass is not None:
                self._words_pass.wait()

    def _words_submitted(self, block: Block) -> Job[None]:
        self._words_pass = self._words_pass or words_pass([self])
        return self._words_pass.submit((self.inputs_of(block),), None)

    def _select_on_host(self, block: Block, symbols: SymbolTable) -> Selected:
        """Do the work of `select` on the CPU."""
        compiled = self._compiled_pass(block)
        self.tier = INTERPRETED if compiled is None else COMPILED
        if compiled is None:
            return symbols.select(self.words(block))
        if self.bound.dtype != np.uint64:
            return symbols.select_by(lambda *state: compiled(*state, self._allowed), block.n_rows)
        words = np.empty((block.n_rows, (self.bound.n_guards + 63) // 64), np.uint64)
        compiled(words)
        return symbols.select(words)

    def _choose(self, block: Block) -> tuple[str, bool]:
        """Choose the device of a block; return it, and True if the block is to be submitted ahead."""
        compared = () if self._sides is None else self._sides.names
        resident = some_are_resident() and any(
            is_resident(block.column(name)) for name in (*self.bound.columns, *compared)
        )
        if resident and self.bound.slots.external:
            refuse_resident(
                block.batch, self.bound.columns, "a comparison of strings, decimals or times of two columns"
            )
        self.placement.choose(resident)
        device = self.placement.device if block.n_rows else CPU
        return device, device == CUDA and not self.placement.is_measuring

    def _cuda(self) -> CudaPass:
        """Return the pass on the GPU, compiled at the first use."""
        if self._pass is None:
            assert self.bound.program is not None
            sides = NO_SIDES if self._sides is None else self._sides.sides
            self._pass = CudaPass(open_device(), self.bound.program, sides)
        return self._pass

    def _submit(self, block: Block, symbols: SymbolTable) -> Job[SymbolTable]:
        inputs = self.inputs_of(block)
        return self._cuda().submit(
            (inputs,) if self._sides is None else (inputs, self._sides.inputs_of(block)), symbols
        )

    def release(self) -> None:
        """Free the memory on the device."""
        for each in (self._pass, self._words_pass):
            if each is not None:
                each.wait()
        self._pass = self._words_pass = None

    def inputs_of(self, block: Block) -> BlockInputs:
        """Return the inputs of the tests for a block."""
        return self._inputs_of(block, self._inputs.stored_of(self.bound.slots.columns, block))

    def _inputs_of(self, block: Block, stored: dict[int, Stored]) -> BlockInputs:
        inputs, slots, n = self._inputs, self.bound.slots, block.n_rows
        tables: dict[str | int, npt.NDArray[Any]] = {}
        if self.bound.type_column is not None:
            tables["types"] = read_only(self._types(block.stored_codes(self.bound.type_column)[1]))
        if self.bound.stream_column is not None:
            tables["streams"] = read_only(self._streams(block.stored_codes(self.bound.stream_column)[1]))
        for slot in slots.tables:
            column, table = inputs.tables[slot]
            values = block.stored_codes(inputs.columns[column.slot][0])[1]
            tables[slot] = read_only(table(values).view(np.uint8))
        return BlockInputs(
            n,
            stored,
            self.bound.constants,
            tables,
            {
                slot: read_only(np.broadcast_to(inputs.external[slot](block), n)).view(np.uint8)
                for slot in slots.external
            },
        )

    def _compiled_pass(self, block: Block) -> Callable[..., Any] | None:
        """Return the compiled pass over a block, or None if there is none, or it does not pay yet."""
        code, n = self.bound.code, block.n_rows
        if code is None or not n or TIER == INTERPRETED or not code.may_run(n, at_once=TIER == COMPILED):
            return None
        by_slot = self._inputs.stored_of(self.bound.slots.columns, block)
        stored = by_slot.values()
        nullable = any(column.valid is not None for column in stored)
        run = code.run(nullable, n, at_once=TIER == COMPILED)
        if run is None:
            return None
        rows = self._inputs_of(block, by_slot)
        arguments: list[Any] = [column.values for column in stored]
        if nullable:
            arguments += [_all_valid(n) if column.valid is None else column.valid for column in stored]
        bits = [bit for column in stored for bit in (column.first_bit, column.first_valid)]
        arguments += [read_only(np.array(bits, np.int64)), *self.bound.constants.values()]
        arguments += [*rows.tables.values(), *rows.external.values()]
        return partial(run, n, *arguments)

    def words(self, block: Block) -> Words:
        """Return the words of a block.

        Returns
        -------
        uint8 or uint16 array, shape (n rows,), for at most 8 or 16 guards; otherwise uint64, shape (n rows,
        n words), bit g being bit g % 64 of word g // 64.
        """
        if self.bound.constant is not None:
            constant = self.bound.constant
            words = np.broadcast_to(constant, (block.n_rows, *constant.shape[1:])).copy()
        else:
            assert self.bound.type_column is not None
            coded = block.coded(self.bound.type_column)
            of_type = self._types(coded.values)
            words = of_type.take(coded.codes, axis=0)
            valid = block.valid(self.bound.type_column)
            if valid is not None:
                words[~valid] = of_type[-1]
        if self.bound.stream_column is not None:
            streams = block.coded(self.bound.stream_column)
            words &= self._streams(streams.values).take(streams.codes, axis=0)
        tests = self.bound.tests if words.ndim == 2 else self._look_up_together(block, words)
        one = words.dtype.type(1)
        for guard, test in tests:
            word = words if words.ndim == 1 else words[:, guard // 64]
            bit = words.dtype.type(guard if words.ndim == 1 else guard % 64)
            rows = rows_of(test, self._inputs, block)
            if isinstance(rows, np.ndarray):
                lost = np.logical_not(rows).view(np.uint8).astype(words.dtype, copy=False)
                np.multiply(lost, one << bit, out=lost)  # shifts of bytes are not vectorised
                word &= np.invert(lost, out=lost)
            elif not rows:
                word &= ~(one << bit)
        return words

    def _look_up_together(self, block: Block, words: npt.NDArray[Any]) -> list[tuple[int, BoundPredicate]]:
        """Clear the bits of tests of one string column where its dictionary is short; return the other tests."""
        rest = list(self.bound.tests)
        for name, tests in self._tests_of_strings.items():
            coded = block.coded(name)
            if FEW_STRINGS * len(coded.values) > block.n_rows or coded.codes.dtype != np.int32:
                continue
            taken = np.empty_like(words)
            gather(self._words_of_strings[name](coded.values), read_only(coded.codes), taken)
            valid = block.valid(name)
            if valid is not None:
                taken[~valid] = self.bound.pack([set(range(self.bound.n_guards)) - {guard for guard, _ in tests}])[0]
            words &= taken
            rest = [each for each in rest if each not in tests]
        return rest

    def _string_words(self, tests: list[tuple[int, Lookup]], values: pa.Array) -> npt.NDArray[Any]:
        """Return for each string the guards that some tests of it leave, as words."""
        lost = np.zeros(len(values), self.bound.dtype)
        for guard, test in tests:
            holds = self._inputs.tables[test.table][1](values)[:-1]
            lost |= (~holds).astype(self.bound.dtype) << guard
        words: npt.NDArray[Any] = ~lost & self.bound.pack([range(self.bound.n_guards)])[0]
        return words

    def _type_words(self, values: pa.Array) -> npt.NDArray[Any]:
        by_type: dict[str | None, list[int]] = {}
        for i, guard in enumerate(self.bound.guards):
            by_type.setdefault(guard.event_type, []).append(i)
        of_any_type = by_type.pop(None, [])
        assert self.bound.type_column is not None
        strings = type_names(values, self.bound.type_column)
        self.seen_types.add(strings)
        return self.bound.pack([[*by_type.get(text, []), *of_any_type] for text in strings])

    def _stream_words(self, values: pa.Array) -> npt.NDArray[Any]:
        return self.bound.pack(
            [
                [i for i, guard in enumerate(self.bound.guards) if guard.stream is None or guard.stream == value]
                for value in values.to_pylist()
            ]
        )


def _tests_of_strings(bound: BoundGuards) -> dict[str, list[tuple[int, Lookup]]]:
    """Return guards that are one test of a string, by the column, where one column has several."""
    tests: dict[str, list[tuple[int, Lookup]]] = {}
    for guard, test in bound.tests:
        if isinstance(test, Lookup):
            tests.setdefault(bound.inputs.columns[test.codes.slot][0], []).append((guard, test))
    return {name: each for name, each in tests.items() if len(each) > 1}


def words_pass(parts: Sequence[GuardEvaluator]) -> CudaWords:
    """Return the kernels of the words of several evaluations, over the same copies of columns."""
    return CudaWords(open_device(), [part.bound.program for part in parts if part.bound.program is not None])


def sets_pass(steps: SetSteps) -> CudaSets:
    """Return the kernels of the rows of the guards of a set."""
    return CudaSets(open_device(), steps)


@lru_cache(4)
def _all_valid(n_rows: int) -> npt.NDArray[np.uint8]:
    """Return validity bits of rows without NULL."""
    return read_only(np.full((n_rows + 7) // 8, 255, np.uint8))


def type_names(values: pa.Array, type_column: str) -> list[str | None]:
    """Return the types in a dictionary of the type column.

    Raises
    ------
    EventsError
        When one is not UTF-8.
    """
    try:
        names: list[str | None] = values.to_pylist()
    except UnicodeDecodeError as error:
        raise EventsError(f"the type column {type_column!r} holds text that is not UTF-8: {error}") from None
    return names


def type_column_type(schema: pa.Schema, name: str) -> pa.DataType:
    """Return the type of the column of event types; raise an error unless it holds strings (or only NULL)."""
    if attribute_type(schema, name) is None and name not in schema.names:
        raise no_type_column(schema, name, {})
    data_type = column_type(schema, name, None, None)
    if not is_string(data_type) and kind_of(data_type) != NOTHING:
        raise QueryTypeError(
            f"the type column {name!r} must hold strings, and is {data_type}",
            hint="name another: type_column=... (--type-column)",
        )
    return data_type


def string_columns(schema: pa.Schema) -> list[str]:
    """Return the string columns, each name once."""
    kinds = ((field.name, field.type) for field in schema)
    plain = ((name, kind.value_type if pa.types.is_dictionary(kind) else kind) for name, kind in kinds)
    return [name for name, kind in plain if is_string(kind) and len(schema.get_all_field_indices(name)) == 1]


def no_type_column(schema: pa.Schema, name: str, holding: Mapping[str, Sequence[str]]) -> QueryTypeError:
    """Return the error of events without the column of their types.

    Parameters
    ----------
    schema
    name
        The column that is missing.
    holding
        Columns that have types of the query among their values, with these.
    """
    strings = list(holding) or string_columns(schema)
    near = nearest(name, strings)
    first = [near] if near else []
    could = [*first, *(each for each in strings if each not in first)]
    if could:
        types = holding.get(could[0], ())
        reason = f", which has {' and '.join(map(repr, types[:3]))}" if types else ""
        others = f" (or {', '.join(map(repr, could[1:5]))}{', ...' if len(could) > 5 else ''})" if could[1:] else ""
        name_it = f"type_column={could[0]!r} (--type-column {could[0]})"
        could_be = f"did you mean {near!r}?" if near else f"the types may stand in {could[0]!r}{reason}{others}:"
        statement = f"{could_be} {name_it}"
    else:
        statement = "no column holds text"
    none = "without types, the name of the stream is that of all events: type_column=None (--no-type-column)"
    return QueryTypeError(f"the events have no column {name!r}", hint=f"{statement}; {none}")
