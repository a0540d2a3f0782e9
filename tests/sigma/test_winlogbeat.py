"""Rules of the pipeline ``ecs`` find in events as winlogbeat writes them what those of ``windows`` find in the originals."""

import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from outside_data import FOLDER

import cer_gpu
import cer_gpu.sigma
from tests.sigma.test_regression_cases import as_written, cases
from tests.sigma.winlogbeat_events import with_modules, without_modules

pytest.importorskip("sigma")

RULES = FOLDER.parent / "rules" / "sigma_rules.zip"
EVENTS = FOLDER / "windows.parquet"
N_OF_KIND = 150


def table_of(events):
    """Return a table of events, lists as lists and all else as texts."""
    names = dict.fromkeys(name for event in events for name in event)
    columns = {}
    for name in names:
        values = [event.get(name) for event in events]
        is_list = any(isinstance(each, list) for each in values)
        columns[name] = pa.array(values if is_list else [as_written(each) for each in values])
    return pa.table(columns)


def found(rules, table):
    answers = cer_gpu.compile_all(dict(rules), type_column=None).evaluate(table, output="ends")
    return {name: answer["end"].to_pylist() for name, answer in answers.items()}


def recorded_events():
    """Return some recorded events of every kind."""
    table = pq.read_table(EVENTS)
    seen, rows = {}, []
    for row, kind in enumerate(zip(table["Channel"].to_pylist(), table["EventID"].to_pylist(), strict=True)):
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= N_OF_KIND or (seen[kind] % 40 == 0 and seen[kind] < 40 * N_OF_KIND):
            rows.append(row)
    kept = [name for name in table.column_names if name not in ("ts", "dataset", "Hostname")]
    return [{k: v for k, v in event.items() if v is not None} for event in table.select(kept).take(rows).to_pylist()]


def differences(events, shape, of_windows, of_ecs):
    expected = found(of_windows, table_of([{k: str(v) for k, v in event.items()} for event in events]))
    given = found(of_ecs, table_of([shape(event) for event in events]))
    both = expected.keys() & given.keys()
    return {name: (expected[name], given[name]) for name in both if expected[name] != given[name]}, expected
