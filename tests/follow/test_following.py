"""Steps of a live source: each is done as a whole or not at all, whatever fails meanwhile."""

import json
import random
import re

import pyarrow as pa
import pytest
from follow.live import (
    TEXT,
    US,
    add_file,
    add_files,
    expected_rows,
    followed,
    follower,
    found_in,
    random_events,
)

import cer_gpu
from cer_gpu.follow.following import PASSING

OUTS = ("found", "found.jsonl")


def as_texts(rows):
    """Return rows without the forms of times, which JSON lines write in their own way."""
    return [json.dumps({**json.loads(row), "events": None, "start_time": None, "end_time": None}) for row in rows]


@pytest.mark.parametrize("out", OUTS)
@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl"])
def test_files_that_come_one_by_one_give_the_rows_of_one_run(tmp_path, out, ending):
    events = random_events(1, 300)
    for i in range(6):
        add_file(tmp_path / "in", f"{i}.{ending}", events.slice(50 * i, 50))
        steps = followed(tmp_path, out)
        assert [step.files for step in steps] == [[f"{i}.{ending}"]]
        assert steps[0].n_events == 50
    assert len(expected_rows(events)) > 50
    assert as_texts(found_in(tmp_path / out)) == as_texts(expected_rows(events))
    assert followed(tmp_path, out) == []


class KilledHere(BaseException):
    """What stands for a kill: nothing of the code that follows runs."""


def kill_at(name, after):
    """Return a hook that ends the process at a part of a step, once it was passed a number of times."""
    left = [after]

    def passed(part):
        left[0] -= part == name
        if part == name and left[0] < 0:
            raise KilledHere

    return passed


@pytest.mark.parametrize("out", OUTS)
@pytest.mark.parametrize("name", PASSING)
def test_a_kill_at_each_part_of_a_step_loses_nothing_and_writes_nothing_twice(tmp_path, out, name):
    events = random_events(2, 240)
    n_rows = 0
    for i in range(8):
        add_file(tmp_path / "in", f"{i}.parquet", events.slice(30 * i, 30))
        if i % 2:
            with pytest.raises(KilledHere):
                followed(tmp_path, out, passed=kill_at(name, 0))
            seen = found_in(tmp_path / out)
            # readers see whole steps, and only those that are committed
            assert as_texts(seen) == as_texts(expected_rows(events))[: len(seen)]
            assert len(seen) >= n_rows
            n_rows = len(seen)
    followed(tmp_path, out)
    assert as_texts(found_in(tmp_path / out)) == as_texts(expected_rows(events))
    hidden = [path.name for path in tmp_path.rglob("*") if path.name.startswith((".part", "rows-"))]
    assert hidden == []
    assert len(list(tmp_path.rglob("state-*"))) == 1


def test_lines_that_were_appended_in_part_are_completed(tmp_path):
    events = random_events(3, 100)
    add_files(tmp_path / "in", events, 1)
    with pytest.raises(KilledHere):
        followed(tmp_path, "found.jsonl", passed=kill_at("commit", 0))
    (rows,) = (tmp_path / "found.jsonl.state").glob("rows-*")
    data = rows.read_bytes()
    state = {path: path.read_bytes() for path in (tmp_path / "found.jsonl.state").iterdir()}
    for n in {0, 1, 100, len(data) - 1, len(data)}:
        for path, content in state.items():
            path.write_bytes(content)
        (tmp_path / "found.jsonl").write_bytes(data[:n])
        followed(tmp_path, "found.jsonl")
        assert (tmp_path / "found.jsonl").read_bytes() == data
    for path, content in state.items():
        path.write_bytes(content)
    (tmp_path / "found.jsonl").write_bytes(data + b"other\n")
    with pytest.raises(cer_gpu.CheckpointError, match=r"has .* bytes, more than the .* something else has written to"):
        followed(tmp_path, "found.jsonl")


