"""A standalone cluster: master, workers and drivers are processes that share only a folder of data.

The packages come with each job as an archive.  Executors and drivers are killed, and nothing is lost or doubled.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from cluster_cases import CASES, N_ROWS, PAIRS, RULES
from killed_stream import KEYED, WHOLE
from spark_cluster import SECONDS_OF_A_JOB, kill_group, running_cluster, skip_unless_possible
from spark_streams import add_files, end_at, late_by, random_events
from spark_streams import rows_of as stream_rows_of

import cer_gpu
from cer_gpu.backend.jit import STAMP
from cer_gpu.backend.prebuilt import ENVIRONMENT, about, has_features, write_folder
from spark_glue import package

skip_unless_possible()
pytestmark = pytest.mark.long("starts a cluster of Spark")

TESTS = Path(__file__).parents[1]
PROGRAM = TESTS / "cluster_program.py"
NUMBA = {f"spark.executorEnv.{name}": value for name, value in {**ENVIRONMENT, "NUMBA_DEBUG_CACHE": "1"}.items()}
"""Workers compile for the processor of the platform wheel, and report what they save and load."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return package(tmp_path_factory.mktemp("shipped") / "cer_gpu.zip")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder that all nodes see: events as files and as tables, rules, and what jobs find."""
    folder = tmp_path_factory.mktemp("data")
    write_events(folder / "events")
    return folder


def stored():
    return pa.table(
        {
            "type": ["ABC"[i * 7 % 3] for i in range(N_ROWS)],
            "k": pa.array([i * 5 % 11 for i in range(N_ROWS)], pa.int64()),
            "name": ["ann" if i % 97 == 0 else "bob" for i in range(N_ROWS)],
            "ts": pa.array([1_000_000 * i for i in range(N_ROWS)], pa.timestamp("us", "UTC")),
        }
    )


def write_events(folder):
    from deltalake import write_deltalake
    from written_tables import delete_by_vector, delete_positions, use_catalogue

    events = stored()
    (folder / "files").mkdir(parents=True)
    for i in range(2):
        pq.write_table(events.slice(i * 600, 600), folder / "files" / f"{i}.parquet", row_group_size=150)
    write_deltalake(str(folder / "delta"), events, partition_by=["name"])
    write_deltalake(str(folder / "deleted"), events, configuration={"delta.enableDeletionVectors": "true"})
    delete_by_vector(str(folder / "deleted"), range(0, N_ROWS, 7))
    with pytest.MonkeyPatch.context() as patch:
        catalogue = use_catalogue(patch, folder)
        catalogue.create_table("ns.t", events.schema).append(events)
        table = catalogue.create_table("ns.deleted", events.schema)
        table.append(events)
        delete_positions(table, range(0, N_ROWS, 5))
    (folder / "rules").mkdir()
    for name, text in RULES.items():
        (folder / "rules" / name).write_text(text)


def catalogue_of(data):
    """Return the environment that names the catalogue of Iceberg; only drivers have it."""
    of = {"TYPE": "sql", "URI": f"sqlite:///{data}/events/catalogue.db", "WAREHOUSE": f"file://{data}/events"}
    return {f"PYICEBERG_CATALOG__CAT__{name}": value for name, value in of.items()}


def rows_of(found, names=None):
    """Return rows as texts, without positions and columns that are NULL; a set gives tables by the names of queries."""
    if isinstance(found, dict):
        return sorted(text for name, table in found.items() for text in rows_of(table, name))
    named = {} if names is None else {"query": names}
    rows = [named | {name: value for name, value in row.items() if value is not None} for row in found.to_pylist()]
    without = ("start", "end", "positions", "match")
    shown = [{name: value for name, value in row.items() if name not in without} for row in rows]
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in shown)


def saved_kernels(node):
    return re.findall(r"data saved to '(\S+\.nbc)'", node.executor_logs())


FIRST = ("key of files", "range of rows", "broadcast of files")


