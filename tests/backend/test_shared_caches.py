"""Caches of machine code that processes of a machine share: modules in archives, and processes that start at once."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numba
import pytest

from cer_gpu.backend import jit
from spark_glue import package

ROOT = Path(__file__).parents[2]
MODULE = """
def add_up(numbers):
    total = 0
    for number in numbers:
        total += number
    return total
"""
AT_ONCE = """
import os, signal, sys, time
import numpy as np
from cer_gpu.backend import jit

def add_up(numbers):
    total = 0
    for number in numbers:
        total += number
    return total

def child(work):
    pid = os.fork()
    if pid == 0:
        os._exit(work())
    return pid

def compile_it():
    kernel = jit.kernel(add_up)
    assert kernel(np.arange(4)) == 6
    return jit.COMPILING.count

def hold_the_lock_for_ever():
    jit._LOCKS.lock(*of)
    os.write(ready, b".")
    time.sleep(1000)

cache_file = jit.kernel(add_up)._cache._cache_file
of = (cache_file._cache_path, cache_file._index_name)
read, ready = os.pipe()
holder = child(hold_the_lock_for_ever)
os.read(read, 1)
others = [child(compile_it) for _ in range(3)]
time.sleep(0.3)
assert not any(os.waitpid(pid, os.WNOHANG)[0] for pid in others)  # all of them wait
os.kill(holder, signal.SIGKILL)
print(sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in others))
"""
FROM_ARCHIVE = """
import sys
sys.path.insert(0, sys.argv[1])
import cer_gpu
assert cer_gpu.__file__.startswith(sys.argv[1])
from cer_gpu.backend import compaction, jit
from cer_gpu.cache import _sources
import numpy as np
taken = np.empty(2, np.int64)
compaction.gather(np.array([10, 20, 30]), np.array([2, 0], np.int32), taken)
assert taken.tolist() == [30, 10]
print(jit.COMPILING.count, hash(_sources()))
"""


def kernel_of(archive):
    namespace = {"__name__": "cer_gpu.backend.made_up.module"}
    exec(compile(MODULE, f"{archive}/cer_gpu/backend/made_up/module.py", "exec"), namespace)
    return jit.kernel(namespace["add_up"])


def test_kernels_of_an_archive_are_cached_by_their_sources_wherever_it_lies(monkeypatch, tmp_path):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    locators = numba.config.CACHE_LOCATOR_CLASSES
    for archive, n_compiled in (("/not/there/a.zip", 1), ("./elsewhere/cer_gpu.whl", 0)):
        compiled = kernel_of(archive)
        assert compiled((1.5, 2.0)) == 3.5
        assert sum(compiled.stats.cache_misses.values()) == n_compiled
        assert Path(compiled.stats.cache_path) == tmp_path / f"archive-{jit.STAMP[:16]}" / "made_up"
    assert locators == numba.config.CACHE_LOCATOR_CLASSES


def test_kernels_of_an_archive_run_where_nothing_can_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(jit, "cache_folder", lambda part: tmp_path / "file" / part)
    compiled = kernel_of("/not/there/a.zip")
    assert compiled((1.5, 2.0)) == 3.5
    assert compiled.stats.cache_path is None


@pytest.mark.skipif(jit.fcntl is None, reason="locks files by fcntl")
def test_one_process_compiles_and_the_others_wait_also_for_one_that_is_killed(tmp_path):
    settings = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    (tmp_path / "at_once.py").write_text(AT_ONCE)
    command = [sys.executable, str(tmp_path / "at_once.py")]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=120)
    assert done.stdout == "[0, 0, 1]\n", done.stderr


def test_a_failed_compilation_ends_its_lock(monkeypatch, tmp_path):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    ended = []
    monkeypatch.setattr(jit._LOCKS, "unlock", lambda *of: ended.append(of))
    compiled = kernel_of("/not/there/a.zip")
    with pytest.raises(numba.TypingError):
        compiled("ab")
    assert len(ended) == 1
    assert not compiled._cache._cache_file._is_locked


@pytest.mark.long("imports archives in processes of their own")
def test_a_copy_of_an_archive_compiles_nothing_again_and_another_version_has_other_caches(tmp_path):
    settings = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONHASHSEED": "1", "PYTHONPATH": ""}
    for name in ("first", "copy", "changed"):
        (tmp_path / name).mkdir()
    first = package(tmp_path / "first" / "cer_gpu.zip")
    copy, changed = (tmp_path / name / "cer_gpu.zip" for name in ("copy", "changed"))
    copy.write_bytes(first.read_bytes())
    changed.write_bytes(first.read_bytes())
    with zipfile.ZipFile(changed, "a") as archive:
        archive.writestr("cer_gpu/added.py", "")
    told = []
    for archive in (first, copy, changed):
        command = [sys.executable, "-P", "-c", FROM_ARCHIVE, str(archive)]
        done = subprocess.run(command, env=os.environ | settings, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        told.append(done.stdout.split())
    assert [int(n_compiled) for n_compiled, _ in told] == [1, 0, 0]
    digests = [digest for _, digest in told]
    assert digests[0] == digests[1] != digests[2]
