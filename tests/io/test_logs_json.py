"""JSON of any shape, as it is read: arrays, objects with a list inside, objects one after the other, JSON lines."""

import io
import json
import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cer_gpu
import cer_gpu.io.json_documents as documents
from cer_gpu.errors import EventsError
from cer_gpu.io.json_documents import JsonDocuments, are_lines, is_json
from cer_gpu.io.sources import open_events

TEXTS = st.text(st.characters(codec="utf-8"), max_size=4)
SCALARS = st.none() | st.booleans() | st.integers(-9, 10**12) | st.floats(-9, 9) | TEXTS
NESTED = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))
OBJECTS = st.lists(st.dictionaries(TEXTS, NESTED, max_size=4), min_size=1, max_size=6)
STYLES = st.sampled_from([{}, {"indent": 1}, {"indent": "\t"}, {"separators": (",", ":")}, {"ensure_ascii": False}])


class Cut(io.RawIOBase):
    """A file that returns a few bytes at a time."""

    def __init__(self, data, seed):
        self._data, self._random = data, random.Random(seed)

    def read(self, n=-1):
        n = min(n, self._random.randint(1, 7))
        found, self._data = self._data[:n], self._data[n:]
        return found


def written(objects, shape, style):
    if shape == "array":
        return json.dumps(objects, **style)
    if shape == "wrapped":
        return json.dumps({"Version": "1", "Inner": {"a": [1]}, "Records": objects, "n": [1, 2]}, **style)
    between = {"lines": "\n", "spaced": "\r\n \n", "joined": ""}[shape]
    return between.join(json.dumps(each, **({} if shape == "lines" else style)) for each in objects)


def read_back(data, seed=None):
    file = JsonDocuments(io.BytesIO(data) if seed is None else Cut(data, seed), "x.json")
    sizes, parts = random.Random(seed), []
    while part := file.read(sizes.randint(1, 50)):
        parts.append(part)
    lines = b"".join(parts).split(b"\n")
    assert lines.pop() == b""
    assert not any(b"\r" in line for line in lines)
    return [json.loads(line) for line in lines]


@given(OBJECTS, st.sampled_from(["array", "wrapped", "lines", "spaced", "joined"]), STYLES, st.integers(0, 99))
def test_every_shape_gives_the_objects_at_any_cut_of_reads(objects, shape, style, seed):
    data = written(objects, shape, style).encode()
    if shape in ("lines", "spaced", "joined") and len(objects) == 1:
        objects = wrapped_in(objects[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "_STEP_BYTES", 3)
        assert read_back(data, seed) == objects
    assert read_back(b"\xef\xbb\xbf" + data) == objects
    assert is_json(data, is_whole=True)
    assert len(data) < 50 or is_json(data[: len(data) // 2], is_whole=False)


def wrapped_in(found):
    """The rows of a file that has one object."""
    lists = [value for value in found.values() if isinstance(value, list) and value]
    lists = [each for each in lists if all(isinstance(row, dict) for row in each)]
    if len(lists) == 1:
        return lists[0]
    return [] if len(found) == 1 and next(iter(found.values())) == [] else [found]


def test_a_list_that_is_longer_than_the_probe_is_found_by_its_begin(monkeypatch):
    monkeypatch.setattr(documents, "PROBE_BYTES", 100)
    monkeypatch.setattr(documents, "_STEP_BYTES", 50)
    objects = [{"a": i, "b": [{"c": 1}]} for i in range(100)]
    for style in ({}, {"indent": 2}):
        assert read_back(json.dumps({"v": 1, "Records": objects, "end": "x"}, **style).encode()) == objects
        assert read_back("\n".join(json.dumps(each, **style) for each in objects).encode()) == objects
    long = {"a": "x" * 1000, "b": 1}
    assert read_back(json.dumps(long).encode()) == [long]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "element 0 is a number"),
        ('[{"a": 1}, [2]]', "element 1 is a list"),
        ('[{"a": 1} {"a": 2}]', "comma"),
        ('[{"a": 1}, {"a": 2}', "the end in an array"),
        ('[{"a": 1}, {"a": ', "Expecting value after 1"),
        ('[{"a": 1}] x', "text after the end"),
        ('[{"a": tru}]' + " " * 50, "Expecting value"),
        ('{"a": "', "Unterminated"),
        ("hello", "'h'"),
        ("[" * 100_000, "too deep|is a list"),
    ],
)
def test_text_that_has_no_such_shape_is_an_error_with_its_place(tmp_path, text, message):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(EventsError, match=message) as raised:
        JsonDocuments(io.BytesIO(text.encode()), str(path)).read()
    assert str(path) in str(raised.value)


