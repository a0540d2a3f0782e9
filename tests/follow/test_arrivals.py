"""Files that have come: finished ones only, in a stated order."""

import os
import time

import pytest

import cer_gpu
from cer_gpu.follow import folder_watcher
from cer_gpu.follow.folder_watcher import FolderWatcher


def touch(path, age=100.0, data="x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data)
    stamp = time.time() - age
    os.utime(path, (stamp, stamp))


def names(poll):
    return [each.name for each in poll.finished]


def test_files_come_by_name_and_those_of_other_kinds_do_not_count(tmp_path):
    for name in ("b.parquet", "a.jsonl", "c.arrow", "d.tmp", ".e.parquet", "_f.parquet", "_g/h.parquet", "z/a.parquet"):
        touch(tmp_path / name)
    for n in (10, 9):
        touch(tmp_path / f"day={n}" / "x.parquet")
    poll = FolderWatcher(str(tmp_path), 5).poll({})
    # a number in the name of a folder is a number
    assert names(poll) == ["a.jsonl", "b.parquet", "c.arrow", "day=9/x.parquet", "day=10/x.parquet", "z/a.parquet"]
    assert names(FolderWatcher(f"{tmp_path}/", 5).poll({"b.parquet": 1}, ["c.arrow"])) == [
        "a.jsonl", "day=9/x.parquet", "day=10/x.parquet", "z/a.parquet",
    ]  # fmt: skip


def test_a_relative_folder_names_the_same_files(tmp_path, monkeypatch):
    touch(tmp_path / "in" / "d" / "a.parquet")
    monkeypatch.chdir(tmp_path)
    for given in ("in", "./in", "in/"):
        assert names(FolderWatcher(given, 5).poll({})) == ["d/a.parquet"], given
    monkeypatch.chdir(tmp_path / "in")
    assert names(FolderWatcher(".", 5).poll({})) == ["d/a.parquet"]


def test_a_file_waits_for_unfinished_ones_before_it(tmp_path):
    touch(tmp_path / "1.parquet")
    touch(tmp_path / "2.parquet", age=0)
    touch(tmp_path / "3.parquet")
    poll = FolderWatcher(str(tmp_path), 5).poll({})
    assert names(poll) == ["1.parquet"]
    assert poll.waiting == ["2.parquet", "3.parquet"]
    assert names(FolderWatcher(str(tmp_path), 0).poll({})) == ["1.parquet", "2.parquet", "3.parquet"]


def test_the_order_of_times(tmp_path):
    touch(tmp_path / "1.parquet", age=50)
    touch(tmp_path / "2.parquet", age=200)
    touch(tmp_path / "3.parquet", age=100)
    assert names(FolderWatcher(str(tmp_path), 5, "modified").poll({})) == ["2.parquet", "3.parquet", "1.parquet"]


def test_a_file_of_the_future_is_finished_once_it_was_seen_unchanged(tmp_path):
    touch(tmp_path / "1.parquet", age=-1_000)
    coming = FolderWatcher(str(tmp_path), 0.05)
    assert names(coming.poll({})) == []
    time.sleep(0.06)
    touch(tmp_path / "1.parquet", age=-1_000, data="more")
    assert names(coming.poll({})) == []
    time.sleep(0.06)
    assert names(coming.poll({})) == ["1.parquet"]


def test_a_step_is_bounded(tmp_path, monkeypatch):
    for i in range(6):
        touch(tmp_path / f"{i}.jsonl", data="x" * 10)
    monkeypatch.setattr(folder_watcher, "STEP_FILES", 4)
    assert len(names(FolderWatcher(str(tmp_path), 5).poll({}))) == 4
    monkeypatch.setattr(folder_watcher, "STEP_BYTES", 25)
    assert len(names(FolderWatcher(str(tmp_path), 5).poll({}))) == 2
    monkeypatch.setattr(folder_watcher, "STEP_BYTES", 5)
    assert len(names(FolderWatcher(str(tmp_path), 5).poll({}))) == 1


def test_files_that_grow_after_they_were_read_are_told(tmp_path):
    touch(tmp_path / "a.jsonl", data="xx")
    assert FolderWatcher(str(tmp_path), 5).poll({"a.jsonl": 2}).grown == []
    assert FolderWatcher(str(tmp_path), 5).poll({"a.jsonl": 1}).grown == ["a.jsonl"]


def test_an_empty_folder_is_no_error_and_none_is_one(tmp_path):
    assert names(FolderWatcher(str(tmp_path), 5).poll({})) == []
    FolderWatcher(str(tmp_path), 5).check()
    with pytest.raises(cer_gpu.EventsError, match="no such file"):
        FolderWatcher(str(tmp_path / "none"), 5).check()
    touch(tmp_path / "1.parquet")
    for name in ("1.parquet", "*.parquet"):
        with pytest.raises(cer_gpu.EventsError, match=r"is no folder\nhint: "):
            FolderWatcher(str(tmp_path / name), 5).check()
