"""Results of a query for a report: complex events to draw, those to show with their rows, and partitions."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.ceql.paths import dotted
from cer_gpu.errors import OptionError
from cer_gpu.io.sources import Source, open_events
from cer_gpu.io.texts import plain, to_json
from cer_gpu.order.rows import without_rows
from cer_gpu.query import Query
from cer_gpu.report.samples import Sample, fingerprints

MAX_DRAWN = 200_000
"""Most complex events on the page."""
MAX_REFERENCES = 100_000
"""Most rows of complex events on the page; a row of several complex events counts for each."""
MAX_ROWS_OF_ONE = 200
"""Most rows of one complex event on the page."""
MAX_WAYS = 16
"""Most valuations of one complex event that give roles to its rows."""
MAX_VALUATIONS = 1 << 20
"""Most valuations that are read, beyond eight for each complex event."""
MAX_LABEL = 80
"""Most characters of the name of a partition."""


@dataclass(frozen=True)
class Found:
    """Results of a query for its report.

    Attributes
    ----------
    n_events, n_matches : int
    notes : tuple of str
        Remarks on the events.
    drawn : pyarrow.Table or None
        ``number``, ``start``, ``end``, ``n_kept`` (number of kept events), ``partition`` (a code) and with a time
        column ``start_time`` and ``end_time`` of a sample of the complex events, every `step`-th.
    detailed : pyarrow.Table or None
        ``number``, ``start``, ``end``, ``positions`` (the first `MAX_ROWS_OF_ONE`) and ``fingerprint`` of a smaller
        sample, every `detail_step`-th of all complex events.
    labels : list of str
        The names of the partitions, by their codes.
    counts : list of int
        Number of complex events of each partition, by its code; all of them, not only the sample.
    """

    n_events: int
    notes: tuple[str, ...]
    n_matches: int
    drawn: pa.Table | None
    step: int
    detailed: pa.Table | None
    detail_step: int
    labels: list[str]
    counts: list[int]


class Events:
    """Events that can be read several times.

    Parameters
    ----------
    events
        Anything that `cer_gpu.Query.evaluate` takes; events that can be read only once are kept in memory.
    """

    def __init__(self, query: Query, events: Any, *, sort: bool = False) -> None:
        self._events = _rereadable(events)
        self._query = query
        self._sort = sort

    def open(self) -> Source:
        """Open the events from the beginning; positions count them in the order in which they are read."""
        return without_rows(self.numbered())

    def numbered(self) -> Source:
        """Open the events with the numbers of their rows in the input, if they come in another order."""
        return self._query.source(self._events, sort=self._sort)


def paths(events: Any) -> list[str]:
    """Return the files and folders among events."""
    if isinstance(events, Mapping):
        return [path for each in events.values() for path in paths(each)]
    if isinstance(events, str | os.PathLike):
        return [os.fspath(events)]
    if isinstance(events, Sequence) and not isinstance(events, bytes):
        return [os.fspath(each) for each in events if isinstance(each, str | os.PathLike)]
    return []


def _rereadable(events: Any) -> Any:
    if isinstance(events, Mapping):
        return {name: _rereadable(each) for name, each in events.items()}
    if isinstance(events, os.PathLike | Sequence):  # str is a Sequence
        return events
    source = open_events(events)
    if source.rereadable:
        return source
    return pa.Table.from_batches(source.batches(source.schema.names), source.schema)


def find(query: Query, events: Events, threads: int | None = None) -> Found:
    """Evaluate a query, and keep the results that a report needs."""
    drawn, detailed = Sample(MAX_DRAWN), Sample(MAX_REFERENCES)
    partitions = _Partitions([dotted(names[0]) for names in query.keys])
    # of what HAVING drops, only valuations are told apart
    evaluator = query.evaluator(output="bindings" if query.drops_rows else "positions")
    n_matches = 0
    for batch in query.matches(events.open(), evaluator, threads):
        if not batch.num_rows:
            continue
        positions = batch.column("positions")
        n_kept = pc.list_value_length(positions)
        numbers = pa.array(np.arange(n_matches, n_matches + batch.num_rows))
        n_matches += batch.num_rows
        columns = {"number": numbers, "start": batch.column("start"), "end": batch.column("end")}
        shown = {"n_kept": n_kept, "partition": pa.array(partitions.codes(batch))}
        shown |= {name: batch.column(name) for name in ("start_time", "end_time") if query.time_column is not None}
        drawn.add(pa.table(columns | shown), np.ones(batch.num_rows, np.int64))
        rows = detailed.of_step(pa.table(columns | {"positions": positions}))  # before the costly steps
        weights = 1 + np.minimum(pc.list_value_length(rows["positions"]).to_numpy(), MAX_ROWS_OF_ONE).astype(np.int64)
        cut = pc.list_slice(rows["positions"], 0, MAX_ROWS_OF_ONE, return_fixed_size_list=False)
        prints = pa.array(fingerprints(rows))
        rows = rows.set_column(rows.num_columns - 1, "positions", cut).append_column("fingerprint", prints)
        detailed.add(rows, weights)
    return Found(
        n_events=evaluator.n_events,
        notes=tuple(evaluator.notes),
        n_matches=n_matches,
        drawn=drawn.rows(),
        step=drawn.step,
        detailed=detailed.rows(),
        detail_step=detailed.step,
        labels=partitions.labels,
        counts=partitions.counts,
    )


class _Partitions:
    """Codes of partitions, and the number of complex events of each."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._codes: dict[str, int] = {}
        self._counter = Counter[int]()
        self.labels: list[str] = []

    @property
    def counts(self) -> list[int]:
        return [self._counter[code] for code in range(len(self.labels))]

    def codes(self, batch: pa.RecordBatch) -> npt.NDArray[np.int32]:
        """Return the code of the partition of each complex event; 0 without PARTITION BY."""
        if not self._names:
            return np.zeros(batch.num_rows, np.int32)
        keys = [batch.column(name) for name in self._names]
        separator = pa.scalar(",", pa.large_string())
        found = pc.binary_join_element_wise(*map(to_json, keys), separator).dictionary_encode()
        indices = found.indices.to_numpy()
        firsts = np.unique(indices, return_index=True)[1]  # the dictionary is in the order of first occurrence
        texts = [plain(key.take(pa.array(firsts))).to_pylist() for key in keys]
        codes = np.empty(len(firsts), np.int32)
        for i, name in enumerate(found.dictionary.to_pylist()):
            codes[i] = self._codes.setdefault(name, len(self.labels))
            if codes[i] == len(self.labels):
                self.labels.append(", ".join(str(column[i]) for column in texts)[:MAX_LABEL])
        for code, n in zip(codes.tolist(), np.bincount(indices).tolist(), strict=True):
            self._counter[code] += n
        numbered: npt.NDArray[np.int32] = codes[indices]
        return numbered


