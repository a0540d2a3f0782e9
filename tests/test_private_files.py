"""Files and folders that others could plant are told, and not written through."""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from cer_gpu import private_files
from cer_gpu.cache import whole_file
from cer_gpu.follow.log import CommitLog, locked, write_whole
from cer_gpu.io.sinks import result_file
from cer_gpu.private_files import open_regular, replacing, why_not_private

ROOT = Path(__file__).parent.parent
ME = 1_000
OTHER = "belongs to another user"


@pytest.mark.parametrize(
    ("uid", "gid", "mode", "why"),
    [
        (ME, ME, 0o755, None),
        (ME, ME, 0o775, None),  # the user's own group
        (ME, 5, 0o775, "can be written to by its group"),
        (ME, 0, 0o775, None),
        (0, 0, 0o755, None),
        (ME, ME, 0o1777, "can be written to by everybody"),
        (0, 0, 0o1777, "can be written to by everybody"),
        (7, ME, 0o700, OTHER),
    ],
)
def test_a_folder_that_others_can_change_is_told(monkeypatch, uid, gid, mode, why):
    about = SimpleNamespace(st_uid=uid, st_gid=gid, st_mode=mode)
    monkeypatch.setattr(private_files.os, "getuid", lambda: ME)
    monkeypatch.setattr(private_files, "_is_own_group", lambda gid: gid == ME)
    monkeypatch.setattr(private_files.os, "stat", lambda folder: about)
    monkeypatch.setattr(private_files.os, "lstat", lambda folder: about)
    assert why_not_private("folder") == why
    monkeypatch.setattr(private_files.os, "lstat", lambda folder: SimpleNamespace(st_uid=7))  # a link of others
    assert why_not_private("folder") == OTHER


WRITERS = {
    "state": lambda path: write_whole(path, b"x"),
    "replacing": lambda path: _write(replacing(path)),
    "cache": lambda path: _write(whole_file(path, 0o644)),
}


def _write(context):
    with context as file:
        file.write(b"x")


@pytest.mark.parametrize("writer", WRITERS)
def test_a_link_in_place_of_a_file_is_replaced_and_not_written_through(tmp_path, writer):
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.write_text("mine")
    path.symlink_to(victim)
    WRITERS[writer](path)
    assert (victim.read_text(), path.read_text(), path.is_symlink()) == ("mine", "x", False)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "victim"]


@pytest.mark.parametrize("name", ["log.jsonl", "lock"])
def test_a_link_in_place_of_a_log_or_a_lock_is_refused(tmp_path, name):
    (tmp_path / "victim").write_bytes(b"")
    (tmp_path / name).symlink_to(tmp_path / "victim")
    opened = {"lock": lambda: locked(tmp_path).__enter__(), "log.jsonl": lambda: CommitLog(tmp_path / name).append({})}
    with pytest.raises(OSError, match=r"(?i)symbolic links"):
        opened[name]()
    assert (tmp_path / "victim").read_bytes() == b""


@pytest.mark.parametrize("open_file", [result_file, replacing, lambda path: whole_file(path, 0o644)])
def test_names_of_files_before_they_are_whole_cannot_be_guessed(tmp_path, open_file):
    names = set()
    for _ in range(2):
        with open_file(tmp_path / "file"):
            names |= {each.name for each in tmp_path.iterdir()}
    names -= {"file"}
    assert len(names) == 2
    assert all(re.search(r"[0-9a-f]{8}|-[a-z0-9_]{8}$", name) for name in names)


def test_a_link_or_a_pipe_is_no_regular_file(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(OSError, match=r"regular|symbolic"):
            open_regular(tmp_path / name)
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"x"


# what opens a path to write may stand only in these lines: names of the user's own choice, or in folders just made
ALLOWED = {
    "cer_gpu/private_files.py": 3,
    "cer_gpu/cli/output_file.py": 1,  # standard output
    "cer_gpu/io/parts.py": 1,  # a new file
    "cer_gpu/io/sinks.py": 1,  # a device
    "cer_gpu/follow/targets.py": 3,  # new files; a file that grows, of the user's own
    "cer_gpu/io/tables/table_sinks.py": 1,  # in a temporary folder
    "cer_gpu/order/sorting.py": 1,  # in a temporary folder
    "cer_gpu/backend/prebuilt.py": 2,  # made while a wheel is built
}
OPENED = re.compile(
    r"""(?:open|OSFile|open_local)\([^\n]*?,\s*["'](?:[wax]b?\+?b?|r\+b)["']|\.write_(?:text|bytes)\("""
)


def test_files_are_written_by_the_functions_that_are_safe():
    counts = {}
    for folder in ("cer_gpu", "spark_glue"):
        for path in (ROOT / folder).rglob("*.py"):
            if n := len(OPENED.findall(path.read_text("utf-8"))):
                counts[path.relative_to(ROOT).as_posix()] = n
    assert counts == ALLOWED, "write by cer_gpu.io.sinks.result_file, cer_gpu.cache.whole_file or private_files"
