"""Checkpoints: an evaluation that is killed and resumed finds the table of an uninterrupted one."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from sizes import scaled, seeds

import cer_gpu
from cer_gpu.engine import checkpoint

KILLED_RUN = Path(__file__).parent.parent / "killed_run.py"
N_PROCESSES = int(os.environ.get("CER_GPU_KILLS", scaled(5)))
"""Number of processes to kill; `make test-soak` kills 100."""

CASES = [
    ("SELECT * FROM S WHERE A ; B+ ; C WITHIN 6 EVENTS", "positions"),
    ("SELECT * FROM S WHERE A ; B+ ; C PARTITION BY [k] WITHIN 5 EVENTS", "events"),
    ("SELECT b FROM S WHERE A ; B+ AS b ; C PARTITION BY [name, other], [k] WITHIN 1 SECONDS", "bindings"),
    ("SELECT * FROM S WHERE A ; (A OR B)+ ; C PARTITION BY [name] WITHIN 160 [ts]", "count"),
    ("SELECT * FROM S WHERE A ; B+ ; C PARTITION BY [k] WITHIN 8 EVENTS", "count"),
    ("SELECT LAST * FROM S WHERE A ; B+ ; C WITHIN 30 EVENTS", "events"),
    ("SELECT NEXT * FROM S WHERE A ; B ; C PARTITION BY [name]", "positions"),
    ("SELECT MAX a FROM S WHERE (A OR B)+ AS a ; C WITHIN 60 EVENTS CONSUME BY ANY", "bindings"),
    ("SELECT STRICT * FROM S WHERE A : B ; NOT(A) PARTITION BY [k] WITHIN 4 EVENTS CONSUME BY PARTITION", "positions"),
    ("SELECT * FROM S WHERE A ; B ; C LIMIT 2", "count"),
]


def random_events(seed, n=900, most_rows=12):
    """Return batches of random events; strings come plain in some and as dictionaries in others."""
    rng = random.Random(seed)
    times = sorted(rng.choices(range(0, 20 * n), k=n))
    batches, row = [], 0
    while row < n:
        m = min(rng.randint(0, most_rows), n - row)
        name = pa.array(rng.choices(["x", "y", "z", None], k=m), pa.string())
        batches.append(
            pa.record_batch(
                {
                    "type": pa.array(rng.choices("AABBCCD", k=m), pa.string()),
                    "ts": pa.array(times[row : row + m], pa.int64()),
                    "k": pa.array(rng.choices([1, 2, 3, None], k=m), pa.int64()),
                    "name": name.dictionary_encode() if rng.random() < 0.5 else name,
                    "other": pa.array(rng.choices(["x", "v"], k=m), pa.string()),
                }
            )
        )
        row += m
    return batches


def compiled(text):
    return cer_gpu.compile(text, time_column="ts", time_unit="ms")


def uninterrupted(text, output, batches, **options):
    evaluator = compiled(text).evaluator(output=output, **options)
    return pa.Table.from_batches([*(evaluator.push(batch) for batch in batches), evaluator.finish()])


@pytest.mark.parametrize("number", seeds(max(scaled(40, most=40), N_PROCESSES)))
def test_a_stream_interrupted_at_random_batches_gives_the_uninterrupted_table(number):
    """All events and results since the last checkpoint are lost, and found again."""
    rng = random.Random(number)
    text, output = CASES[number % len(CASES)]
    batches = random_events(number)
    expected = uninterrupted(text, output, batches)
    assert expected.num_rows > 10
    kept, blob, begin = [], None, 0
    while begin < len(batches):
        killed_at = rng.randint(begin, len(batches) + 20)
        evaluator = compiled(text).evaluator(output=output) if blob is None else compiled(text).restore(blob)
        since = []
        for i in range(begin, len(batches)):
            if i == killed_at:
                break
            since.append(evaluator.push(batches[i]))
            if rng.random() < 0.1 or i == len(batches) - 1:
                kept, since, blob, begin = kept + since, [], evaluator.checkpoint(), i + 1
    kept.append(compiled(text).restore(blob).finish())
    assert pa.Table.from_batches(kept).equals(expected)


@pytest.mark.long("starts and kills processes")
@pytest.mark.parametrize("number", seeds(N_PROCESSES))
def test_a_killed_process_resumes_from_its_last_checkpoint(tmp_path, number):
    rng = random.Random(number)
    text, output = CASES[number % len(CASES)]
    batches = [batch.set_column(3, "name", batch["name"].cast(pa.string())) for batch in random_events(number)]
    (tmp_path / "query.json").write_text(json.dumps({"text": text, "output": output}))
    with pa.ipc.new_stream(tmp_path / "events.arrow", batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    command = [sys.executable, str(KILLED_RUN), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        for _ in range(rng.randint(1, 12)):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    done = int((tmp_path / "state").read_bytes().partition(b"\n")[0])
    assert 0 < done < len(batches) // 3
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    tables = []
    for part in range(-(-len(batches) // 3)):
        with pa.ipc.open_stream(tmp_path / f"part{part}.arrow") as reader:
            tables.append(reader.read_all())
    assert pa.concat_tables(tables).equals(uninterrupted(text, output, batches))


@pytest.mark.long("a checkpoint at each of many cuts")
@pytest.mark.parametrize("number", seeds(10))
def test_a_checkpoint_keeps_late_events_that_are_held_back(number):
    rng = random.Random(number)
    text, output = CASES[number % len(CASES)]
    events = pa.Table.from_batches(
        [b.set_column(3, "name", b["name"].cast(pa.string())) for b in random_events(number)]
    )
    jumbled = events.take(
        [i for _, i in sorted((t + rng.randint(0, 300), i) for i, t in enumerate(events["ts"].to_pylist()))]
    )
    batches = jumbled.to_batches(max_chunksize=7)
    options = {"lateness": "100ms", "late": "drop"}
    expected = uninterrupted(text, output, batches, **options)
    assert expected.num_rows > 5
    evaluator, found = compiled(text).evaluator(output=output, **options), []
    for batch in batches:
        found.append(evaluator.push(batch))
        if rng.random() < 0.2:
            evaluator = compiled(text).restore(evaluator.checkpoint())
    found.append(evaluator.finish())
    assert evaluator.n_late > 0
    assert pa.Table.from_batches(found).equals(expected)
    assert evaluator.n_pushed == len(events) == evaluator.n_events + evaluator.n_late


def extension(kind, values):
    return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))


UUIDS = [bytes([i] * 16) for i in range(8)]
EXTENSIONS = {
    "uuid": extension(pa.uuid(), UUIDS),
    "json": extension(pa.json_(), [f"[{i}]" for i in range(8)]),
    "bool8": extension(pa.bool8(), [1, 0, None, 1] * 2),
    "opaque": extension(pa.opaque(pa.binary(), "kind", "vendor"), UUIDS),
    "tensor": extension(pa.fixed_shape_tensor(pa.int32(), [2]), [[i, i] for i in range(8)]),
    "list": pa.ListArray.from_arrays(range(9), extension(pa.uuid(), UUIDS)),
    "struct": pa.StructArray.from_arrays([extension(pa.uuid(), UUIDS)], ["id"]),
    "dictionary": pa.DictionaryArray.from_arrays([0, 1] * 4, extension(pa.uuid(), UUIDS[:2])),
    "union": pa.UnionArray.from_sparse(pa.array([0] * 8, pa.int8()), [pa.array(range(8))]),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([3, 4, 8], pa.int32()), pa.array(["x", None, "y"])),
}


@pytest.mark.parametrize("options", [{}, {"lateness": 2}], ids=["in order", "late"])
@pytest.mark.parametrize("kind", EXTENSIONS)
def test_types_that_are_stored_as_others_are_kept(kind, options):
    """Batches without rows, or without complex events, have the types of their columns too."""
    events = pa.record_batch({"type": ["A", "B"] * 4, "ts": pa.array(range(8)), "x": EXTENSIONS[kind]})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B WITHIN 3 EVENTS", time_column="ts")
    expected = query.evaluate(events, output="events")
    held = [event["x"] for found in expected["events"].to_pylist() for event in found]
    given = [EXTENSIONS[kind][row].as_py() for found in expected["positions"].to_pylist() for row in found]
    assert held == (list(map(str, given)) if kind == "uuid" else given)  # UUIDs are read as texts
    evaluator, found = query.evaluator(output="events", **options), []
    for start, n in [(0, 0), (0, 3), (3, 2), (5, 3)]:
        found.append(evaluator.push(events.slice(start, n)))
        evaluator = query.restore(evaluator.checkpoint())
    found.append(evaluator.finish())
    assert pa.Table.from_batches(found).equals(expected)


def test_counts_of_events_go_on_after_a_restore():
    evaluator = compiled(CASES[0][0]).evaluator()
    batches = random_events(1)
    for batch in batches[:20]:
        evaluator.push(batch)
    again = compiled(CASES[0][0]).restore(evaluator.checkpoint())
    assert (again.n_pushed, again.n_events, again.n_matches) == (
        evaluator.n_pushed,
        evaluator.n_events,
        evaluator.n_matches,
    )
    assert again.n_matches > 0
    assert again.output == "positions"


def test_a_checkpoint_before_the_first_event_restores():
    text, output = CASES[1]
    blob = compiled(text).evaluator(output=output).checkpoint()
    batches = random_events(2)
    evaluator = compiled(text).restore(blob)
    found = pa.Table.from_batches([evaluator.push(batch) for batch in batches])
    assert found.equals(uninterrupted(text, output, batches))


def test_checkpoints_leave_the_evaluator_unchanged():
    text, output = CASES[2]
    batches = random_events(3)
    evaluator, found = compiled(text).evaluator(output=output), []
    for batch in batches:
        found.append(evaluator.push(batch))
        evaluator.checkpoint()
    assert pa.Table.from_batches(found).equals(uninterrupted(text, output, batches))


def test_a_restored_evaluator_refuses_a_time_before_the_checkpoint():
    query = compiled("SELECT * FROM S WHERE A ; B")
    evaluator = query.evaluator()
    evaluator.push(pa.record_batch({"type": ["A"], "ts": [10]}))
    again = query.restore(evaluator.checkpoint())
    with pytest.raises(cer_gpu.TimeOrderError, match=r"'ts' of event 1 \(9\) is less than the one before \(10\)"):
        again.push(pa.record_batch({"type": ["B"], "ts": [9]}))


# ---- refused checkpoints -----------------------------------------------------------------------------------------


def blob_of(text="SELECT * FROM S WHERE A ; B", **options):
    evaluator = cer_gpu.compile(text, **options).evaluator()
    evaluator.push(pa.record_batch({"type": ["A", "B"], "ts": [1, 2]}))
    return evaluator.checkpoint()


@pytest.mark.parametrize("place", [0.1, 0.3, 0.5, 0.7, 0.9, 0.999])
def test_a_damaged_blob_is_refused(place):
    blob = bytearray(blob_of())
    blob[int(len(blob) * place)] ^= 1
    with pytest.raises(cer_gpu.CheckpointError, match=r"the checkpoint is damaged"):
        cer_gpu.compile("SELECT * FROM S WHERE A ; B").restore(bytes(blob))


@pytest.mark.parametrize("kind", ["one query", "set"])
def test_each_byte_that_is_changed_is_noticed(kind):
    texts = {
        "one": "SELECT * FROM S WHERE A ; B",
        "two": "SELECT MAX * FROM S WHERE A AS a ; B AS b FILTER a.ts < b.ts",
    }
    query = cer_gpu.compile(texts["two"]) if kind == "one query" else cer_gpu.compile_all(texts)
    evaluator = query.evaluator()
    evaluator.push(pa.record_batch({"type": ["A", "B"], "ts": [1, 2]}))
    blob = evaluator.checkpoint()
    for place in range(len(blob)):
        for changed in (blob[place] ^ 1 << place % 8, 0, 255):
            other = bytearray(blob)
            other[place] = changed
            if other != blob:
                with pytest.raises(cer_gpu.CheckpointError):
                    query.restore(bytes(other))


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 100])
def test_content_that_is_no_state_is_told_in_words_though_its_checksum_fits(content):
    blob = checkpoint.MAGIC + hashlib.sha256(content).digest() + content
    with pytest.raises(cer_gpu.CheckpointError, match="though its checksum fits"):
        cer_gpu.compile("SELECT * FROM S WHERE A ; B").restore(blob)


def test_every_truncated_blob_is_refused():
    query, blob = cer_gpu.compile("SELECT * FROM S WHERE A ; B"), blob_of()
    for n in [*range(0, 100), len(blob) - 1]:
        with pytest.raises(cer_gpu.CheckpointError):
            query.restore(blob[:n])


@pytest.mark.parametrize("what", [b"", b"no checkpoint", None, "CERGPU", 5])
def test_a_value_that_is_no_checkpoint_is_refused(what):
    with pytest.raises(cer_gpu.CheckpointError, match=r"expected the bytes that checkpoint\(\) returned"):
        cer_gpu.compile("SELECT * FROM S WHERE A ; B").restore(what)


@pytest.mark.parametrize(
    ("text", "options", "different"),
    [
        ("SELECT * FROM S WHERE A ; C", {}, "text"),
        ("SELECT * FROM S WHERE A ; B", {"time_column": "ts"}, "time_column"),
        ("SELECT * FROM S WHERE A ; B", {"type_column": None}, "type_column"),
    ],
)
def test_a_checkpoint_of_another_query_is_refused(text, options, different):
    query = cer_gpu.compile(text.replace("A ; B", "S ; S") if "type_column" in options else text, **options)
    with pytest.raises(cer_gpu.CheckpointError, match=rf"another query \(its .*{different}.*differs\)"):
        query.restore(blob_of())


def test_a_checkpoint_of_another_version_is_refused(monkeypatch):
    blob, version = blob_of(), checkpoint.VERSION
    monkeypatch.setattr(checkpoint, "VERSION", version + 1)
    with pytest.raises(cer_gpu.CheckpointError, match=rf"has version {version}, and this cer_gpu reads {version + 1}"):
        cer_gpu.compile("SELECT * FROM S WHERE A ; B").restore(blob)


def test_checkpoints_amid_results_or_after_the_end_are_refused():
    evaluator = cer_gpu.compile("SELECT * FROM S WHERE A ; B").evaluator()
    pieces = evaluator.push_batches(pa.record_batch({"type": ["A", "B"]}))
    with pytest.raises(cer_gpu.OptionError, match="not all read"):
        evaluator.checkpoint()
    list(pieces)
    assert evaluator.checkpoint()
    evaluator.finish()
    with pytest.raises(cer_gpu.OptionError, match="finished"):
        evaluator.checkpoint()


def test_a_blob_holds_no_pickle():
    assert b"\x80\x04" not in blob_of()[:64]
    payload = blob_of()[len(checkpoint.MAGIC) + 32 :]
    with pa.ipc.open_stream(pa.py_buffer(payload)) as reader:  # the documented Arrow IPC stream
        assert "facts" in reader.read_all()["kind"].to_pylist()