@pytest.fixture(scope="module")
def first_job(cluster, archive, data):
    """What the driver of the first job printed, on nodes that have compiled nothing before."""
    settings = {"settings": NUMBA, "environment": {"PYTHONPATH": str(TESTS)}}
    return cluster.run(PROGRAM, "match", str(data), *FIRST, archive=archive, **settings).splitlines()


@pytest.fixture(scope="module")
def second_job(cluster, archive, data, first_job):
    """What the driver of the other cases printed."""
    settings = {"settings": NUMBA, "environment": {"PYTHONPATH": str(TESTS), **catalogue_of(data)}}
    others = [name for name in CASES if name not in FIRST]
    return cluster.run(PROGRAM, "match", str(data), *others, archive=archive, **settings).splitlines()


def test_workers_have_nothing_but_the_archive(cluster, first_job):
    places = [json.loads(line) for line in first_job[-2:]]
    for folder, home, package_file, _ in places:
        (node,) = (node for node in cluster.nodes if home == str(node.folder / "home"))
        assert Path(folder).is_relative_to(node.folder / "work")
        assert package_file.endswith("cer_gpu.zip/cer_gpu/__init__.pyc")
    assert sum(int(n_rows) for *_, n_rows in places) == 8


def test_each_node_compiles_each_kernel_once_and_later_jobs_none(cluster, archive, data, first_job):
    saved = {node.host: saved_kernels(node) for node in cluster.nodes}
    for paths in saved.values():
        assert len(paths) == len(set(paths)) > 10
    settings = {"settings": NUMBA, "environment": {"PYTHONPATH": str(TESTS)}}
    cluster.run(PROGRAM, "match", str(data), *FIRST, archive=archive, **settings)
    assert {node.host: saved_kernels(node) for node in cluster.nodes} == saved


@pytest.mark.parametrize("name", CASES)
def test_a_cluster_finds_the_rows_of_one_process(first_job, second_job, data, monkeypatch, name):
    for variable, value in catalogue_of(data).items():
        monkeypatch.setenv(variable, value)
    assert name in (first_job if name in FIRST else second_job)
    case, events = CASES[name], data / "events"
    query, place = case.compiled(events), case.place(events)
    expected = query.alerts(stored()) if case.output == "alerts" else query.evaluate(place, output=case.output)
    found = pq.read_table(data / "found" / f"{name}.parquet")
    assert found.num_rows > 10
    assert rows_of(found) == rows_of(expected)


def test_the_command_is_a_job_of_the_cluster(cluster, archive, data):
    """A driver with nothing but the archive: the query is a file in its folder, the result appears whole."""
    program = data / "main.py"
    program.write_bytes((TESTS.parent / "spark_glue" / "__main__.py").read_bytes())
    (cluster.driver.folder / "work" / "pairs.ceql").write_text(PAIRS)
    arguments = ["run", "pairs.ceql", "--input", str(data / "events" / "files"), "--order-by", "ts"]
    arguments += ["-o", str(data / "out"), "--tasks", "2", "--json"]
    summary = json.loads(cluster.run(program, *arguments, archive=archive, settings=NUMBA))
    expected = CASES["key of files"].compiled(data).evaluate(str(data / "events" / "files"), output="events")
    assert (summary["n_rows"], summary["n_matches"]) == (N_ROWS, expected.num_rows)
    assert rows_of(pq.read_table(data / "out").cast(expected.schema)) == rows_of(expected)


