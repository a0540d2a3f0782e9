"""The log of commits: a line is there or not, wherever its writer was killed."""

import pytest

import cer_gpu
from cer_gpu.follow import log as log_module
from cer_gpu.follow.log import CommitLog

ENTRIES = [{"step": i, "files": ["ä" * i], "ok": True} for i in range(3)]


def written(path):
    log = CommitLog(path)
    for entry in ENTRIES:
        log.append(entry)
    return path.read_bytes()


def test_entries_are_read_again(tmp_path):
    written(tmp_path / "log")
    assert CommitLog(tmp_path / "log").entries == ENTRIES


def test_a_line_that_was_cut_off_is_not_there_and_the_next_follows_the_whole_ones(tmp_path):
    path = tmp_path / "log"
    data = written(path)
    for n in range(len(data)):
        path.write_bytes(data[:n])
        whole = data[:n].count(b"\n")
        log = CommitLog(path)
        assert log.entries == ENTRIES[:whole], n
        log.append({"step": 9})
        assert CommitLog(path).entries == [*ENTRIES[:whole], {"step": 9}]


def test_a_damaged_last_line_is_cut_off_and_another_is_an_error(tmp_path):
    path = tmp_path / "log"
    data = written(path)
    path.write_bytes(data[:-10] + b"\0" * 9 + b"\n")
    assert CommitLog(path).entries == ENTRIES[:2]
    path.write_bytes(data.replace(b'"step": 1', b'"step": 7'))
    with pytest.raises(cer_gpu.CheckpointError, match=r"line 2 is damaged\nhint: "):
        CommitLog(path)


def test_a_log_is_made_short_and_its_lines_are_kept_aside(tmp_path, monkeypatch):
    path = tmp_path / "log.jsonl"
    data = written(path)
    log, replace = CommitLog(path), log_module.os.replace

    def killed(part, whole):
        if whole == path:
            raise RuntimeError("killed")
        replace(part, whole)

    with monkeypatch.context() as patch:
        patch.setattr(log_module.os, "replace", killed)
        with pytest.raises(RuntimeError, match="killed"):
            log.shorten({"step": 1, "read": {}})
    assert path.read_bytes() == data
    for _ in range(2):
        log = CommitLog(path)
        log.shorten({"step": 1, "read": {}})
        assert log.entries == CommitLog(path).entries == [ENTRIES[0], {"step": 1, "read": {}}, ENTRIES[2]]
        assert CommitLog(tmp_path / "log-until-000000001.jsonl").entries[:1] == ENTRIES[:1]
    log.append({"step": 3})
    assert CommitLog(path).entries[2:] == [ENTRIES[2], {"step": 3}]