def test_events_that_wait_for_late_ones_are_kept(tmp_path):
    rng = random.Random(5)
    events = random_events(4, 200)
    order = sorted(range(200), key=lambda i: events["ts"][i].value + rng.randrange(2_000_000))
    arrived = events.take(order)
    options = {"lateness": "2s"}
    end = pa.table({"type": ["Z"], "ts": pa.array([10**12], US), "k": [0]})
    for i in range(10):
        add_file(tmp_path / "in", f"{i}.parquet", arrived.slice(20 * i, 20))
        with pytest.raises(KilledHere):
            followed(tmp_path, options=options, passed=kill_at("state" if i % 2 else "publish", 0))
    add_file(tmp_path / "in", "end.parquet", end)
    followed(tmp_path, options=options)
    assert found_in(tmp_path / "found") == expected_rows(pa.concat_tables([arrived, end]), lateness="2s")


def test_no_rows_make_no_part_file(tmp_path):
    add_files(tmp_path / "in", random_events(1, 40).set_column(0, "type", pa.array(["C"] * 40)), 4)
    (step,) = followed(tmp_path)
    assert (step.target, step.n_rows, step.n_events) == (None, {}, 40)
    assert [path.name for path in (tmp_path / "found").iterdir()] == ["_state"]


def test_two_processes_do_not_write_the_same_results(tmp_path):
    add_files(tmp_path / "in", random_events(1, 40), 1)
    with (
        follower(tmp_path).opened(),
        pytest.raises(cer_gpu.OptionError, match="another process writes these results"),
        follower(tmp_path).opened(),
    ):
        pass


@pytest.mark.parametrize("out", OUTS)
def test_results_without_a_state_are_not_touched(tmp_path, out):
    add_files(tmp_path / "in", random_events(1, 40), 1)
    followed(tmp_path, out)
    state = tmp_path / "found" / "_state" if out == "found" else tmp_path / "found.jsonl.state"
    for path in state.iterdir():
        path.unlink()
    before = found_in(tmp_path / out)
    with pytest.raises(cer_gpu.OptionError, match=r"no state .*\n?hint: "):
        followed(tmp_path, out)
    assert found_in(tmp_path / out) == before


@pytest.mark.parametrize("out", OUTS)
def test_a_state_in_a_folder_of_its_own_is_the_only_one_of_its_results(tmp_path, out):
    events = random_events(10, 120)
    for i in range(4):
        add_file(tmp_path / "in", f"{i}.parquet", events.slice(30 * i, 30))
        with pytest.raises(KilledHere):
            followed(tmp_path, out, state="state", passed=kill_at(PASSING[i], 0))
    followed(tmp_path, out, state="state")
    assert as_texts(found_in(tmp_path / out)) == as_texts(expected_rows(events))
    add_file(tmp_path / "in", "4.parquet", events.slice(120))
    for other in (None, "other"):
        with pytest.raises(cer_gpu.OptionError, match=r"its state is .*state, and not .*\nhint: that one|no state"):
            followed(tmp_path, out, state=other)
    with pytest.raises(cer_gpu.CheckpointError, match="the state is of -o "):
        followed(tmp_path, "more" + out, state="state")


