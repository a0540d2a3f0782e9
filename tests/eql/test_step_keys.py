"""Keys of each step beside matches: explanations, distribution, forecasts, checkpoints of many keys, limits."""

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.errors import EventsError, OptionError

SCHEMA = pa.schema(
    {
        "event.category": pa.string(),
        "@timestamp": pa.timestamp("s"),
        "user": pa.string(),
        "owner": pa.string(),
        "tags": pa.list_(pa.int64()),
    }
)
UNLIKE = "sequence with maxspan=1h [file where true] by user [process where true] by owner"
LISTS = "sequence by tags with maxspan=1h [any where true] [any where true]"
SAMPLE = "sample by user [file where true] [process where true]"


def compiled(text):
    return cer_gpu.compile(text, language="eql", schema=SCHEMA)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (UNLIKE, "same user, each step of its own columns"),
        (LISTS, "each distinct element of a list"),
        (SAMPLE, "known at the end of the events"),
        (UNLIKE.replace("by user", "by ?user").replace("by owner", "by ?owner"), "NULL is a value"),
    ],
)
def test_the_words_of_an_explanation_tell_of_keys(text, said):
    assert said in str(compiled(text).explain())


def test_tasks_share_the_events_by_unlike_keys_and_not_by_lists_or_samples():
    assert compiled(UNLIKE).distribution_for("positions").shared == (("file", "user"), ("process", "owner"))
    for text in (LISTS, SAMPLE, UNLIKE.replace("by user", "by ?user").replace("by owner", "by ?owner")):
        distribution = compiled(text).distribution_for("positions")
        assert distribution.shared == ()
        assert distribution.why_not_keys is not None


def test_samples_have_no_forecast():
    with pytest.raises(OptionError, match="samples are known at the end"):
        compiled(SAMPLE).fit(SCHEMA.empty_table(), within=["1 hour"])


def test_an_event_has_at_most_65_536_keys():
    def events(n):
        rows = [{"event.category": "a", "tags": list(range(n))} for _ in range(2)]
        return pa.Table.from_pylist([{**row, "@timestamp": i} for i, row in enumerate(rows)], SCHEMA)

    assert compiled(LISTS).count(events(65_536)) == 65_536
    with pytest.raises(EventsError, match="more than 65,536 keys"):
        compiled(LISTS).count(events(65_537))


def test_a_list_of_many_events_before_is_read_by_each_of_its_keys_after_a_checkpoint():
    query = compiled(LISTS)
    evaluator = query.evaluator()
    found = []
    for i in range(300):
        row = {"event.category": "a", "@timestamp": i, "tags": [i, i + 1, i + 150]}
        found += evaluator.push(pa.RecordBatch.from_pylist([row], SCHEMA)).to_pylist()
        if i % 50 == 0:
            evaluator = query.restore(evaluator.checkpoint())
    found += evaluator.finish().to_pylist()
    # event i shares i with the one before it
    expected = [(i - 1, i, i) for i in range(1, 300)]
    assert [(*row["positions"], row["tags"]) for row in found if row["tags"] < 150] == expected[:149]
    assert all(row["tags"] in range(row["positions"][1], row["positions"][1] + 151) for row in found)


VALUES = [["x", "y"], None, ["y", "z"], ["z", "x"]]
FLAT = pa.array(["x", "y", "y", "z", "z", "x"])
OFFSETS, MASK = pa.array([0, 2, 2, 4, 6], pa.int32()), pa.array([False, True, False, False])


@pytest.mark.parametrize(
    "lists",
    [
        pa.array(VALUES),
        pa.array(VALUES, pa.large_list(pa.large_string())),
        pa.array(VALUES, pa.list_(pa.string(), 2)),
        pa.ListArray.from_arrays(OFFSETS, FLAT.dictionary_encode(), mask=MASK),
        pa.ListArray.from_arrays(OFFSETS, FLAT.cast(pa.string_view()), mask=MASK),
    ],
    ids=str,
)
def test_lists_of_each_layout_are_keys(lists):
    times = pa.array(range(4), pa.timestamp("s"))
    events = pa.table({"event.category": ["a"] * 4, "@timestamp": times, "tags": lists})
    inside = events.drop_columns(["tags"]).append_column("s", pa.StructArray.from_arrays([lists], ["tags"]))
    pieces = pa.concat_tables([events.slice(0, 3), events.slice(3)])
    for name, table in (("tags", events), ("tags", pieces), ("s.tags", inside)):
        query = cer_gpu.compile(f"sequence by {name} [any where true] [any where true]", language="eql")
        found = [(row["positions"], row[name]) for row in query.evaluate(table).to_pylist()]
        assert found == [([0, 2], "y"), ([2, 3], "z"), ([0, 3], "x")]