def test_a_platform_wheel_as_archive_compiles_nothing(cluster, archive, data, first_job, tmp_path):
    from numba.core.codegen import get_host_cpu_features

    if not has_features(get_host_cpu_features()):
        pytest.skip("this processor cannot run the code of the wheel")
    (cache,) = cluster.nodes[0].folder.glob(f"home/.cache/cer-gpu/loops/archive-{STAMP[:16]}")
    assert write_folder(cache, tmp_path / "prebuilt", STAMP) > 10
    wheel = tmp_path / "cer_gpu.zip"
    wheel.write_bytes(archive.read_bytes())
    with zipfile.ZipFile(wheel, "a") as opened:
        for path in (tmp_path / "prebuilt").iterdir():
            opened.write(path, f"cer_gpu/prebuilt/{path.name}")
    empty = {"spark.executorEnv.NUMBA_CACHE_DIR": str(tmp_path / "empty"), "spark.executorEnv.NUMBA_DEBUG_CACHE": "1"}
    (data / "found" / "key of files.parquet").unlink(missing_ok=True)
    arguments = ["match", str(data), "key of files"]
    cluster.run(PROGRAM, *arguments, archive=wheel, settings=empty, environment={"PYTHONPATH": str(TESTS)})
    assert (data / "found" / "key of files.parquet").exists()
    assert not list((tmp_path / "empty").rglob("*.nbc"))
    assert not [path for node in cluster.nodes for path in saved_kernels(node) if path.startswith(str(tmp_path))]


@pytest.fixture(scope="module")
def platform_wheel():
    """The wheel with machine code that `make wheel` leaves in dist/, if it is of these kernels."""
    from numba.core.codegen import get_host_cpu_features

    wheels = sorted((TESTS.parent / "dist").glob("cer_gpu-*-manylinux*.whl"))
    if not wheels:
        pytest.skip("no wheel with machine code in dist/: `make wheel` compiles it, in half an hour")
    with zipfile.ZipFile(wheels[-1]) as opened:
        if json.loads(opened.read("cer_gpu/prebuilt/manifest.json"))["about"] != about(STAMP):
            pytest.skip("the wheel in dist/ is of other kernels or versions: `make wheel` compiles it anew")
    if not has_features(get_host_cpu_features()):
        pytest.skip("this processor cannot run the code of the wheel")
    return wheels[-1]


@pytest.mark.parametrize("shipped", ["the wheel", "an archive of the installed wheel"])
def test_the_wheel_of_make_wheel_compiles_nothing_in_any_case(cluster, platform_wheel, data, tmp_path, shipped):
    """Neither workers nor drivers, whose caches are empty."""
    archive = tmp_path / "cer_gpu.zip"
    if shipped == "the wheel":
        archive.write_bytes(platform_wheel.read_bytes())
    else:
        command = [cluster.python, "-m", "spark_glue", "package", str(archive)]
        environment = {**cluster.driver.environment, "PYTHONPATH": str(platform_wheel)}
        subprocess.run(command, env=environment, cwd=tmp_path, check=True)
    caches = {"NUMBA_CACHE_DIR": str(tmp_path / "empty"), "NUMBA_DEBUG_CACHE": "1"}
    for path in (data / "found").glob("*.parquet"):
        path.unlink()
    printed = cluster.run(
        *(PROGRAM, "match", str(data), *CASES),
        archive=archive,
        settings={f"spark.executorEnv.{name}": value for name, value in caches.items()},
        environment={"PYTHONPATH": str(TESTS), **caches, **catalogue_of(data)},
    )
    assert [line for line in printed.splitlines() if line in CASES] == list(CASES)
    n_compiled = sum(path.startswith(str(tmp_path)) for node in cluster.nodes for path in saved_kernels(node))
    assert (n_compiled, list((tmp_path / "empty").rglob("*.nbc"))) == (0, [])


def n_killed(cluster):
    return sum(node.worker_log().count("Command exited with code 137") for node in cluster.nodes)