def test_a_state_of_another_query_folder_or_option_is_refused(tmp_path):
    add_files(tmp_path / "in", random_events(1, 40), 1)
    followed(tmp_path, facts={"--lateness": None})
    other = cer_gpu.compile(TEXT.replace("4", "5"), time_column="ts")
    with pytest.raises(cer_gpu.CheckpointError, match=r"state-000000001: .*text differs(?s:.*); or begin again"):
        followed(tmp_path, query=other, facts={"--lateness": None})
    lines = [TEXT, "-- 1\nSELECT * FROM S\nWHERE A ; B", "-- 1\nSELECT * FROM S\nWHERE A ; C\n-- 2"]
    asked = [cer_gpu.compile(text, time_column="ts") for text in lines]
    for made, new, hint in [(0, 1, f"made it: {TEXT!r}"), (1, 2, "whose line 3 is 'WHERE A ; B'"), (2, 1, "line 3 is")]:
        with pytest.raises(cer_gpu.CheckpointError, match=re.escape(hint)):
            asked[new].restore(asked[made].evaluator().checkpoint())
    rules = {f"r{i}": TEXT for i in range(12)}
    one, two = (cer_gpu.compile_all(each, time_column="ts") for each in (rules, {**rules, "new": TEXT}))
    state = one.evaluator().checkpoint()
    with pytest.raises(cer_gpu.CheckpointError, match="of other queries: of no other, and not of 'new'"):
        two.restore(state)
    with pytest.raises(cer_gpu.CheckpointError, match="of no --lateness, and not of --lateness '5s refuse'"):
        followed(tmp_path, facts={"--lateness": "5s refuse"})
    schema = random_events(1, 1).select(["type", "ts"]).schema
    with pytest.raises(cer_gpu.CheckpointError, match="another schema"):
        followed(tmp_path, facts={"--lateness": None}, expected=schema)
    (tmp_path / "in").rename(tmp_path / "moved")
    (tmp_path / "in").symlink_to(tmp_path / "moved")
    with pytest.raises(cer_gpu.CheckpointError, match="the state is of --follow"):
        followed(tmp_path, facts={"--lateness": None})


def test_a_state_that_is_missing_or_damaged_is_told(tmp_path):
    add_files(tmp_path / "in", random_events(1, 40), 1)
    followed(tmp_path)
    state = tmp_path / "found" / "_state" / "state-000000001"
    data = state.read_bytes()
    state.write_bytes(data[:-1])
    with pytest.raises(cer_gpu.CheckpointError, match="state-000000001: the checkpoint is damaged"):
        followed(tmp_path)
    state.unlink()
    with pytest.raises(cer_gpu.CheckpointError, match="is not there, and the log says that it is"):
        followed(tmp_path)


@pytest.mark.parametrize("bad", ["cut off", "no column", "another type"])
def test_a_file_that_cannot_be_read_stops_and_loses_nothing_or_is_left_out(tmp_path, bad):
    events = random_events(6, 120)
    add_files(tmp_path / "in", events, 4)
    path = tmp_path / "in" / "0001a.parquet"
    if bad == "cut off":
        path.write_bytes((tmp_path / "in" / "0001.parquet").read_bytes()[:-20])
    else:
        wrong = events.drop_columns(["k"])
        add_file(path.parent, path.name, wrong if bad == "no column" else events.set_column(1, "ts", events["type"]))
    for _ in range(2):
        with pytest.raises(cer_gpu.EventsError, match=r"0001a.parquet: "):
            followed(tmp_path)
        assert found_in(tmp_path / "found") == []
    (step,) = followed(tmp_path, skip=True)
    assert list(step.skipped) == ["0001a.parquet"]
    assert len(step.files) == 4
    assert found_in(tmp_path / "found") == expected_rows(events)
    assert followed(tmp_path) == []


def test_a_file_that_breaks_amid_its_events_leaves_no_trace(tmp_path):
    events = random_events(7, 90)
    add_files(tmp_path / "in", events, 3, "jsonl")
    assert len(followed(tmp_path)) == 1
    more = random_events(7, 200).slice(90)
    late = more.set_column(1, "ts", pa.array([t.value + 10**9 for t in more["ts"]], US))
    add_file(tmp_path / "in", "3.jsonl", late)
    with open(tmp_path / "in" / "3.jsonl", "a") as file:
        file.write(" " * (5 << 20) + '{"type": 5}\n')  # in a later block
    (step,) = followed(tmp_path, skip=True)
    assert list(step.skipped) == ["3.jsonl"]
    add_file(tmp_path / "in", "4.jsonl", late)
    followed(tmp_path)
    assert found_in(tmp_path / "found") == expected_rows(pa.concat_tables([events, late]))


