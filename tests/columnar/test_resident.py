"""Columns in the memory of a GPU are read in place, and nothing on the host reads them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from host_device import Build, HostDevice, has_compiler

import cer_gpu
from cer_gpu.backend import cupy_backend
from cer_gpu.columnar import resident
from cer_gpu.predicates import guards as predicates
from cer_gpu.predicates import placement

QUERY = "SELECT * FROM S WHERE A ; B FILTER A[x > 0.5 AND k < 100] AND B[x <= 0.25] WITHIN 10 EVENTS"


BETWEEN = [
    "SELECT * FROM S WHERE A AS a ; B AS b FILTER a.x * 2 < b.x + 0.1 AND a.k <> b.k WITHIN 10 EVENTS",
    "SELECT * FROM S WHERE A AS a ; B+ AS b FILTER b.x > PREV(b).x AND a.x + b.x > 0.5 WITHIN 10 EVENTS",
    "SELECT * FROM S WHERE A AS a ; B AS b FILTER abs(a.x - b.x) < 0.25 OR a.k = b.k WITHIN 10 EVENTS",
]


class OnDevice:
    """Array with the CUDA array interface."""

    def __init__(self, values, **changed):
        self.values = np.ascontiguousarray(values)
        self.changed = changed

    @property
    def __cuda_array_interface__(self):
        found = {**self.values.__array_interface__, "version": 3, "strides": None}
        return found | self.changed


def arrays(n: int):
    rng = np.random.default_rng(0)
    return {"type": rng.integers(0, 4, n, np.int32), "x": rng.random(n, np.float32), "k": rng.integers(0, 200, n)}


def on_host(columns, names=("A", "B", "C")) -> pa.Table:
    types = pa.DictionaryArray.from_arrays(
        pa.array(columns["type"], mask=columns["type"] >= len(names)), pa.array(list(names))
    )
    return pa.table({**columns, "type": types})


def on_device(columns, names=("A", "B", "C")) -> cer_gpu.DeviceEvents:
    made = {name: OnDevice(values) for name, values in columns.items()}
    return cer_gpu.DeviceEvents(made | {"type": (made["type"], list(names))})


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch):
    monkeypatch.setattr(cupy_backend, "synchronize", lambda: None)


@pytest.fixture
def device(tmp_path, monkeypatch):
    if not has_compiler():
        pytest.skip("g++ is not installed: it builds the kernels for the host")
    made = HostDevice(Build(tmp_path))
    monkeypatch.setattr(placement, "missing", lambda: None)
    monkeypatch.setattr(predicates, "open_device", lambda: made)
    return made


@pytest.mark.parametrize("asked", ["cuda", "auto"])
def test_columns_are_read_in_place(device, asked, monkeypatch):
    monkeypatch.setattr("cer_gpu.engine.execution_group.BLOCK_ROWS", 300)
    columns, query = arrays(5001), cer_gpu.compile(QUERY)
    events = on_device({name: values.copy() for name, values in columns.items()})
    assert len(events) == 5001
    assert events.schema.names == ["type", "x", "k"]
    expected = query.evaluate(on_host(columns), device="cpu")
    assert query.evaluate(events, device=asked, threads=4).equals(expected)
    evaluator = query.evaluator(device=asked)
    assert pa.Table.from_batches([evaluator.push(events)]).equals(expected)
    assert len(expected)
    del events, evaluator
    gc.collect()
    assert not resident._ends


@pytest.mark.parametrize("filters", ["a.x < b.x", "a.x * 2 < b.x + 0.1 AND a.k <> b.k", "a.k < b.k AND b[x > 0.1]"])
def test_filters_between_events_read_them_there(device, filters, monkeypatch):
    monkeypatch.setattr("cer_gpu.engine.execution_group.BLOCK_ROWS", 300)
    columns = arrays(2001)
    query = cer_gpu.compile(f"SELECT * FROM S WHERE A AS a ; B AS b FILTER {filters} WITHIN 10 EVENTS")
    expected = query.evaluate(on_host(columns), device="cpu")
    events = on_device({name: values.copy() for name, values in columns.items()})
    assert query.evaluate(events, device="cuda").equals(expected)
    assert len(expected)


def test_some_columns_may_be_on_the_host(device):
    columns = arrays(3000)
    expected = cer_gpu.compile(QUERY).evaluate(on_host(columns), device="cpu")
    mixed = cer_gpu.DeviceEvents(
        {"type": on_host(columns)["type"].combine_chunks(), "x": OnDevice(columns["x"].copy()), "k": columns["k"]}
    )
    assert cer_gpu.compile(QUERY).evaluate(mixed, device="cuda").equals(expected)


class ByArrow:
    """Arrow array with the device interface."""

    def __init__(self, array, device_type=2):
        self.array, self.device_type = array, device_type

    def __arrow_c_device_array__(self, requested_schema=None):
        capsules = self.array.__arrow_c_device_array__()
        pointer = resident._pointer(capsules[1], b"arrow_device_array")
        resident._ArrowDeviceArray.from_address(pointer).device_type = self.device_type
        return capsules


class ByDlpack:
    """Array with DLPack as its only interface."""

    def __init__(self, values):
        self.values = values

    def __dlpack_device__(self):
        return 2, 0


def test_each_interface_gives_the_same_columns(device, monkeypatch):
    monkeypatch.setattr(cupy_backend, "from_dlpack", lambda values: OnDevice(values.values))
    columns = arrays(3000)
    expected = cer_gpu.compile(QUERY).evaluate(on_host(columns).slice(7), device="cpu")
    x = pa.array(np.concatenate([np.zeros(3, np.float32), columns["x"][7:]])).slice(3)
    types = ByArrow(pa.array(columns["type"][7:].copy())), ["A", "B", "C"]
    events = cer_gpu.DeviceEvents({"type": types, "x": ByArrow(x), "k": ByDlpack(columns["k"][7:].copy())})
    assert cer_gpu.compile(QUERY).evaluate(events, device="cuda").equals(expected)


# memory that only running kernels can read; any other access ends the process
PROTECTED = """
import ctypes, mmap, pathlib, sys
import numpy as np, pyarrow as pa
import test_resident as t
from cer_gpu.report import write_report
from host_device import Build, HostDevice, HostQueue

