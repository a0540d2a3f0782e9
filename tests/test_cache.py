import gc
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from cer_gpu import cache
from cer_gpu.cache import cache_folder


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_xdg_goes_before_home(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    environ = {"XDG_CACHE_HOME": str(tmp_path / "xdg"), "HOME": str(home)}
    assert cache_folder("java", environ) == tmp_path / "xdg" / "cer-gpu" / "java"
    assert cache_folder("java", environ).is_dir()


@pytest.mark.parametrize("xdg", ["", "relative/path"])
def test_home_is_used_without_an_absolute_xdg(tmp_path, xdg):
    environ = {"XDG_CACHE_HOME": xdg, "HOME": str(tmp_path)}
    assert cache_folder("java", environ) == tmp_path / ".cache" / "cer-gpu" / "java"


@pytest.mark.parametrize("home", [None, "", "/no/such/home", "file"])
def test_the_temporary_folder_is_used_without_a_home(tmp_path, temporary, home):
    environ = {} if home is None else {"HOME": home}
    if home == "file":  # a home in which nothing can be made
        Path(tmp_path, ".cache").write_text("")
        environ = {"HOME": str(tmp_path)}
    found = cache_folder("java", environ)
    assert found.is_relative_to(temporary)
    assert found == cache_folder("java", environ)
    assert stat.S_IMODE(found.parent.stat().st_mode) == 0o700


def test_a_temporary_folder_that_others_can_write_to_is_not_used(temporary):
    planted = temporary / f"cer-gpu-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    assert not cache_folder("java", {}).is_relative_to(planted)


def test_a_temporary_folder_that_is_a_link_is_not_used(tmp_path, temporary):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (temporary / f"cer-gpu-{os.getuid()}").symlink_to(elsewhere)
    assert not cache_folder("java", {}).resolve().is_relative_to(elsewhere)


class _Counted:
    """Counts how often a value is made."""

    def __init__(self) -> None:
        self.n_made = 0

    def __call__(self) -> dict[str, list[int]]:
        self.n_made += 1
        return {"value": [self.n_made]}


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache, "WORTH_SECONDS", 0)
    return tmp_path / "cer-gpu" / "values"


def disk_cached(made_of: list[bytes | str], make: Any) -> Any:
    return cache.disk_cached("values", made_of, make, lambda value: json.dumps(value).encode(), json.loads)


def test_a_value_is_made_once_for_what_it_is_made_of(own_cache: Path) -> None:
    make = _Counted()
    first = disk_cached(["a", b"bc"], make)
    assert disk_cached(["a", b"bc"], make) == first == {"value": [1]}
    assert disk_cached(["ab", b"c"], make) == {"value": [2]}
    assert make.n_made == 2


def test_a_damaged_value_is_made_again(own_cache: Path) -> None:
    make = _Counted()
    disk_cached(["a"], make)
    (path,) = own_cache.iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    assert disk_cached(["a"], make) == {"value": [2]}
    assert disk_cached(["a"], make) == {"value": [2]}


def test_few_values_are_kept(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_CACHED", 3)
    make = _Counted()
    for i in range(5):
        disk_cached([str(i)], make)
    assert len(list(own_cache.iterdir())) == 3


def test_what_cannot_be_kept_is_made_each_time(own_cache: Path) -> None:
    def refuse(value: object) -> bytes:
        raise ValueError

    make = _Counted()
    assert [cache.disk_cached("values", ["a"], make, refuse, json.loads)["value"] for _ in range(2)] == [[1], [2]]
    assert not list(own_cache.iterdir())


def test_a_file_that_is_damaged_anywhere_is_made_again_with_one_line(own_cache, capsys, monkeypatch) -> None:
    monkeypatch.delenv(cache._NOTICES, raising=False)
    make = _Counted()
    disk_cached(["a"], make)
    (path,) = own_cache.iterdir()
    whole = path.read_bytes()
    for i in range(len(whole)):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
        assert disk_cached(["a"], make) == {"value": [i + 2]}
        assert capsys.readouterr().err.splitlines() == [
            f"cer-gpu: {path} is not as it was written (ValueError), and is made anew"
        ]
        assert disk_cached(["a"], make) == {"value": [i + 2]}
        path.write_bytes(whole)


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_a_file_that_others_could_have_written_is_not_read(own_cache: Path) -> None:
    make = _Counted()
    disk_cached(["a"], make)
    (path,) = own_cache.iterdir()
    assert (stat.S_IMODE(own_cache.stat().st_mode), stat.S_IMODE(path.stat().st_mode)) == (0o700, 0o600)
    path.chmod(0o622)
    assert disk_cached(["a"], make) == {"value": [2]}
    own_cache.chmod(0o755)  # that others can read it is no danger, and is mended
    assert disk_cached(["a"], make) == {"value": [2]}
    assert stat.S_IMODE(own_cache.stat().st_mode) == 0o700


def test_quick_values_are_not_kept(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "WORTH_SECONDS", 60)
    make = _Counted()
    assert [disk_cached(["a"], make)["value"] for _ in range(2)] == [[1], [2]]


def test_garbage_is_collected_again_afterwards() -> None:
    assert gc.isenabled()
    with cache.gc_paused():
        assert not gc.isenabled()
        with cache.gc_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