def test_events_that_go_back_in_time_stop_and_lose_nothing(tmp_path):
    events = random_events(8, 100)
    add_files(tmp_path / "in", events.slice(50), 1, first=1)
    followed(tmp_path)
    add_files(tmp_path / "in", events.slice(0, 50), 1, first=2)
    before = found_in(tmp_path / "found")
    with pytest.raises(cer_gpu.TimeOrderError, match=r"0002.parquet \(its first event is 50\)"):
        followed(tmp_path)
    assert found_in(tmp_path / "found") == before
    assert before


def test_json_lines_without_a_column_have_null_there(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    rows = [{"type": "A", "ts": 1, "k": 1}, {"type": "B", "ts": 2, "k": 1}]
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B FILTER B[k IS NULL]", time_column="ts")
    (folder / "0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "1.jsonl").write_text("")
    (folder / "2.jsonl").write_text('{"ts": 3, "type": "B", "more": 2}\n')
    (step,) = followed(tmp_path, query=query)
    assert (step.n_rows, step.n_events) == ({"": 1}, 3)


def test_the_schema_may_be_told(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.jsonl").write_text('{"type": "A", "ts": 1}\n{"type": "B", "ts": 2}\n')
    schema = pa.schema([("type", pa.string()), ("ts", pa.int64()), ("host", pa.string())])
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B FILTER B[host IS NULL]", time_column="ts")
    (step,) = followed(tmp_path, query=query, expected=schema)
    assert step.n_rows == {"": 1}
    assert "host" in found_in(tmp_path / "found")[0]


def test_columns_that_folders_tell(tmp_path):
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B FILTER A[day = 9] AND B[day = 10]", time_column="ts")
    events = random_events(9, 40)
    for day in (9, 10):
        add_file(tmp_path / "in" / f"day={day}", "x.parquet", events.slice(20 * (day - 9), 20))
    followed(tmp_path, query=query)
    assert found_in(tmp_path / "found") == expected_rows(str(tmp_path / "in"), query=query)
    assert len(found_in(tmp_path / "found")) > 3


def test_a_target_names_its_form(tmp_path):
    with pytest.raises(cer_gpu.OptionError, match=r"one parquet file cannot grow .*\nhint: name a folder"):
        follower(tmp_path, "found.parquet")
    (tmp_path / "in").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(cer_gpu.OptionError, match="is no folder"):
        followed(tmp_path, "file")


@pytest.mark.parametrize("out", OUTS)
def test_links_that_others_plant_are_not_written_through(tmp_path, out):
    events = random_events(3, 90)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    state = tmp_path / "found" / "_state" if out == "found" else tmp_path / "found.jsonl.state"
    for i in range(3):
        add_file(tmp_path / "in", f"{i}.parquet", events.slice(30 * i, 30))
        followed(tmp_path, out)
        names = [state / f"rows-{i + 2:09}", state / f"rows-{i + 2:09}-0.part"]
        if out == "found":
            part = tmp_path / "found" / f"part-{i + 2:09}.parquet"
            names = [part.with_name(f".{part.name}.part"), part.with_name(f".{part.name}-0.part")]
        for path in names:
            path.symlink_to(victim)
    assert victim.read_text() == "mine"
    assert as_texts(found_in(tmp_path / out)) == as_texts(expected_rows(events))


def test_a_state_in_a_folder_that_others_can_write_to_is_refused(tmp_path):
    add_files(tmp_path / "in", random_events(1, 40), 1)
    (tmp_path / "found" / "_state").mkdir(parents=True)
    (tmp_path / "found" / "_state").chmod(0o1777)
    with pytest.raises(cer_gpu.OptionError, match=r"_state: the folder of the state can be written to by everybody\nh"):
        followed(tmp_path)
