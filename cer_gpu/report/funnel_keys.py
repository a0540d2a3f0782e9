"""Funnels of keys, by the start of each that gets furthest; sets whose steps build on each other."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from cer_gpu.ceql.paths import dotted
from cer_gpu.output.funnel_counts import FunnelCounts
from cer_gpu.planning.outputs import funnel_names
from cer_gpu.query import Query
from cer_gpu.report.counted import ShownPartitions
from cer_gpu.runtime.progress.table import NoFunnelError

_MIN_BUFFERED = 1 << 16
"""Minimum number of rows that are compared with those of before at once."""


class FurthestStarts:
    """The row of "funnel" of each key whose start gets furthest, the first if there are several.

    Attributes
    ----------
    keys : list of str
        Names of the columns of the key.
    """

    def __init__(self, query: Query) -> None:
        self.keys: list[str] = [dotted(names[0]) for names in query.partition_keys]
        self._names, self._time_unit = funnel_names(query._plan), query._plan.time_unit
        self._partitions = ShownPartitions(query)
        self._tables: list[pa.Table] = []
        self._n_buffered = 0

    def take(self, rows: pa.RecordBatch) -> None:
        """Take rows."""
        if not rows.num_rows:
            return
        codes = pa.array(self._partitions.codes(rows))
        self._tables.append(pa.Table.from_batches([rows]).drop_columns(self.keys).append_column("code", codes))
        self._n_buffered += rows.num_rows
        if self._n_buffered > max(_MIN_BUFFERED, self._tables[0].num_rows):
            self._reduce()

    def _reduce(self) -> None:
        table = pa.concat_tables(self._tables)
        codes, steps = table["code"].to_numpy(), table["step"].to_numpy()
        order = np.lexsort((np.arange(len(codes)), -steps, codes))
        is_first = np.diff(codes[order], prepend=-1) != 0
        self._tables, self._n_buffered = [table.take(pa.array(np.sort(order[is_first])))], 0

    def counts(self) -> FunnelCounts:
        """Return the counts of keys."""
        counts = FunnelCounts(self._names, self._time_unit)
        if self._tables:
            self._reduce()
            for batch in self._tables[0].combine_chunks().to_batches():
                counts.take(batch)
        return counts


def build_on_each_other(queries: Mapping[str, Query]) -> bool:
    """Return True if each query has the steps of the one before, and more of them, and the same keys."""
    if len(queries) < 2 or len({tuple(query.partition_keys) for query in queries.values()}) > 1:
        return False
    if not all(query.partition_keys for query in queries.values()):
        return False
    try:
        chains = sorted((funnel_names(query._plan) for query in queries.values()), key=len)
    except NoFunnelError:
        return False
    return all(len(a) < len(b) and b[: len(a)] == a for a, b in itertools.pairwise(chains))
