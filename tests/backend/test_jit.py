"""Uses of undocumented parts of Numba in `cer_gpu.backend.jit`: each still has its effect."""

import gc
import os
import random
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sizes import scaled

import cer_gpu
from cer_gpu.backend import evaluation, jit
from cer_gpu.compile_progress import CompileProgress

not_kept = partial(jit.kernel, keep=False)  # what comes from the disk cannot be inspected


@jit.helper
def _bump(array, other, i):
    array[i] += other[i]


@not_kept
def _bump_each(array, other):
    for i in range(array.shape[0]):
        array[i] += other[i]


@jit.helper
def _bump_each_twice(array, other):
    _bump_each(array, other)
    _bump_each(array, other)


def test_kernels_count_no_references_and_hold_their_helpers():
    @not_kept
    def bump_all(array, other):
        for i in range(array.shape[0]):
            if other[i] > 0:
                _bump(array, other, i)

    array = np.arange(4)
    bump_all(array, np.array([0, 1, 2, 3]))
    assert array.tolist() == [0, 2, 4, 6]
    (compiled,) = bump_all.inspect_llvm().values()
    assert "define" in compiled
    assert "NRT_incref" not in compiled
    assert "NRT_decref" not in compiled
    assert not re.search(r"call .*test_jit\d+_bump", compiled)


def test_a_kernel_that_a_helper_calls_is_not_inlined_by_force():
    """Numba would hand the helper's option on to all that it calls."""

    @not_kept
    def bump_twice(array, other):
        _bump_each_twice(array, other)

    array = np.arange(3)
    bump_twice(array, np.ones(3, np.int64))
    assert array.tolist() == [2, 3, 4]
    (signature,) = _bump_each.signatures
    assert "alwaysinline" not in _bump_each.inspect_llvm(signature)


