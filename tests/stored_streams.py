"""Random streams that are stored in files, and the counting pass over them in tasks, splits and batches of any size."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa

from spark_glue.survey import LOCATION, SURVEY_FILE_ROWS, stream_of_survey, survey


def stored_stream(rng, n, n_files):
    """Return rows in order, each with its file and its number there; the files' numbers are in no order."""
    times = sorted(rng.choices(range(n // 2 + 1), k=n))
    cuts = [0, *sorted(rng.choices(range(n + 1), k=n_files - 1)), n]
    numbers = rng.sample(range(n_files), n_files)
    files, rows = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for number, begin, end in zip(numbers, cuts[:-1], cuts[1:], strict=True):
        files[begin:end], rows[begin:end] = number, np.arange(end - begin)
    table = pa.table(
        {LOCATION: files * SURVEY_FILE_ROWS + rows, "ts": pa.array(times, pa.timestamp("us")), "id": range(n)}
    )
    return table, files, rows, times


def surveyed(rng, table, order=("ts", "id")):
    """Survey the rows in tasks, each with splits in any order, and batches of any size."""
    n = len(table)
    cuts = sorted({0, n, *rng.choices(range(n + 1), k=10)})
    tasks = [[] for _ in range(rng.randint(1, 5))]
    for begin, end in itertools.pairwise(cuts):
        rng.choice(tasks).append(table.slice(begin, end - begin))
    found = []
    for splits in tasks:
        rng.shuffle(splits)
        batches = [b for split in splits for b in split.to_batches(max_chunksize=rng.choice([3, 10, 1000]))]
        found += list(survey(batches, list(order)))
    return (
        stream_of_survey(pa.Table.from_batches(found), len(order))
        if found
        else stream_of_survey(pa.table({}), len(order))
    )
