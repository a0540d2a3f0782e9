"""Logs and metadata of tables damaged at random: an error in words, or rows that they tell, and never a traceback."""

import json
import random
import shutil
from collections import Counter

import pyarrow as pa
import pytest
from damaged_files import damage
from deltalake import DeltaTable, write_deltalake
from sizes import scaled, seeds
from written_tables import use_catalogue

import cer_gpu
from cer_gpu.errors import CerError
from cer_gpu.follow.tables import appended_since
from cer_gpu.io.sources import open_events
from cer_gpu.io.tables.opening import open_table
from cer_gpu.io.tables.table_sinks import open_table_sink

QUERY = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
VALUES = [None, -1, 0, 1 << 70, "", "x", [], {}, "../../etc/passwd", True, 1.5]
ROW = pa.record_batch({"type": ["A"], "x": [1], "d": ["u"]})


def events(i):
    return pa.table({"type": ["A", "B", "C"], "x": [i, 2, 3], "d": ["u", "v", "w"]})


def edited(value, rng):
    """Change or remove one value of plain data, at any depth."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys:
        return
    key = rng.choice(keys)
    if isinstance(value[key], dict | list) and value[key] and rng.random() < 0.85:
        edited(value[key], rng)
    elif isinstance(value, dict) and rng.random() < 0.3:
        del value[key]
    else:
        value[key] = rng.choice(VALUES)


def damage_file(path, rng):
    """Remove a file, change a value of its JSON, or change its bytes."""
    if rng.random() < 0.05:
        path.unlink()
    elif path.suffix == ".json" and rng.random() < 0.6:
        lines = path.read_text().splitlines()
        i = rng.randrange(len(lines))
        facts = json.loads(lines[i])
        edited(facts, rng)
        path.write_text("\n".join([*lines[:i], json.dumps(facts), *lines[i + 1 :]]))
    else:
        path.write_bytes(damage(path.read_bytes(), rng))


def outcome_of(name, since, rng):
    """Read a table in one of several ways, or write to it; return "read" or "refused"."""
    try:
        match rng.randrange(4):
            case 0:
                table = open_table(name)
                for each in appended_since(table, since):
                    each.files()
            case 1:
                with open_table_sink(name, ROW.schema) as sink:
                    sink.write(ROW)
            case _:
                open_events(name).schema  # noqa: B018 - what it tells is not looked at
                QUERY.evaluate(name)
    except CerError:
        return "refused"
    return "read"


def check_outcomes(folder, copy, files, name, since):
    outcomes = Counter()
    for seed in seeds(scaled(150, most=10_000)):
        rng = random.Random(seed)
        shutil.rmtree(folder)
        shutil.copytree(copy, folder)
        damage_file(folder / rng.choice(files), rng)
        outcomes[outcome_of(name, since, rng)] += 1
    if sum(outcomes.values()) >= 15:
        assert min(outcomes["read"], outcomes["refused"]) > 0, outcomes


def test_damaged_logs_of_delta_are_refused_or_read(tmp_path):
    folder, copy = tmp_path / "t", tmp_path / "copy"
    for i in range(4):
        write_deltalake(str(folder), events(i), mode="append", partition_by=["d"])
        if i == 2:
            DeltaTable(str(folder)).create_checkpoint()
    shutil.copytree(folder, copy)
    files = [path.relative_to(folder) for path in sorted((folder / "_delta_log").iterdir())]
    check_outcomes(folder, copy, files, f"delta:{folder}", "1")


def test_damaged_metadata_of_iceberg_are_refused_or_read(tmp_path, monkeypatch):
    folder, copy = tmp_path / "t", tmp_path / "copy"
    folder.mkdir()
    table = use_catalogue(monkeypatch, folder).create_table("ns.t", schema=events(0).schema)
    for i in range(4):
        table.append(events(i))
    shutil.copytree(folder, copy)
    files = [path.relative_to(folder) for path in sorted(folder.rglob("metadata/*"))]
    newest = max((path for path in files if path.suffix == ".json"), key=lambda path: path.name)
    files += [newest] * len(files)  # the one that is read
    check_outcomes(folder, copy, files, "iceberg:cat.ns.t", str(table.history()[1].snapshot_id))


@pytest.mark.parametrize(
    "value", [None, "x", {}, [], {"path": 1}, {"path": "a", "stats": {}}, {"path": "a", "dataChange": 0}]
)
def test_an_action_that_is_none_is_told_with_its_line(tmp_path, value):
    folder = tmp_path / "t"
    write_deltalake(str(folder), events(0))
    write_deltalake(str(folder), events(1), mode="append")
    log = folder / "_delta_log" / f"{1:020}.json"
    table = open_table(f"delta:{folder}")
    log.write_text(json.dumps({"commitInfo": {}}) + "\n" + json.dumps({"add": value}))
    if value is None:
        assert appended_since(table, "0") == []
        return
    with pytest.raises(CerError, match=r"00001\.json: is damaged: line 2: "):
        appended_since(table, "0")


def test_a_file_that_no_commit_added_is_an_error_and_not_first_in_the_order(tmp_path):
    folder = tmp_path / "t"
    for i in range(3):
        write_deltalake(str(folder), events(i), mode="append")
    DeltaTable(str(folder)).create_checkpoint()
    log = folder / "_delta_log" / f"{1:020}.json"
    log.write_text(log.read_text().replace('"path":"part-', '"path":"pert-'))
    with pytest.raises(CerError, match="its log is damaged: no commit added 'part-"):
        QUERY.evaluate(f"delta:{folder}")