libc, regions = ctypes.CDLL(None), []

def protect(how):
    for memory in regions:
        assert libc.mprotect(ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(memory.nbytes), how) == 0

class Queue(HostQueue):
    def wait(self):
        protect(mmap.PROT_READ)
        super().wait()
        protect(0)

class Device(HostDevice):
    def queue(self):
        return Queue(self)

def moved(values):
    memory = np.frombuffer(mmap.mmap(-1, -(-values.nbytes // 4096) * 4096), values.dtype)
    memory[:len(values)] = values
    regions.append(memory)
    return memory[:len(values)]

device = Device(Build(pathlib.Path(sys.argv[1])))
t.placement.missing, t.predicates.open_device, t.cupy_backend.synchronize = lambda: None, lambda: device, lambda: None
columns = t.arrays(5001)
events = t.on_device({name: moved(values) for name, values in columns.items()})
protect(0)
query = t.cer_gpu.compile(t.QUERY)
for each in (query, *map(t.cer_gpu.compile, t.BETWEEN)):
    assert each.evaluate(events, device="cuda").equals(each.evaluate(t.on_host(columns), device="cpu"))
for text, options in t.REFUSED:
    try:
        t.cer_gpu.compile(text, time_column=options.pop("time_column", None)).evaluate(events, **options)
    except t.cer_gpu.CerError as error:
        print(error)
together = t.cer_gpu.compile_all({"only": t.QUERY})
statement = t.cer_gpu.compile(
    "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY k MEASURES LAST(x) AS x PATTERN (A B) DEFINE B AS x > PREV(x))"
)
for use in (
    lambda q: q.explain(events),
    lambda q: write_report(q, events, "report.html"),
    lambda q: together.evaluate(events, device="cuda"),
    lambda q: statement.evaluate(events, device="cuda"),
):
    try:
        use(query)
    except t.cer_gpu.CerError as error:
        print(error)
print("done")
"""
REFUSED = [
    ("SELECT * FROM S WHERE A ; B WITHIN 5 [k]", {"device": "cuda"}),
    ("SELECT * FROM S WHERE A ; B PARTITION BY [k]", {"device": "cuda"}),
    ("SELECT * FROM S WHERE A ; B", {"device": "cuda", "output": "events"}),
    ("SELECT * FROM S WHERE A ; B", {"device": "cpu"}),
    ("SELECT * FROM S WHERE A ; B", {"device": "cuda", "time_column": "k", "sort": True}),
    ("SELECT * FROM S WHERE A ; B", {"device": "cuda", "time_column": "k", "lateness": 3}),
    ("SELECT * FROM S WHERE A ; B FILTER A[type = k]", {"device": "cuda"}),
    ("SELECT * FROM S WHERE A ; B FILTER A[type = type]", {"device": "cuda"}),
    ("SELECT * FROM S WHERE A AS a ; B AS b FILTER a.x < b.k", {"device": "cuda"}),
    ("SELECT * FROM S WHERE A AS a ; B AS b FILTER a.type = b.type", {"device": "cuda"}),
    ("SELECT * FROM S WHERE A AS a ; B AS b FILTER abs(a.x) < b.x", {"device": "cuda"}),
    ("SELECT * FROM S WHERE A AS a ; B AS b FILTER b[x > LAG(x)]", {"device": "cuda"}),
]


@pytest.mark.long("builds kernels")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs mprotect")
def test_the_host_never_reads_resident_columns(tmp_path):
    if not has_compiler():
        pytest.skip("g++ is not installed: it builds the kernels for the host")
    here = os.path.dirname(__file__)
    paths = os.pathsep.join([here, os.path.dirname(here), os.path.dirname(os.path.dirname(here))])
    command = [sys.executable, "-c", PROTECTED, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    *refused, last = done.stdout.splitlines()
    assert last == "done"
    assert len([line for line in refused if "memory of a GPU" in line]) == len(REFUSED) - 1 + 4
    assert len([line for line in refused if "cannot compare" in line]) == 1


def test_unfit_arrays_are_refused():
    for values, message in (
        (OnDevice(np.zeros(3, np.bool_)), r"column 'x': expected integers, float32 or float64 .*\nhint: .*'uint8'"),
        (OnDevice(np.zeros((3, 2))), "one dimension"),
        (OnDevice(np.zeros(3), strides=(16,)), "without gaps"),
        (OnDevice(np.zeros(3), data=(12, False)), "a multiple of 8"),
        (ByArrow(pa.array([1, 2, None])), "no NULL on the device"),
        (ByArrow(pa.array(["a"])), "got Arrow's format 'u'"),
        (ByArrow(pa.array(["a"]).dictionary_encode()), "with a dictionary"),
        (ByArrow(pa.array([1]), 1), "a CUDA device, got that of device type 1"),
    ):
        with pytest.raises(cer_gpu.EventsError, match=message):
            cer_gpu.DeviceEvents({"x": values})
    with pytest.raises(cer_gpu.EventsError, match="columns of one length"):
        cer_gpu.DeviceEvents({"x": OnDevice(np.zeros(3)), "y": OnDevice(np.zeros(4))})
    assert len(cer_gpu.DeviceEvents({"x": OnDevice(np.zeros(0)), "y": [0][:0]})) == 0
