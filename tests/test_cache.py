import os
import stat
import tempfile
from pathlib import Path

import pytest

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
