"""The partitions of complex events in a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Int32, Int64
from cer_gpu.ceql.paths import dotted
from cer_gpu.io.texts import json_texts, plain_values
from cer_gpu.query import Query

MAX_LABEL = 80
"""Most characters of the name of a partition."""


class ShownPartitions:
    """Codes of partitions, and the number of complex events of each.

    Attributes
    ----------
    labels : list of str
        The names of the partitions, by their codes.
    values : list of list of str
        The key of each partition, a text for each bracket of PARTITION BY.
    """

    def __init__(self, query: Query) -> None:
        self._names = [dotted(names[0]) for names in query.partition_keys]
        self._codes: dict[str, int] = {}
        self._counter = Counter[int]()
        self.labels: list[str] = []
        self.values: list[list[str]] = []

    @property
    def counts(self) -> list[int]:
        """Number of complex events of each partition, by its code."""
        return [self._counter[code] for code in range(len(self.labels))]

    def counts_in(self, other: ShownPartitions) -> list[int]:
        """Return the number of complex events of each partition that others have counted."""
        return [other._counter[other._codes[name]] for name in self._codes]

    def codes(self, batch: pa.RecordBatch, weights: Int64 | None = None) -> Int32:
        """Return the code of the partition of each row, 0 without PARTITION BY, and count its complex events.

        A row is one of them, or as many as `weights` says.
        """
        if not self._names:
            return np.zeros(batch.num_rows, np.int32)
        keys = [batch.column(name) for name in self._names]
        names, indices = _distinct(keys)
        firsts = np.unique(indices, return_index=True)[1]  # the names are in the order of first occurrence
        texts = [plain_values(key.take(pa.array(firsts))).to_pylist() for key in keys]
        codes = np.empty(len(firsts), np.int32)
        for i, name in enumerate(names):
            codes[i] = self._codes.setdefault(name, len(self.labels))
            if codes[i] == len(self.labels):
                values = [str(column[i]) for column in texts]
                self.labels.append(", ".join(values)[:MAX_LABEL])
                self.values.append([value[:MAX_LABEL] for value in values])
        for code, n in zip(codes.tolist(), np.bincount(indices, weights).tolist(), strict=True):
            self._counter[code] += int(n)
        numbered: Int32 = codes[indices]
        return numbered

    def known(self, keys: Sequence[pa.Array]) -> Int32:
        """Return the code of the partition of each row by its keys; -1: no complex event is of it."""
        names, indices = _distinct(keys)
        codes = np.array([self._codes.get(name, -1) for name in names], np.int32)
        numbered: Int32 = codes[indices]
        return numbered


def _distinct(keys: Sequence[pa.Array]) -> tuple[list[str], Int32]:
    """Return the distinct names (JSON of the keys), and the index of each row's."""
    separator = pa.scalar(",", pa.large_string())
    # of a dictionary, each value becomes text once
    coded = [key if pa.types.is_dictionary(key.type) else key.dictionary_encode() for key in keys]
    found = pc.binary_join_element_wise(*map(json_texts, coded), separator).dictionary_encode()
    return found.dictionary.to_pylist(), found.indices.to_numpy()
