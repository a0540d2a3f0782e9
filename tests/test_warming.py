"""Loops that are compiled ahead: processes that come later load all that they need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cer_gpu import warming
from cer_gpu.backend import evaluation, strings
from cer_gpu.cli import main
from cer_gpu.warming import QueryKind, Warmed, warm

ROOT = Path(__file__).parents[1]

OTHERS = """
import numpy as np, pyarrow as pa, sys
import cer_gpu
from cer_gpu.backend.jit import COMPILING
def written(events):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, events.schema) as writer:
        writer.write_table(events)
    return sink.getvalue()

n = 3000
events = pa.table({
    "at": pa.array(np.arange(n) * 2_000_000, pa.timestamp("us")),
    "type": pa.array(["X", "Y", "Z"] * (n // 3)),
    "who": pa.array([f"w{i % 7}" for i in range(n)]),
    "room": pa.array(np.arange(n) % 11),
    "heat": pa.array(np.arange(n) / 3),
})
for text in (
    "X ; Z WITHIN 7 EVENTS", "X ; Y ; Z WITHIN 9 SECONDS", "X ; Y+ ; Z PARTITION BY [room] WITHIN 90 SECONDS",
    "X : Y", "X ; Z PARTITION BY [who] WITHIN 90 SECONDS", "X ; (Y ; Z)+ ; X WITHIN 7 EVENTS",
    "X ; (Y OR Z ; X) WITHIN 20 SECONDS", "X AS a ; Y AS b FILTER a.heat < b.heat WITHIN 7 EVENTS",
):
    for output in "positions", "count", "ends":
        cer_gpu.compile(f"SELECT * WHERE {text}", time_column="at").evaluate(events, output=output)
        print(COMPILING.count, text, output)
stored = pa.ipc.open_stream(written(events)).read_all()
for text in "X ; Z PARTITION BY [who]", "X ; Z PARTITION BY [room]", "Q(v) <- X(room = v), Z(room = v) WITHIN 9 EVENTS":
    query = cer_gpu.compile(text if "<-" in text else f"SELECT * WHERE {text}", time_column="at")
    for options in {}, {"threads": 2}:
        query.evaluate(stored, **options)
        print(COMPILING.count, text, options)
print(COMPILING.count)
"""


def _told(code, folder):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT), "CER_GPU_NOTICES": "off"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.long("compiles loops anew")
def test_each_kind_is_told_with_the_folder_of_the_loops(monkeypatch, capsys):
    kinds = (QueryKind("ends", ("A ; B WITHIN 5 EVENTS",), ("ends",)), QueryKind("one", ("SELECT A WHERE A",)))
    real_kinds = warming.KINDS
    monkeypatch.setattr(warming, "KINDS", kinds)
    assert main(["warm"]) == 0
    first, second, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("ends: ")
    assert second.startswith("one: ")
    folder = last.rpartition("cached in ")[2]
    for kept in evaluation.evaluate_events, strings.encode_strings:
        assert Path(kept.stats.cache_path).is_relative_to(folder)
    others = ("stored events, and threads that share the keys", "many queries in one pass")
    others += ("row patterns of SQL", "forecasts")
    assert len(real_kinds) + len(others) == warming.N_KINDS
    assert list(warm()) == [Warmed(name, 0) for name in ("ends", "one", *others)]


@pytest.mark.skipif("CER_GPU_WARM" not in os.environ, reason="compiles all loops, in minutes; make test-soak")
def test_after_it_queries_of_each_kind_compile_nothing(tmp_path):
    warmed = "from cer_gpu.warming import warm; print(sum(each.n_compiled for each in warm()))"
    assert int(_told(warmed, tmp_path)) > 200
    assert int(_told(warmed, tmp_path)) == 0
    told = _told(OTHERS, tmp_path)
    assert told.splitlines()[-1] == "0", told
