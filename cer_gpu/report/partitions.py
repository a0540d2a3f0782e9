"""The partitions of complex events in a report."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.ceql.paths import dotted
from cer_gpu.io.texts import plain, to_json
from cer_gpu.query import Query

MAX_LABEL = 80
"""Most characters of the name of a partition."""


class Partitions:
    """Codes of partitions, and the number of complex events of each.

    Attributes
    ----------
    labels : list of str
        The names of the partitions, by their codes.
    """

    def __init__(self, query: Query) -> None:
        self._names = [dotted(names[0]) for names in query.keys]
        self._codes: dict[str, int] = {}
        self._counter = Counter[int]()
        self.labels: list[str] = []

    @property
    def counts(self) -> list[int]:
        """Number of complex events of each partition, by its code."""
        return [self._counter[code] for code in range(len(self.labels))]

    def counts_in(self, other: Partitions) -> list[int]:
        """Return the number of complex events of each partition that others have counted."""
        return [other._counter[other._codes[name]] for name in self._codes]

    def codes(self, batch: pa.RecordBatch, weights: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int32]:
        """Return the code of the partition of each row, 0 without PARTITION BY, and count its complex events.

        A row is one of them, or as many as `weights` says.
        """
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
        for code, n in zip(codes.tolist(), np.bincount(indices, weights).tolist(), strict=True):
            self._counter[code] += int(n)
        numbered: npt.NDArray[np.int32] = codes[indices]
        return numbered
