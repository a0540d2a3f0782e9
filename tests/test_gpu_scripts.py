"""`make gpu-check` and the benchmark of a GPU, on a machine that has stand-ins for CuPy, the driver and its programs.

Nothing of them should run for the first time on a machine with a GPU, which may be there for minutes only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import gpu_check
import gpu_machine
import numpy as np
import pytest
from host_device import HostDevice, has_compiler

from cer_gpu.backend import cupy_backend
from cer_gpu.predicates import placement

pytestmark = pytest.mark.long("runs the scripts of a GPU's checks as processes")

ROOT = Path(__file__).parent.parent
BENCHMARK = """
import json, sys
sys.path.insert(0, "benchmarks")
import cupy, gpu, gpu_check
from cer_gpu.predicates import placement
gpu.GPU_BLOCK, gpu.LARGE_BLOCK, gpu.AT_ONE_SIZE = 2048, 4096, ((16, 4),)
gpu.QUERIES_BY_NAME = {name: text for name, text in gpu.QUERIES_BY_NAME.items() if name == "A ; B+ ; C, filters"}
placement.ROWS_TO_TRY, placement.ROWS_TO_MEASURE = 4000, 3000
(step,) = (step for step in gpu_check.steps(sys.argv[1], "abc") if step.name == "benchmark")
for n_free, seconds, *arguments in json.loads(sys.argv[2]):
    cupy.device.n_free = n_free
    of_step = [str(seconds) if part == gpu_check.SECONDS else part for part in step.command[2:]]
    gpu.main([*of_step, "--repeat", "1", *map(str, arguments)])
    print("====")
