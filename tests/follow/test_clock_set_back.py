"""A wall clock that is set meanwhile, and files with times of the past and the future: nothing depends on them."""

import os
import random
import time

import pytest
from follow.live import add_file, add_files, expected_rows, followed, found_in, random_events

import cer_gpu
from cer_gpu import cache
from cer_gpu.cache import disk_cached
from cer_gpu.follow.folder_watcher import FolderWatcher
from cer_gpu.follow.log import locked

HOUR = 3600.0


class Clocks:
    """The wall clock, which can be set, and the monotonic one, which only passes."""

    def __init__(self, monkeypatch, now=2_000_000_000.0):
        self.now, self.passed = now, 1000.0
        monkeypatch.setattr(time, "time", lambda: self.now)
        monkeypatch.setattr(time, "time_ns", lambda: round(self.now * 1e9))
        monkeypatch.setattr(time, "monotonic", lambda: self.passed)
        monkeypatch.setattr(time, "monotonic_ns", lambda: round(self.passed * 1e9))

    def wait(self, seconds):
        self.now += seconds
        self.passed += seconds

    def write(self, path, data="x"):
        """Write a file at this time."""
        path.write_text(data)
        os.utime(path, (self.now, self.now))


@pytest.fixture
def clocks(monkeypatch):
    return Clocks(monkeypatch)


def names(poll):
    return [each.name for each in poll.finished]


# ---- files that are still written -------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-10 * HOUR, -60.0, -3.0, 0.0, 3.0, 60.0, 10 * HOUR])
def test_a_file_that_is_written_while_the_clock_is_set_is_not_read_before_its_end(tmp_path, clocks, jump):
    coming, path = FolderWatcher(str(tmp_path), 5), tmp_path / "a.jsonl"
    assert names(coming.poll({})) == []
    clocks.write(path, "half")
    clocks.wait(1)
    assert names(coming.poll({})) == []
    clocks.now += jump
    for part in ("half of", "half of it", "whole of it"):  # written to each second
        assert names(coming.poll({})) == []
        clocks.wait(1)
        clocks.write(path, part)
    for waited in range(5):
        assert names(coming.poll({})) == [], waited
        clocks.wait(1)
    assert names(coming.poll({})) == ["a.jsonl"]


def test_a_finished_file_is_read_after_its_time_however_often_the_clock_is_set(tmp_path, clocks):
    rng = random.Random(1)
    coming = FolderWatcher(str(tmp_path), 5)
    clocks.write(tmp_path / "a.jsonl")
    assert names(coming.poll({})) == []
    for _ in range(5):
        clocks.now += rng.uniform(-HOUR, HOUR)
        clocks.wait(1)
        found = names(coming.poll({}))
    assert found == ["a.jsonl"]


def test_files_that_are_there_at_the_beginning_are_read_at_once(tmp_path, clocks):
    clocks.write(tmp_path / "a.jsonl")
    clocks.wait(6)
    assert names(FolderWatcher(str(tmp_path), 5).poll({})) == ["a.jsonl"]


# ---- results, states, locks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("out", ["found", "found.jsonl"])
def test_times_of_files_and_states_change_no_row(tmp_path, monkeypatch, out):
    clocks, rng = Clocks(monkeypatch), random.Random(2)
    events = random_events(1, 300)
    for i in range(6):
        add_file(tmp_path / "in", f"{i}.parquet", events.slice(50 * i, 50))
        for path in tmp_path.rglob("*"):
            stamp = rng.choice([0, 1, clocks.now - HOUR, clocks.now + 1000 * HOUR])
            os.utime(path, (stamp, stamp))
        clocks.now += rng.choice([-100 * HOUR, -1, HOUR])
        assert [step.files for step in followed(tmp_path, out)] == [[f"{i}.parquet"]]
        assert followed(tmp_path, out) == []
    other = tmp_path / "other"
    other.mkdir()
    add_files(other / "in", events, 6)
    followed(other, out)
    assert len(found_in(tmp_path / out)) == len(expected_rows(events)) > 50
    assert found_in(tmp_path / out) == found_in(other / out)


@pytest.mark.parametrize("age", [-1000 * HOUR, 0.0, 1000 * HOUR])
def test_a_lock_has_no_age(tmp_path, clocks, age):
    with locked(tmp_path):
        os.utime(tmp_path / "lock", (clocks.now - age, clocks.now - age))
        clocks.now -= 10 * HOUR
        with pytest.raises(cer_gpu.OptionError, match="another process writes these results"), locked(tmp_path):
            pass
    with locked(tmp_path):  # one that a dead process left is free
        pass


# ---- caches -----------------------------------------------------------------------------------------------------


@pytest.fixture
def values(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache, "WORTH_SECONDS", 0)
    monkeypatch.setattr(cache, "MAX_CACHED", 4)
    return tmp_path / "cer-gpu" / "values"


def make(name):
    """Return whether a value was made anew, which is right in any case."""
    made = []
    value = disk_cached("values", [name], lambda: made.append(name) or name, str.encode, bytes.decode)
    assert value == name
    return bool(made)


@pytest.mark.parametrize("jump", [-1000 * HOUR, 1000 * HOUR])
def test_values_are_kept_after_the_clock_was_set(values, jump):
    for i in range(4):
        assert make(f"old {i}")
    for path in values.iterdir():
        os.utime(path, (time.time() - jump, time.time() - jump))  # the clock has been set by `jump` since
    assert not make("old 0")
    for i in range(3):
        assert make(f"new {i}")
        assert not make(f"new {i}")
        assert len(list(values.iterdir())) == 4
    # those of before go first, and the one that was used since stays
    assert not any(make(name) for name in ("old 0", "new 0", "new 1", "new 2"))


def test_the_value_that_was_just_written_stays(values):
    for i in range(4):
        make(f"old {i}")
        for path in values.iterdir():
            os.utime(path, (time.time() + HOUR * i, time.time() + HOUR * i))
    assert make("new")
    assert not make("new")
