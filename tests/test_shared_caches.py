"""Caches in folders that others can write to: not used, with one line, and with the same results."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cer_gpu import cache
from cer_gpu.cache import cache_folder, disk_cached

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners and modes of POSIX")
as_root = pytest.mark.skipif(
    not hasattr(os, "getuid") or os.getuid() != 0, reason="only the superuser gives files away"
)

SOMEBODY = 12345
ALL, GROUP, OTHER = "can be written to by everybody", "can be written to by its group", "belongs to another user"


def open_to_all(folder):
    folder.chmod(0o777)


def open_to_a_group(folder):
    os.chown(folder, -1, SOMEBODY)
    folder.chmod(0o770)


def of_another(folder):
    os.chown(folder, SOMEBODY, SOMEBODY)


def sticky_of_another(folder):
    os.chown(folder, SOMEBODY, SOMEBODY)
    folder.chmod(0o1777)


def link_of_another(folder):
    os.rename(folder, folder.with_name("target"))
    folder.symlink_to(folder.with_name("target"))
    os.chown(folder, SOMEBODY, SOMEBODY, follow_symlinks=False)


def link_to_an_open_folder(folder):
    os.rename(folder, folder.with_name("target"))
    folder.symlink_to(folder.with_name("target"))
    folder.with_name("target").chmod(0o777)


WAYS = [
    (open_to_all, ALL),
    (link_to_an_open_folder, ALL),
    pytest.param(open_to_a_group, GROUP, marks=as_root),
    pytest.param(of_another, OTHER, marks=as_root),
    pytest.param(sticky_of_another, OTHER, marks=as_root),
    pytest.param(link_of_another, OTHER, marks=as_root),
]
LEVELS = [".", "cer-gpu", "cer-gpu/values"]


@pytest.fixture
def places(tmp_path, monkeypatch):
    """XDG_CACHE_HOME and HOME; what the first has not is in the second."""
    monkeypatch.setenv("CER_GPU_NOTICES", "on")
    monkeypatch.setattr(cache, "WORTH_SECONDS", 0)
    cache._say_not_used.cache_clear()
    for name, folder in (("XDG_CACHE_HOME", "xdg"), ("HOME", "home")):
        (tmp_path / folder).mkdir()
        monkeypatch.setenv(name, str(tmp_path / folder))
    return tmp_path / "xdg", tmp_path / "home" / ".cache"


def make(value, name="a"):
    """Return what is kept for a name, or else the value."""
    return disk_cached("values", [name], lambda: value, str.encode, bytes.decode)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("spoil", "why"), WAYS)
def test_a_cache_that_others_can_write_to_is_not_used(places, capsys, spoil, why, level):
    xdg, home = places
    assert make("first") == make("second") == "first"
    folder = xdg / level
    spoil(folder)
    before = sorted((path, path.stat().st_mtime_ns) for path in xdg.rglob("*"))
    for value in ("third", "fourth", "fifth"):
        assert make(value) == "third"  # of HOME
        assert cache_folder("values") == home / "cer-gpu" / "values"
    assert sorted((path, path.stat().st_mtime_ns) for path in xdg.rglob("*")) == before
    assert capsys.readouterr().err == f"cer-gpu: {folder}: nothing is kept in this folder, which {why}\n"


def test_kept_values_cannot_be_exchanged_by_whoever_can_move_files(places):
    """Each file is whole, and the user's own; only its name is another one's."""
    xdg, _ = places
    make("of one query", "one")
    make("of another", "another")
    one, another = (xdg / "cer-gpu" / "values").iterdir()
    (xdg / "cer-gpu" / "values").chmod(0o777)
    os.rename(one, one.with_name("aside"))
    os.rename(another, one)
    os.rename(one.with_name("aside"), another)
    assert (make("made anew", "one"), make("made anew too", "another")) == ("made anew", "made anew too")


def test_without_any_private_place_temporary_files_of_the_user_are_used(places, tmp_path, monkeypatch):
    xdg, home = places
    home.mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path / "tmp"))
    for folder in (xdg, home):
        folder.chmod(0o777)
    found = cache_folder("values")
    assert found.is_relative_to(tmp_path / "tmp")
    assert stat.S_IMODE(found.parent.stat().st_mode) == 0o700
    assert (list(xdg.iterdir()), list(home.iterdir())) == ([], [])


@pytest.mark.parametrize("level", [".", "cer-gpu"])
def test_a_link_of_the_users_own_to_a_private_folder_is_followed(places, capsys, level):
    xdg, _ = places
    make("first")
    os.rename(xdg / level, xdg.with_name("target"))
    (xdg / level if level != "." else xdg).symlink_to(xdg.with_name("target"))
    assert make("second") == "first"
    assert capsys.readouterr().err == ""


def test_a_sticky_folder_of_the_superuser_holds_a_private_cache(places, capsys):
    xdg, _ = places
    xdg.chmod(0o1777)
    assert make("first") == make("second") == "first"
    assert capsys.readouterr().err == ""
    (xdg / "cer-gpu").chmod(0o1777)  # where others could have made the folders
    assert make("third") == "third"


@as_root
def test_a_group_cannot_write_to_what_is_made_under_any_umask(places, capsys):
    xdg, _ = places
    os.chown(xdg, -1, SOMEBODY)
    xdg.chmod(0o2755)  # folders in it have its group
    before = os.umask(0o002)
    try:
        assert make("first") == make("second") == "first"
    finally:
        os.umask(before)
    assert stat.S_IMODE((xdg / "cer-gpu").stat().st_mode) & 0o777 == 0o755
    assert capsys.readouterr().err == ""


COMMAND = """
import sys
from cer_gpu.cli import main
main(sys.argv[1:])
"""


@pytest.mark.long("processes that load everything")
def test_a_command_says_it_in_one_line_and_gives_the_same_results(tmp_path):
    rules = [f"SELECT * FROM S WHERE A AS a ; B AS b FILTER a[x > {i}]" for i in range(80)]
    (tmp_path / "rules").mkdir()
    for i, rule in enumerate(rules):
        (tmp_path / "rules" / f"{i}.ceql").write_text(rule)
    (tmp_path / "events.csv").write_text("type,x\n" + "".join(f"{'AB'[i % 2]},{i % 90}\n" for i in range(300)))

    def run(out):
        command = ["run", "--queries", tmp_path / "rules", tmp_path / "events.csv", "-o", tmp_path / out]
        environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path / "home")}
        environ["CER_GPU_NOTICES"] = "on"
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, *map(str, command)], env=environ, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        told = [line for line in done.stderr.splitlines() if "nothing is kept in this folder" in line]
        return Path(tmp_path / out).read_bytes(), told

    (tmp_path / "cache").mkdir()
    (tmp_path / "home").mkdir()
    first, told = run("1.jsonl")
    assert told == []
    (tmp_path / "cache").chmod(0o777)
    second, told = run("2.jsonl")
    assert told == [f"cer-gpu: {tmp_path / 'cache'}: nothing is kept in this folder, which {ALL}"]
    assert second == first
    assert len(first) > 10_000