def test_executors_that_are_killed_lose_and_double_nothing(cluster, archive, data):
    names, before = ["key of rows", "range of files"], n_killed(cluster)
    arguments = ["killed", str(data), *names]
    py_files = f"{archive},{TESTS / 'spark' / 'killed_tasks.py'}"
    printed = cluster.run(PROGRAM, *arguments, archive=py_files, settings=NUMBA, environment={"PYTHONPATH": str(TESTS)})
    expected = CASES["key of rows"].compiled(data).evaluate(str(data / "events" / "files"), output="events")
    told = [json.loads(line) for line in printed.splitlines()]
    assert told == [{"name": name, "matches": expected.num_rows, "parts": 4} for name in names]
    for name in names:
        assert rows_of(pq.read_table(data / "found" / name).cast(expected.schema)) == rows_of(expected)
        assert len(list((data / "marks" / name).iterdir())) == 2
    assert n_killed(cluster) >= before + 2 * len(names)


def test_a_job_goes_on_from_the_state_that_another_node_left(cluster, archive, data, tmp_path):
    """The state lies in a shared folder; the nodes share nothing else."""
    events = stored()
    (tmp_path / "in").mkdir()
    command = [cluster.python, "-m", "spark_glue", "job", PAIRS, "--input", str(tmp_path / "in"), "--time-column", "ts"]
    command += ["--state", str(tmp_path / "state"), "-o", str(tmp_path / "out"), "--settle", "0", "--no-progress"]
    for i, node in enumerate([*cluster.nodes, *cluster.nodes]):
        pq.write_table(events.slice(i * 300, 300), tmp_path / "in" / f"{i}.parquet")
        done = subprocess.run(
            [*command, "--output", "events"],
            cwd=node.folder / "work",
            env={**node.environment, **ENVIRONMENT, "PYTHONPATH": str(archive)},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
    expected = cer_gpu.compile(PAIRS, time_column="ts").evaluate(events, output="events")
    assert rows_of(ds.dataset(tmp_path / "out", exclude_invalid_files=True).to_table()) == rows_of(expected)


def planned_batches(folder, kind="offsets"):
    with contextlib.suppress(FileNotFoundError):
        return {int(name) for name in os.listdir(folder / kind) if name.isdigit()}
    return set()


def test_a_driver_that_is_killed_goes_on_from_the_checkpoint(cluster, archive, tmp_path):
    """Twice: in the first micro-batches, whose executors are killed, too, and after further ones were planned."""
    events = random_events(11, 240, 120)
    add_files(tmp_path / "in", late_by(12, events, 4), 4)
    add_files(tmp_path / "in", end_at(100_000), 1, first=4)
    driver = {"archive": archive, "settings": NUMBA, "environment": {"PYTHONPATH": str(TESTS)}}
    streams = [tmp_path / name for name in ("operator", "driver")]
    for n_batches in (1, 3):
        with open(tmp_path / "stderr", "w") as said:
            process = cluster.submit(TESTS / "killed_stream.py", str(tmp_path), **driver, stderr=said)
        try:
            deadline = time.monotonic() + SECONDS_OF_A_JOB
            while not all(len(planned_batches(stream)) >= n_batches for stream in streams):
                assert process.poll() is None, (tmp_path / "stderr").read_text()[-6000:]
                assert time.monotonic() < deadline
                time.sleep(0.05)
            if n_batches == 1:
                for pid in cluster.executors():
                    os.kill(pid, signal.SIGKILL)
        finally:
            kill_group(process)
        assert any(planned_batches(stream, "commits") != set(range(5)) for stream in streams)
    assert cluster.run(TESTS / "killed_stream.py", str(tmp_path), **driver).endswith("done\n")
    for stream in streams:
        assert planned_batches(stream, "commits") >= set(range(5))
    keyed, whole = (
        cer_gpu.compile(text, time_column="ts").evaluate(events, output="events") for text in (KEYED, WHOLE)
    )
    assert min(keyed.num_rows, whole.num_rows) > 10
    found = pq.read_table(tmp_path / "operator.parquet").select(keyed.column_names).cast(keyed.schema)
    positions = ("start", "end", "positions")
    assert stream_rows_of(found, without=positions) == stream_rows_of(keyed, without=positions)
    found = pq.read_table(tmp_path / "batches").cast(whole.schema)
    assert stream_rows_of(found) == stream_rows_of(whole)