# ---- roles of rows ------------------------------------------------------------------------------------------------


def variables_of(
    query: Query, events: Events, detailed: pa.Table, n_matches: int, threads: int | None = None
) -> list[list[str]] | None:
    """Return the role of each row of complex events: the variables that hold it, in each valuation.

    Parameters
    ----------
    detailed
        `Found.detailed`.
    n_matches
        Number of all complex events.

    Returns
    -------
    list or None
        For each complex event a text for each of its positions, such as "LANDED, late"; roles that differ between
        valuations are joined by " or ".  A complex event whose valuations were not reached has an empty list.  None:
        a variable has the name of another column.
    """
    query = query.without_choice()
    names = _variables(query, events.open())
    if names is None:
        return None
    prints = detailed["fingerprint"].to_numpy()
    order = np.argsort(prints)
    prints = prints[order]
    ways: list[dict[tuple[tuple[str, ...], ...], None]] = [{} for _ in range(len(prints))]
    positions = detailed["positions"].to_pylist()
    left = MAX_VALUATIONS + 8 * n_matches
    for batch in _valuations(query, events, threads):
        own = fingerprints(batch)
        places = np.minimum(np.searchsorted(prints, own), len(prints) - 1)
        hits = np.flatnonzero(prints[places] == own)
        held = batch.select(names).take(pa.array(hits)).to_pylist()
        for hit, valuation in zip(order[places[hits]].tolist(), held, strict=True):
            if len(ways[hit]) < MAX_WAYS:
                sets = {name: set(holds) if isinstance(holds, list) else {holds} for name, holds in valuation.items()}
                way = tuple(tuple(name for name in names if p in sets[name]) for p in positions[hit])
                ways[hit][way] = None
        left -= batch.num_rows
        if left < 0:
            break
    return [_told(each, len(held)) for each, held in zip(ways, positions, strict=True)]


def _valuations(query: Query, events: Events, threads: int | None) -> Iterator[pa.RecordBatch]:
    for batch in query.matches(events.open(), query.evaluator(output="bindings"), threads):
        if batch.num_rows:
            yield batch


def _variables(query: Query, source: Source) -> list[str] | None:
    try:
        query.output_schema(source.schema, "bindings")
        return list(query.variables)
    except OptionError:
        return None


def _told(ways: Mapping[tuple[tuple[str, ...], ...], None], n_rows: int) -> list[str]:
    if not ways:
        return []
    return [" or ".join(dict.fromkeys(", ".join(way[i]) for way in ways if way[i])) for i in range(n_rows)]