"""
CHECK = """
import sys
import gpu_check
gpu_check.KERNELS = ["tests/test_gpu_scripts.py::test_the_parts_of_the_suite_are_there"]
gpu_check.SUITE = {"status": ["tests/backend/test_status.py"]}
gpu_check.ALL, gpu_check.PROCESSES = "tests/backend/test_operations.py", []
sys.exit(gpu_check.main(sys.argv[1:]))
"""


@pytest.fixture
def on_machine(tmp_path):
    """Return a function that runs a program on a machine with a GPU, and returns what it did."""
    if not has_compiler():
        pytest.skip("g++ is not installed: it builds the kernels for the host")
    made = []

    def run(code, *arguments, **options):
        made.append(tmp_path / f"machine{len(made)}")
        environment = gpu_machine.environment(made[-1], **options)
        command = [sys.executable, "-c", code, *map(str, arguments)]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)

    return run


@pytest.fixture
def gpu(monkeypatch):
    """The benchmark, as a module."""
    return gpu_machine.benchmark(monkeypatch)


def stored(folder):
    """Return the results of the card, and their file."""
    (path,) = folder.glob("*.json")
    assert path.name == "gpu-stand-in-gpu.json"
    return json.loads(path.read_text(encoding="utf-8")), path


# ---- the benchmark ---------------------------------------------------------------------------------------------------


def test_the_benchmark_measures_everything_beside_floors(on_machine, tmp_path, gpu):
    runs = [
        (1 << 30, 0, "--events", 1000, "--only", "queries"),  # without time
        (200_000, 100, "--events", 4000, "--only", "predicates"),  # without room on the device
        (1 << 30, 100, "--events", 1000, "--only", "floors"),
        (1 << 30, 100, "--events", 1000, "--memory", 0, "--only", "predicates", "queries"),  # without room on the host
        (1 << 30, 200, "--events", 1000, 6000, 10**12, "--only", "predicates", "queries"),
    ]
    done = on_machine(BENCHMARK, tmp_path, json.dumps(runs))
    assert done.returncode == 0, done.stderr
    no_time, no_room, floors, no_memory, everything = done.stdout.split("====")[:-1]
    assert no_time.count("why not it would take about 0 s, and 0 are left") == 2
    assert no_room.count("columns on the device; rows 4,000; predicates 4; ") == 2
    assert no_room.count("why not the device has no room") == 4
    assert gpu.PREDICATES not in floors
    assert "1,000 rows do not fit into 0 GiB" in no_memory
    assert "workload left out; rows 1,000,000,000,000; why 1,000,000,000,000 rows do not fit" in everything

    found, path = stored(tmp_path)
    about = {"card": "Stand-in GPU", "driver": gpu_machine.DRIVER, "commit": "abc", "CUDA runtime": "13.0"}
    assert about.items() <= found["about"].items()
    results = found["results"]
    assert results[gpu.TITLE][0] == {"workload": "on Stand-in GPU"}
    assert [row.get("GB/s", row.get("microseconds")) > 0 for row in results[gpu.FLOORS]] == [True] * 7
    cases = [(row["rows"], row["predicates"], row["rows of a block"]) for row in results[gpu.PREDICATES]]
    assert cases == [(1000, 4, 2048)] * 2 + [(6000, n, block) for n in (4, 16) for block in (2048, 2048, 4096)]
    cores = (1, len(os.sched_getaffinity(0)))
    found = [(row["rows"], row["cores"]) for row in results[gpu.QUERIES]]
    assert found == [(n, k) for n in (1000, 6000) for k in cores]
    for row in results[gpu.PREDICATES] + results[gpu.QUERIES]:
        assert row["holds"] in ("yes", "no")
        assert row["goal"]
        assert row["CPU, million events/s"] > 0 < row["GPU, million events/s"]
    assert all(row["auto took"].endswith(", measured") for row in results[gpu.QUERIES])
    text = path.with_suffix(".md").read_text(encoding="utf-8")
    assert text.startswith("# Stand-in GPU beside ")
    assert f"card Stand-in GPU, driver {gpu_machine.DRIVER}, " in text
    assert "| goal | holds |" in text


def test_without_a_gpu_nothing_is_measured_or_written(gpu, tmp_path, monkeypatch, capsys):
    for module, name in ((placement, "missing"), (cupy_backend, "missing_cupy")):
        monkeypatch.setattr(module, name, lambda: "there is no driver\nhint: install it")
    assert gpu.main(["--save", "--results", str(tmp_path)]) == 0
    assert "| left out | there is no driver |" in capsys.readouterr().out
    with pytest.raises(RuntimeError, match="without one: there is no driver"):
        gpu.gpu_results.keep(tmp_path, {}, {}, [], {})
    assert gpu_check.main(["--results", str(tmp_path)]) == 0
    assert "skipped in full: there is no driver" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_results_of_another_card_or_code_are_not_added_to(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(cupy_backend, "missing_cupy", lambda: None)
    of = {"card": "A Card", "commit": "abc", "sources": "123"}
    for changed in ({}, {"commit": "abd"}, {"sources": "124"}):
        gpu.gpu_results.keep(tmp_path, {"One": [{"workload": "a"}]}, {}, ["one"], of)
        gpu.gpu_results.keep(tmp_path, {"Two": [{"workload": "b"}]}, {}, ["two"], of | changed)
        found = gpu.gpu_results.kept(tmp_path, of | changed)
        assert ("One" in found) == (not changed)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["gpu-a-card.json", "gpu-a-card.md"]


def test_a_call_that_does_not_fit_into_the_time_is_left_out(gpu):
    calls = []
    budget = gpu.Budget(time.perf_counter() + 1000)
    assert budget.expected("it", 10) == 0
    assert len(budget.measured("it", 10, 3, lambda: calls.append(1))) == 1
    assert len(calls) == 4
    budget._taken["it"] = 10, 300.0
    assert len(budget.measured("it", 10, 3, lambda: calls.append(1))) == 1
    assert len(calls) == 4 + 3  # fewer calls than asked for
    budget._taken["it"] = 10, 300.0
    with pytest.raises(gpu.LeftOutError, match=r"^it would take about 6000 s, and "):
        budget.measured("it", 100, 3, lambda: calls.append(1))
    assert len(calls) == 4 + 3


def test_a_device_without_room_for_the_columns(gpu):
    assert gpu.Values(1000, HostDevice(None, n_bytes=1000)).memory is None
    values = gpu.Values(1000, HostDevice(None))
    address = gpu.OnDevice(values.memory, 3, 5).__cuda_array_interface__["data"][0]
    assert address == values.memory.address + 12
    assert values.on_host(1000, 16).num_columns == 16
    found = np.array([3, 4], np.float32)
    assert gpu.uploaded(HostDevice(None), found).n_bytes == 8


# ---- the checks ------------------------------------------------------------------------------------------------------


def test_the_checks_go_on_after_one_that_fails_and_are_added_to(on_machine, tmp_path):
    folder = tmp_path / "results"
    done = on_machine(CHECK, "--results", folder, "--only", "sanitizer", fails="racecheck")
    assert done.returncode == 1, done.stdout
    rows = {row["workload"]: row for row in stored(folder)[0]["results"]["Steps"]}
    outcomes = {name: row["outcome"] for name, row in rows.items()}
    assert outcomes.pop("sanitizer, racecheck") == "FAILED (9)"
    tools = [f"sanitizer, {tool}" for tool in ("memcheck", "initcheck", "synccheck")]
    others = ["kernels", "benchmark", "suite, status", "suite, the rest"]
    assert outcomes == dict.fromkeys(tools, "passed") | dict.fromkeys(others, "not run")
    assert rows["sanitizer, racecheck"]["what it said"] == "ERROR SUMMARY: 3 errors"
    assert "1 passed" in rows["sanitizer, memcheck"]["what it said"]
    assert rows["sanitizer, memcheck"]["seconds"] > 0

    done = on_machine(CHECK, "--results", folder, "--seconds", 280)
    assert done.returncode == 0, done.stdout
    rows = {row["workload"]: row for row in stored(folder)[0]["results"]["Steps"]}
    outcomes = {name: row["outcome"] for name, row in rows.items()}
    assert outcomes.pop("benchmark").startswith("not run: ")
    assert outcomes == dict.fromkeys([*tools, "sanitizer, racecheck", *others[:1], *others[2:]], "passed")
    calls = (tmp_path / "machine1" / "calls").read_text(encoding="utf-8")
    assert calls.startswith("--tool racecheck --error-exitcode 9 ")
    assert calls.count("\n") == 1
    assert "| suite, status | passed |" in stored(folder)[1].with_suffix(".md").read_text(encoding="utf-8")


def test_without_compute_sanitizer_its_steps_are_not_run(on_machine, tmp_path):
    done = on_machine(CHECK, "--results", tmp_path / "results", "--only", "sanitizer", sanitizer=False)
    assert done.returncode == 0, done.stdout
    outcomes = {row["outcome"] for row in stored(tmp_path / "results")[0]["results"]["Steps"]}
    assert outcomes == {"not run", "not run: compute-sanitizer is not installed"}


def test_a_step_ends_at_its_limit(monkeypatch, capsys):
    monkeypatch.setattr(gpu_check, "SECONDS_TO_SUM_UP", 0.3)
    deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('deaf'); time.sleep(600)"
    step = gpu_check.Step("deaf", [sys.executable, "-c", deaf], 600, 0)
    row = gpu_check.outcome(step, 0.3)
    assert row["outcome"] == "FAILED: over 0 s"
    assert row["seconds"] < 300


@pytest.mark.parametrize(
    ("said", "code", "outcome"),
    [
        ("3 passed, 2 skipped in 1s", 0, "passed"),
        ("2 skipped in 1s", 0, "FAILED: no test passed"),
        ("", 3, "FAILED (3)"),
    ],
)
def test_the_outcome_is_that_of_the_tests(said, code, outcome, monkeypatch, capsys):
    left_out = "left out, without duckdb: test_benchmarks.py"
    monkeypatch.setattr(gpu_check, "run", lambda command, seconds: (code, [said, left_out] if said else []))
    row = gpu_check.outcome(gpu_check.Step("it", [], 10, 0), 10)
    assert (row["outcome"], row["what it said"]) == (outcome, said)
    assert row.get("left out") == (left_out if said else None)


def test_missing_packages_are_named(monkeypatch, capsys):
    monkeypatch.setattr(gpu_check, "NEEDED", ("numpy", "no_lark", "no_sqlglot"))
    assert gpu_check.main([]) == 1
    expected = "gpu-check: missing packages: no_lark, no_sqlglot\nhint: pip install no_lark no_sqlglot\n"
    assert capsys.readouterr().out == expected


def test_the_parts_of_the_suite_are_there():
    assert all((ROOT / path).exists() for part in [*gpu_check.SUITE.values(), gpu_check.KERNELS] for path in part)
    assert all((ROOT / path).exists() for path in (gpu_check.ALL, gpu_check.WITHOUT))
