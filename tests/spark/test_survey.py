"""The counting pass: positions of rows that lie in order in their files, however files and batches are cut."""

from __future__ import annotations

import math
import random

import numpy as np
import pyarrow as pa
import pytest
from sizes import seeds
from stored_streams import stored_stream, surveyed

from spark_glue import survey as module
from spark_glue.survey import FILE, LOCATION, SURVEY_FILE_ROWS, stream_of_survey, survey


@pytest.mark.parametrize("most", [4, 50, 256])
@pytest.mark.parametrize("seed", seeds(60))
def test_rows_in_order_are_counted(monkeypatch, most, seed):
    monkeypatch.setattr(module, "MAX_SURVEY_RUNS", most)
    monkeypatch.setattr(module, "SHORTEST", 2)
    rng = random.Random(seed)
    n = rng.randint(1, 300)
    table, files, rows, times = stored_stream(rng, n, rng.randint(1, 4))
    found = surveyed(rng, table)
    assert found is not None
    assert found.n_rows == n
    assert (np.array(found.offsets)[files] + rows).tolist() == list(range(n))
    assert [times[p] for p in found.positions] == found.wheres


def test_equal_rows_of_two_files_keep_the_order_of_the_files():
    """As they would if they were sorted: here they would not, and must be."""
    times = {0: [5, 6, 9], 1: [1, 2, 5]}
    found = []
    for file, values in times.items():
        rows = {LOCATION: [file * SURVEY_FILE_ROWS + i for i in range(3)], "ts": values}
        found += list(survey([pa.record_batch(rows)], ["ts"]))
    assert stream_of_survey(pa.Table.from_batches(found), 1) is None
    swapped = pa.Table.from_batches(found)
    swapped = swapped.set_column(0, FILE, pa.array([1 - n for n in swapped[FILE].to_pylist()]))
    assert stream_of_survey(swapped, 1).offsets == (0, 3)


def test_no_rows():
    assert stream_of_survey(pa.table({}), 1).n_rows == 0


@pytest.mark.parametrize("what", ["swapped", "left out", "missing", "not a number", "twice"])
@pytest.mark.parametrize("seed", seeds(10))
def test_other_rows_must_be_sorted(what, seed):
    rng = random.Random(seed)
    n = rng.randint(5, 200)
    table, _, _, times = stored_stream(rng, n, 1)
    times = [float(t) for t in times]
    row = rng.randrange(1, n - 1)
    if what == "swapped":
        times[row - 1], times[row] = times[row] + 1, times[row - 1]
    if what == "not a number":
        times[row] = math.nan
    if what == "missing":
        times[row] = None
    table = table.set_column(1, "ts", pa.array(times))
    if what == "left out":
        table = pa.concat_tables([table.slice(0, row), table.slice(row + 1)])
    if what == "twice":
        table = pa.concat_tables([table.slice(0, row + 1), table.slice(row)])
    assert surveyed(rng, table, ["ts"]) is None
