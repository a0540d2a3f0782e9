"""Columns from outside that lead out of their memory are refused, and all others pass unchanged."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pa_dataset
import pytest

import cer_gpu
from cer_gpu.ceql.paths import path_of
from cer_gpu.columnar import validation
from cer_gpu.columnar.validation import validated

N = 6
TEXTS = pa.array(["a", "bc", "", "a text of more than twelve bytes", "e", "f"])


def numbers(values, dtype="i4"):
    return pa.py_buffer(np.array(values, dtype))


def coded(codes, values=("x", "y", "z"), kind="int8"):
    return pa.DictionaryArray.from_arrays(pa.array(codes, kind), pa.array(values), safe=False)


def with_offsets(offsets, kind, dtype="i4"):
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, numbers(offsets, dtype), pa.py_buffer(b"abcdef")])


def with_buffer(array, i, buffer):
    buffers = array.buffers()
    buffers[i] = buffer
    return pa.Array.from_buffers(array.type, len(array), buffers)


def list_of(values, offsets):
    return pa.Array.from_buffers(pa.list_(values.type), len(offsets) - 1, [None, numbers(offsets)], children=[values])


def views(change):
    """Return string views, one of which is changed: its length, prefix, buffer and offset."""
    array = TEXTS.cast(pa.string_view())
    words = np.frombuffer(array.buffers()[1], "i4").copy().reshape(-1, 4)
    change(words[3])
    return with_buffer(array, 1, numbers(words))


def longer(view):
    view[0] = 1000


def in_another_buffer(view):
    view[2] = 7


RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([2, 4, 6], pa.int32()), pa.array([1, 2, 3]))
UNION = pa.UnionArray.from_dense(
    pa.array([0, 1] * 3, pa.int8()), pa.array([0, 0, 1, 1, 2, 2], pa.int32()), [TEXTS, TEXTS]
)
LIST_VIEWS = pa.array([[1], [2, 3], [], [4], [5], [6]], pa.list_view(pa.int64()))


def runs(ends):
    children = [pa.array(ends, pa.int32()), RUNS.values]
    return pa.Array.from_buffers(RUNS.type, N, [None], null_count=0, children=children)


def union(i, values, dtype):
    buffers = UNION.buffers()[:3]
    buffers[i] = numbers(values, dtype)
    return pa.Array.from_buffers(UNION.type, N, buffers, children=[TEXTS, TEXTS])


def list_views(i, values):
    buffers = LIST_VIEWS.buffers()[:3]
    buffers[i] = numbers(values)
    return pa.Array.from_buffers(LIST_VIEWS.type, N, buffers, children=[LIST_VIEWS.values])


INDEX = "event 3 is damaged: its dictionary has 3 values, and the index is"
DAMAGED = {
    "an index past its dictionary": (coded([0, 1, 2, 3, 0, 1]), f"{INDEX} 3"),
    "a negative index": (coded([0, 1, 2, -1, 0, 1]), f"{INDEX} -1"),
    "an unsigned index": (coded([0, 1, 2, 255, 0, 1], kind="uint8"), f"{INDEX} 255"),
    "an index of 64 bits": (coded([0, 1, 2, 1 << 32, 0, 1], kind="int64"), f"{INDEX} 4294967296"),
    "an index beside a NULL": (coded([0, None, 2, 3, 0, 1]), f"{INDEX} 3"),
    "a dictionary without values": (coded([None, 0], []), "event 1 is damaged: its dictionary has 0 values"),
    "offsets of text": (with_offsets([0, 1, 5, 2, 6], pa.string()), "event 2 is damaged: it begins at 5 and ends at 2"),
    "offsets of large text": (with_offsets([0, 5, 2, 6], pa.large_string(), "i8"), "event 1 .*begins at 5"),
    "offsets of bytes": (with_offsets([0, 5, 2, 6], pa.binary()), "event 1 .*begins at 5"),
    "a view past its bytes": (views(longer), "events 0 to 5 is damaged"),
    "a view of other bytes": (views(in_another_buffer), "events 0 to 5 is damaged"),
    "offsets of lists": (list_of(TEXTS, [0, 4, 2, 6]), "event 1 .*begins at 4 and ends at 2"),
    "texts in lists": (list_of(with_offsets([0, 5, 2, 6], pa.string()), [0, 1, 3]), "inside it, it begins at 5"),
    "indices in lists": (list_of(coded([0, 1, 9]), [0, 1, 3]), "inside it, its dictionary has 3 values"),
    "indices in structs": (pa.StructArray.from_arrays([coded([0, 9])], ["a"]), "inside it, its dictionary"),
    "texts of a dictionary": (
        pa.DictionaryArray.from_arrays([0, 1], with_offsets([0, 5, 2, 6], pa.string())), "inside it, it begins at 5",
    ),
    "list views": (list_views(1, [0, 1, 3, 3, 4, 99]), "event 5 .*outside its values"),
    "list views of a negative length": (list_views(2, [1, 2, 0, 1, -1, 1]), "event 4 .*outside its values"),
    "runs that do not ascend": (runs([4, 2, 6]), "its runs do not end one after another"),
    "runs of nothing": (runs([0, 4, 6]), "its runs do not end one after another"),
    "a type of a union": (union(1, [0, 1, 0, 1, 5, 0], "i1"), "event 4 .*none of the union"),
    "an offset of a union": (union(2, [0, 0, 1, 1, 99, 2], "i4"), "event 4 .*outside its values"),
    "a storage": (
        pa.ExtensionArray.from_storage(pa.opaque(pa.string(), "a", "b"), with_offsets([0, 5, 2, 6], pa.string())),
        "event 1 .*begins at 5",
    ),
    "a number of NULLs": (
        pa.Array.from_buffers(pa.int64(), N, [pa.py_buffer(b"\x0f"), numbers(range(N), "i8")], null_count=3),
        "3 NULLs are announced, and there are 2",
    ),
}  # fmt: skip
SOUND = {
    "codes": coded([0, 1, 2, None, 2, 0]),
    "anything under a NULL": pa.DictionaryArray.from_arrays(
        pa.array(np.array([0, 1, 99, -7, 2, 0]), mask=np.array([0, 0, 1, 1, 0, 0], bool)), ["x", "y", "z"], safe=False
    ),
    "no text in UTF-8": with_offsets([0, 1, 2, 2, 3, 4, 6], pa.string()),
    "texts": TEXTS,
    "views": TEXTS.cast(pa.string_view()),
    "short views": pa.array(["a", None, "b", "c", "d", "e"], pa.string_view()),
    "lists": pa.array([["a"], None, [], [None, "b"], ["c"], ["d"]]),
    "list views": LIST_VIEWS,
    "fixed lists": pa.array([["a", "b"], None] * 3, pa.list_(pa.string(), 2)),
    "maps": pa.array([[("a", "b")], None, []] * 2, pa.map_(pa.string(), pa.string())),
    "structs": pa.array([{"a": ["x"]}, None] * 3),
    "runs": RUNS,
    "a union": UNION,
    "a sparse union": pa.UnionArray.from_sparse(pa.array([0, 1] * 3, pa.int8()), [TEXTS, pa.array(range(N))]),
    "nothing": pa.nulls(N),
    "booleans": pa.array([True, None, False] * 2),
}


def check(array, **options):
    batch = pa.record_batch({"x": array, "other": pa.nulls(len(array))})
    assert next(validated([batch], ["x"], "a file", **options)) is batch


@pytest.mark.parametrize("kind", DAMAGED)
def test_arrays_that_lead_out_of_their_memory_are_refused(kind):
    array, message = DAMAGED[kind]
    with pytest.raises(
        cer_gpu.EventsError, match=f"^a file: column 'x' of {'.*' if message[0] != 'e' else ''}{message}"
    ):
        check(array)


@pytest.mark.parametrize("offset", [1000, -1])
def test_last_offsets_are_checked(tmp_path, offset):
    """Arrow accepts such buffers only when it reads them from a file."""
    texts = with_offsets([0, 2, 5, 6], pa.string())
    path = file_of(tmp_path / "e.arrow", pa.ipc.new_file, pa.record_batch({"x": texts}))
    offsets, changed = (np.array([0, 2, 5, last], "i4").tobytes() for last in (6, offset))
    path.write_bytes(path.read_bytes().replace(offsets, changed))
    with pytest.raises(cer_gpu.EventsError, match=r"e\.arrow: column 'x' of events 0 to 2 is damaged"):
        cer_gpu.compile("SELECT * FROM S WHERE A", type_column="x").evaluate(path)


@pytest.mark.parametrize("kind", SOUND)
def test_sound_arrays_pass(kind):
    array = SOUND[kind]
    for start, n in [(0, N), (0, 0), (N, 0), (1, 4), (3, 1), (2, 4)]:
        check(array.slice(start, n))


@pytest.mark.parametrize(
    "column",
    [
        RUNS,
        pa.ListArray.from_arrays([0, 1, 6], RUNS),
        pa.StructArray.from_arrays([RUNS], ["a"]),
        pa.DictionaryArray.from_arrays([0, 1], RUNS),
        pa.ExtensionArray.from_storage(pa.opaque(RUNS.type, "a", "b"), RUNS),
    ],
)
def test_runs_are_not_read_from_bytes(column):
    with pytest.raises(cer_gpu.EventsError, match=r"a file: column 'x' is .*run_end_encoded.*, which is not read"):
        check(column, runs=False)


@pytest.mark.parametrize("new", [pa.ipc.new_file, pa.ipc.new_stream])
def test_runs_of_files_and_streams_are_not_read(tmp_path, new):
    events = pa.record_batch({"type": ["A", "B"] * 3, "x": RUNS})
    path = file_of(tmp_path / "e.arrow", new, events)
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
    stored = new is pa.ipc.new_file
    for given in (path, pa_dataset.dataset(path, format="ipc") if stored else pa.ipc.open_stream(path)):
        with pytest.raises(cer_gpu.EventsError, match=r"column 'x' is run_end_encoded.*, which is not read"):
            query.evaluate(given, output="events")
    assert query.evaluate([events], output="events").num_rows == query.evaluate(path).num_rows


def test_a_type_without_arrays_is_not_read(tmp_path):
    """The type is one of intervals that Arrow has, but pyarrow does not."""
    intervals = pa.array([(1, 2, 3)] * 2, pa.month_day_nano_interval())
    path = file_of(tmp_path / "e.arrow", pa.ipc.new_stream, pa.record_batch({"type": ["A", "B"], "x": intervals}))
    data, query = path.read_bytes(), cer_gpu.compile("SELECT * FROM S WHERE A ; B")
    for place in [i for i in range(300) if data[i] == 2]:
        path.write_bytes(data[:place] + b"\x01" + data[place + 1 :])
        try:
            found = str(pa.ipc.open_stream(path).schema)
        except pa.ArrowException:
            continue
        if "x: day_time_interval" in found:
            break
    assert query.evaluate(path).num_rows == 1
    for events in (path, pa.ipc.open_stream(path)):
        with pytest.raises(cer_gpu.EventsError, match="column 'x' is day_time_interval, "):
            query.evaluate(events, output="events")


def test_columns_that_the_query_does_not_read_are_not_checked():
    batch = pa.record_batch({"x": coded([0, 1]), "y": coded([0, 9])})
    assert list(validated([batch], ["x"], "a file")) == [batch]


def test_the_message_numbers_events_over_all_batches():
    sound, damaged = (pa.record_batch({"x": coded([0, 1, code])}) for code in (2, 3))
    batches = validated([sound, sound, damaged], ["x"], "a file", 100)
    assert [next(batches), next(batches)] == [sound, sound]
    with pytest.raises(cer_gpu.EventsError, match="event 108 is damaged"):
        next(batches)


def test_a_dictionary_is_checked_once(monkeypatch):
    checked = []
    monkeypatch.setattr(validation, "_check_inside", lambda array, *_: checked.append(array))
    batch = pa.record_batch({"x": coded([0, 1, 2])})
    other = pa.record_batch({"x": coded([0, 1, 2])})
    for _ in validated([batch, batch.slice(1), other, other], ["x"], "a file"):
        pass
    assert len(checked) == 2


# ---- sources that are checked ---------------------------------------------------------------------------------------

EVENTS = pa.record_batch({"type": ["A", "B"] * 3, "d": DAMAGED["an index past its dictionary"][0]})


class Capsule:
    """Object with the PyCapsule interface of a stream, or of an array."""

    def __init__(self, name):
        setattr(self, name, getattr(EVENTS if name == "__arrow_c_array__" else pa.table(EVENTS), name))


def file_of(path, new, events=EVENTS):
    with new(str(path), events.schema) as writer:
        writer.write_batch(events)
    return path


def test_columns_are_checked_whose_fields_are_read():
    damaged = pa.record_batch({"st": pa.StructArray.from_arrays([pa.array([1, 2]), coded([0, 9])], ["p", "q"])})
    with pytest.raises(cer_gpu.EventsError, match="column 'st' of events 0 to 1 is damaged: inside it, its dictionary"):
        next(validated([damaged], [path_of(["st", "p"])], "a file"))


@pytest.mark.parametrize("where", ["file", "stream", "reader", "batches", "dataset", "c_stream", "c_array"])
def test_events_from_outside_are_checked(tmp_path, where):
    path = file_of(tmp_path / "e.arrow", pa.ipc.new_stream if where == "stream" else pa.ipc.new_file)
    events = {
        "file": lambda: path,
        "stream": lambda: [path],
        "reader": lambda: pa.RecordBatchReader.from_batches(EVENTS.schema, [EVENTS]),
        "batches": lambda: [EVENTS],
        "dataset": lambda: pa_dataset.dataset(path, format="ipc"),
        "c_stream": lambda: Capsule("__arrow_c_stream__"),
        "c_array": lambda: Capsule("__arrow_c_array__"),
    }[where]()
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [d]")
    with pytest.raises(cer_gpu.EventsError, match=rf"column 'd' of {INDEX} 3\nhint: "):
        query.evaluate(events)
