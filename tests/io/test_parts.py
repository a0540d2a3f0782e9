"""Hidden files that killed writers left: the next writer of the same target removes those, and nothing else."""

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cer_gpu.io import parts
from cer_gpu.io.parts import open_part, part_beside, remove_stale_parts
from cer_gpu.io.sinks import result_file
from cer_gpu.private_files import unguessable

pytestmark = pytest.mark.skipif(os.name != "posix", reason="files without a writer are told by flock")

WRITER = """
import os, sys
from cer_gpu.io.sinks import result_file
with result_file(sys.argv[1]) as file:
    file.write(b"half" * 1000)
    file.flush()
    if sys.argv[2:] == ["fork"] and os.fork():
        os._exit(0)  # the process ends at once, and its copy has the file
    print("written", flush=True)
    sys.stdin.read()
"""


def writer(target, *args):
    """Start a process that has written half of a file, and waits until its standard input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, target, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert select.select([process.stdout], [], [], 60)[0]
    assert process.stdout.readline() == b"written\n"
    return process


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.communicate()


def left(folder):
    return sorted(folder.glob(".cer-gpu-*.part"))


def write(target, content=b"whole"):
    with result_file(target) as file:
        file.write(content)


def test_the_next_writer_removes_what_a_killed_one_left(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("CER_GPU_NOTICES", raising=False)
    target = tmp_path / "out.csv"
    target.write_bytes(b"earlier")
    for each in [writer(target), writer(target)]:
        kill(each)
    assert (len(left(tmp_path)), target.read_bytes()) == (2, b"earlier")
    write(target)
    assert (os.listdir(tmp_path), target.read_bytes()) == (["out.csv"], b"whole")
    line = "cer-gpu: out.csv: removed 2 unfinished files (8,000 bytes) of earlier runs that were killed\n"
    assert capsys.readouterr().err == line
    write(target)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("args", [(), pytest.param(("fork",), marks=pytest.mark.long("a process of its own"))])
def test_the_file_of_a_living_writer_stays_and_becomes_its_target(tmp_path, args):
    target = tmp_path / "out.csv"
    dead, living = writer(target), writer(target, *args)
    kill(dead)
    write(target)
    assert len(left(tmp_path)) == 1
    living.communicate()  # goes on until its end
    assert (os.listdir(tmp_path), target.read_bytes()) == (["out.csv"], b"half" * 1000)


def test_the_file_of_a_writer_in_the_same_process_stays(tmp_path):
    target = tmp_path / "out.csv"
    with result_file(target) as outer:
        outer.write(b"outer")
        write(target, b"inner")
        assert (len(left(tmp_path)), target.read_bytes()) == (1, b"inner")
    assert (os.listdir(tmp_path), target.read_bytes()) == (["out.csv"], b"outer")


def test_nothing_else_is_removed(tmp_path):
    target, folder = tmp_path / "out.csv", tmp_path / "folder"
    folder.mkdir()
    victim = folder / "victim"
    victim.write_bytes(b"mine")
    planted = [part_beside(target) for _ in range(4)]
    planted[0].symlink_to(victim)
    planted[1].hardlink_to(victim)
    planted[2].mkdir()
    os.mkfifo(planted[3])
    name = part_beside(target).name
    foreign = [
        part_beside(tmp_path / "other.csv").name,  # of another target
        ".cer-gpu-123-0a1b2c3d.part",  # of earlier versions, which held no lock
        unguessable(target).name,
        name.removesuffix(".part"),
        name + "~",
        name.replace(".cer-gpu", ".cer_gpu"),
        re.sub(r"[0-9a-f]{16}\.part", "x" * 16 + ".part", name),
        name[1:],
    ]
    for each in foreign:
        (tmp_path / each).write_bytes(b"theirs")
    before = sorted(os.listdir(tmp_path))
    assert remove_stale_parts(target) == 0
    write(target)
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "out.csv"])
    assert victim.read_bytes() == b"mine"


def test_a_file_of_another_user_stays(tmp_path, monkeypatch):
    part = part_beside(tmp_path / "out.csv")
    part.write_bytes(b"theirs")
    me = os.geteuid()
    monkeypatch.setattr(parts.os, "geteuid", lambda: me + 1)
    assert remove_stale_parts(tmp_path / "out.csv") == 0
    monkeypatch.setattr(parts.os, "geteuid", lambda: me)
    assert remove_stale_parts(tmp_path / "out.csv") == 1
    assert not part.exists()


def test_a_file_that_is_replaced_while_it_is_looked_at_stays(tmp_path, monkeypatch):
    part = part_beside(tmp_path / "out.csv")
    part.write_bytes(b"dead")
    open_regular = parts.open_regular

    def replaced(path):
        file = open_regular(path)
        (tmp_path / "new").write_bytes(b"new")
        os.replace(tmp_path / "new", path)
        return file

    monkeypatch.setattr(parts, "open_regular", replaced)
    assert remove_stale_parts(tmp_path / "out.csv") == 0
    assert part.read_bytes() == b"new"


def test_a_writer_whose_new_file_was_removed_before_its_lock_makes_another(tmp_path, monkeypatch):
    part, lock_alone, removed = part_beside(tmp_path / "out.csv"), parts._lock_alone, []

    def too_late(file):
        if not removed:
            removed.append(remove_stale_parts(tmp_path / "out.csv"))
        return lock_alone(file)

    monkeypatch.setattr(parts, "_lock_alone", too_late)
    with open_part(part) as file:
        assert removed == [1]
        assert os.fstat(file.fileno()).st_ino == part.stat().st_ino


def test_without_locks_nothing_is_removed_and_results_are_written(tmp_path, monkeypatch):
    def without(file, kind):
        raise OSError(95, "Operation not supported")

    target = tmp_path / "out.csv"
    part_beside(target).write_bytes(b"perhaps of a living one")
    monkeypatch.setattr(parts.fcntl, "flock", without)
    write(target)
    assert (len(left(tmp_path)), target.read_bytes()) == (1, b"whole")
    monkeypatch.setattr(parts, "fcntl", None)  # Windows
    write(target, b"again")
    assert (len(left(tmp_path)), target.read_bytes()) == (1, b"again")


def test_a_long_name_and_a_link_have_parts_of_their_target(tmp_path):
    target = tmp_path / ("x" * 251 + ".csv")
    link = tmp_path / "link.csv"
    link.symlink_to(target)
    part_beside(target).write_bytes(b"dead")
    write(link)
    assert (left(tmp_path), target.read_bytes(), link.is_symlink()) == ([], b"whole", True)


@pytest.mark.long("processes that load everything")
def test_the_command_tells_what_it_removed(tmp_path):
    events, target = tmp_path / "events.csv", tmp_path / "out.csv"
    events.write_text("kind\nA\nB\n")
    kill(writer(target))
    command = [sys.executable, "-m", "cer_gpu", "run", "SELECT * FROM s WHERE A AS a; B AS b", events, "-o", target]
    environ = {**os.environ, "CER_GPU_NOTICES": "on"}
    told = subprocess.run([*command, "--type-column", "kind"], capture_output=True, text=True, env=environ, check=True)
    assert "out.csv: removed the unfinished file (4,000 bytes) of earlier runs that were killed" in told.stderr
    assert left(tmp_path) == []
    assert len(Path(target).read_text().splitlines()) == 2