def test_two_lists_of_objects_in_a_long_object_are_an_error(monkeypatch):
    monkeypatch.setattr(documents, "PROBE_BYTES", 100)
    monkeypatch.setattr(documents, "_STEP_BYTES", 50)
    text = json.dumps({"a": [{"x": i} for i in range(50)], "b": [{"y": 1}]})
    with pytest.raises(EventsError, match="lists of objects in 'a' and in 'b'"):
        read_back(text.encode())


def test_an_array_is_not_read_whole(monkeypatch):
    served = 0

    def opened():
        nonlocal served
        yield b"["
        while True:
            data = b'{"a": 1, "b": "xxxxxxxxxxxxxxxxxxxxxxxx"},\n' * 1000
            served += len(data)
            yield data

    class Endless:
        def __init__(self):
            self._parts = opened()

        def read(self, n):
            return next(self._parts)

    file = JsonDocuments(Endless(), "x")
    for _ in range(100):
        file.read(100_000)
    assert served < 100 * 100_000 + documents.PROBE_BYTES + (1 << 20)
    assert len(file._lines.gi_frame.f_locals["self"]._text) < 1 << 20


@pytest.mark.parametrize(
    ("text", "is_one"), [("{}", 1), (" [ {", 1), ('{"a', 1), ("{a}", 0), ("[1]", 0), ("x", 0), ("", 0)]
)
def test_json_is_recognised_by_its_begin(text, is_one):
    assert is_json(text.encode(), is_whole=text == "{a}") == bool(is_one)


@pytest.mark.parametrize(
    ("text", "are"),
    [
        ('{"a": 1}\n{"a": 2}\n', 1),
        ('{"a": 1}\n\n{"a": 2}\n{', 1),
        ('{"a": 1}\n', 0),
        ('{"a":\n1}\n', 0),
        ("[\n{}\n", 0),
    ],
)
def test_two_lines_that_are_objects_tell_json_lines(text, are):
    assert are_lines(text.encode()) == bool(are)


ROWS = [{"at": f"2024-03-01T05:00:0{i}Z", "n": i, "deep": {"x": f"v{i}"}} for i in range(5)]


@pytest.mark.parametrize("shape", ["array", "wrapped", "lines", "spaced"])
@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x.log", "x"])
def test_files_of_every_shape_have_the_same_rows(tmp_path, shape, name):
    if name == "x.jsonl" and shape in ("wrapped", "spaced"):
        pytest.skip("the name says JSON lines, and the text begins as these do")
    path = tmp_path / name
    path.write_text(written(ROWS, shape, {"indent": 1}))
    source = open_events(path)
    table = pa.Table.from_batches(list(source.batches(source.schema.names)))
    assert table.schema.field("at").type == pa.timestamp("us", "UTC")
    assert table["n"].to_pylist() == [0, 1, 2, 3, 4]
    assert table["deep"].to_pylist() == [row["deep"] for row in ROWS]
    query = cer_gpu.compile("SELECT * FROM S WHERE S AS x FILTER x[deep.x = 'v3']", type_column=None)
    assert query.evaluate(path)["start"].to_pylist() == [3]


@pytest.mark.parametrize("text", ['{"Records": []}', "[]", " \n[ ]\n", ""])
def test_lists_of_nothing_have_no_rows(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    assert open_events(tmp_path / "a.json").n_rows == 0
    (tmp_path / "b.json").write_text(json.dumps({"Records": ROWS}))
    (tmp_path / "c.json").write_text(text)
    query = cer_gpu.compile("SELECT * FROM S WHERE S AS x FILTER x[deep.x = 'v3']", type_column=None)
    assert query.evaluate(tmp_path)["start"].to_pylist() == [3]
    assert open_events(tmp_path).remarks == {}


def test_a_later_row_widens_the_type_of_a_column_as_in_json_lines(tmp_path):
    path = tmp_path / "x.json"
    rows = [{"v": 1, "pad": "x" * 100}] * 50_000 + [{"v": 1.5}]
    path.write_text(json.dumps(rows))
    query = cer_gpu.compile("SELECT * FROM S WHERE S AS x FILTER x[v > 1]", type_column=None)
    assert query.evaluate(path)["start"].to_pylist() == [50_000]