@pytest.mark.long("compiles in processes of their own")
def test_a_kernel_is_compiled_again_when_another_file_that_it_is_made_of_changes(tmp_path):
    """Numba by itself looks at the file of the kernel alone, and would run the old helper with the old code."""
    shutil.copytree(Path(cer_gpu.__file__).parent, tmp_path / "cer_gpu", ignore=shutil.ignore_patterns("__pycache__"))
    helpers, kernels = tmp_path / "cer_gpu/backend/one.py", tmp_path / "cer_gpu/backend/other.py"
    codes = tmp_path / "cer_gpu/automaton/encoding.py"
    kernels.write_text(
        "from cer_gpu.automaton.encoding import QUIET\n"
        "from cer_gpu.backend.jit import kernel\n"
        "from cer_gpu.backend.one import step\n\n\n"
        "@kernel\ndef run(x):\n    return step(x) + QUIET\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run_with(step):
        helpers.write_text(f"from cer_gpu.backend.jit import helper\n\n\n@helper\ndef step(x):\n    return {step}\n")
        os.utime(kernels, (1e9, 1e9))
        code = "from cer_gpu.backend.other import run; print(run(3), sum(run.stats.cache_hits.values()))"
        command = [sys.executable, "-B", "-c", code]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout.split()

    assert run_with("x + 1") == ["4", "0"]
    assert run_with("x + 1") == ["4", "1"]  # it is kept
    assert run_with("x * 2") == ["6", "0"]
    codes.write_text(codes.read_text().replace("QUIET = 0", "QUIET = 10"))
    assert run_with("x * 2") == ["16", "0"]


# ---- machine code on disk, with several processes ------------------------------------------------------------------


def cache_file(folder, stamp="sources"):
    return jit.CacheFile(str(folder), "kernel", stamp)


def test_machine_code_is_loaded_for_its_own_types_only(tmp_path, monkeypatch):
    """Two processes find no index, and save code for different types, one within the other's saving."""
    first, second = cache_file(tmp_path), cache_file(tmp_path)
    for file in (first, second):
        monkeypatch.setattr(file, "_load_index", dict)
    save_data = first._save_data
    monkeypatch.setattr(first, "_save_data", lambda *data: (second.save("(int64)", "for int64"), save_data(*data)))
    first.save("(float64)", "for float64")
    found = [cache_file(tmp_path).load(types) for types in ("(int64)", "(float64)")]
    assert found in ([None, "for float64"], ["for int64", None])


class Renamed:
    """A type of arguments, which later sources do not define."""


def test_an_index_with_a_type_that_is_no_longer_defined_is_empty(tmp_path, monkeypatch):
    cache_file(tmp_path).save(Renamed, "code")
    assert cache_file(tmp_path).load(Renamed) == "code"
    key = Renamed
    monkeypatch.delattr(sys.modules[__name__], "Renamed")
    assert cache_file(tmp_path, "later sources").load(key) is None
    cache_file(tmp_path, "later sources").save("(int64)", "new code")
    assert cache_file(tmp_path, "later sources").load("(int64)") == "new code"


def test_machine_code_of_earlier_sources_is_never_loaded(tmp_path, monkeypatch):
    cache_file(tmp_path, "old sources").save("(int64)", "old code")
    writer, seen = cache_file(tmp_path, "new sources"), []
    for step in ("_save_index", "_save_data"):
        made = getattr(writer, step)

        def save(*arguments, made=made):
            made(*arguments)
            seen.append(cache_file(tmp_path, "new sources").load("(int64)"))

        monkeypatch.setattr(writer, step, save)
    writer.save("(int64)", "new code")
    assert seen == [None, "new code"]


class Planted:
    """What runs code when pickle reads it."""

    def __reduce__(self):
        return note_planted, ()


PLANTED = []


def note_planted():
    PLANTED.append(1)


@pytest.mark.parametrize("mode", [0o777, 0o1777])
@pytest.mark.parametrize("what", ["folder", "index", "data"])
def test_nothing_is_read_from_files_that_others_can_change(tmp_path, capsys, what, mode):
    folder = tmp_path / "loops"
    folder.mkdir()
    folder.chmod(0o755)
    file = cache_file(folder)
    file.save("(int64)", Planted())
    (data,) = folder.glob("*.nbc")
    assert [path.stat().st_mode & 0o777 for path in (data, folder / "kernel.nbi")] == [0o644, 0o644]
    chosen = {"folder": folder, "index": folder / "kernel.nbi", "data": data}[what]
    PLANTED.clear()
    cache_file(folder).load("(int64)")
    assert PLANTED == [1]  # it is read where nobody else can write
    os.chmod(chosen, mode)
    jit.is_private.cache_clear()
    assert cache_file(folder).load("(int64)") is None
    assert cache_file(folder).load("(int64)") is None
    assert PLANTED == [1]
    said = capsys.readouterr().err
    assert said.count("compiled code is not read from this folder") == (what == "folder")
    jit.is_private.cache_clear()


def test_what_is_damaged_is_compiled_again(tmp_path):
    rng = random.Random(1)
    for _ in range(scaled(300)):
        for path in tmp_path.iterdir():
            path.unlink()
        cache_file(tmp_path).save("(int64)", {"code": [1, 2, 3]})
        path = rng.choice(sorted(tmp_path.iterdir()))
        content = bytearray(path.read_bytes())
        for _ in range(rng.randint(1, 4)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content[: rng.randint(0, len(content))])
        cache_file(tmp_path).load("(int64)")  # whatever it is, nothing is raised
        cache_file(tmp_path).save("(int64)", "code")
        assert cache_file(tmp_path).load("(int64)") == "code"


@jit.helper
def _plus(number, more):
    return number + more


def test_a_helper_is_compiled_once_for_all_integers():
    @not_kept
    def sums(narrow, wide):
        return _plus(narrow[0], 1) + _plus(wide[0], narrow[1]) + _plus(2, 3)

    assert sums(np.array([10, 20], np.int32), np.array([1 << 40])) == (1 << 40) + 36
    (signature,) = _plus.signatures
    assert [str(number) for number in signature] == ["int64", "int64"]


def test_garbage_is_collected_after_compiling_and_not_while():
    listener = jit.Compiling(CompileProgress())
    event = SimpleNamespace(data={"dispatcher": evaluation.evaluate_events})
    assert gc.isenabled()
    listener.on_start(event)
    listener.on_start(event)
    assert not gc.isenabled()
    listener.on_end(event)
    assert not gc.isenabled()
    listener.on_end(event)
    assert gc.isenabled()
    gc.disable()
    try:
        listener.on_start(event)
        listener.on_end(event)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_kernels_are_kept_in_such_files():
    assert isinstance(evaluation.evaluate_events._cache._cache_file, jit.CacheFile)
