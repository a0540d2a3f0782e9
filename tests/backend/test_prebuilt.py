"""Machine code that comes with a package: used where it fits, and compiled anew where it does not."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core.codegen import get_host_cpu_features

from cer_gpu.backend import compaction, jit, prebuilt
from cer_gpu.backend.prebuilt import ENVIRONMENT, FEATURES, Prebuilt, has_features, write_folder

ROOT = Path(__file__).parents[2]
RUN = """
import numpy as np
from cer_gpu.backend import compaction
compaction.gather(np.array([10, 20, 30]), np.array([2, 0], np.int32), np.empty(2, np.int64))
"""

pytestmark = pytest.mark.skipif(
    not has_features(get_host_cpu_features()), reason=f"the code is made for {prebuilt.TARGET_CPU}"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with the code of one kernel."""
    cache, folder = tmp_path_factory.mktemp("loops"), tmp_path_factory.mktemp("package") / "prebuilt"
    settings = {**ENVIRONMENT, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", RUN], env=os.environ | settings, check=True)
    assert write_folder(cache, folder, jit.STAMP) == 1
    return folder


@pytest.fixture
def fresh(monkeypatch, tmp_path_factory):
    """Return a function that runs the kernel with an empty cache, and tells whether it was compiled for that."""

    def run(folder, stamp=jit.STAMP):
        monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path_factory.mktemp("empty")))
        monkeypatch.setattr(jit, "PREBUILT", Prebuilt(folder, stamp))
        compiled, taken = jit.kernel(compaction.gather.py_func), np.empty(2, np.int64)
        compiled(np.array([10, 20, 30]), np.array([2, 0], np.int32), taken)
        assert taken.tolist() == [30, 10]
        return bool(sum(compiled.stats.cache_misses.values()))

    return run


def test_code_that_fits_is_not_compiled(made, fresh):
    assert not fresh(made)
    assert fresh(made / "elsewhere")


def test_code_for_other_types_is_compiled(made, fresh, monkeypatch):
    assert not fresh(made)
    compiled, taken = jit.kernel(compaction.gather.py_func), np.empty(1)
    compiled(np.array([0.5, 1.5]), np.array([1], np.int32), taken)
    assert taken.tolist() == [1.5]
    assert sum(compiled.stats.cache_misses.values()) == 1


@pytest.mark.parametrize("lacking", ["avx2", "bmi2", "popcnt"])
def test_a_processor_without_a_feature_compiles(lacking, made, fresh, monkeypatch):
    features = get_host_cpu_features()
    assert f"+{lacking}" in features.split(",")
    of_key = type(compaction.gather._cache)._index_key

    def without(self, signature, codegen):
        signature, (triple, name, _), bytecode = of_key(self, signature, codegen)
        return signature, (triple, name, features.replace(f"+{lacking}", f"-{lacking}")), bytecode

    monkeypatch.setattr(type(compaction.gather._cache), "_index_key", without)
    assert fresh(made)


@pytest.mark.parametrize("stated", ["sources", "python", "numba", "llvmlite"])
def test_code_of_other_versions_is_compiled(stated, made, fresh, tmp_path_factory):
    folder = _copy(made, tmp_path_factory)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["about"][stated] += "x"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert fresh(folder)
    assert fresh(made, "other sources")


@pytest.mark.parametrize("content", [b"", b"no machine code", None])
def test_a_damaged_file_is_compiled(content, made, fresh, tmp_path_factory):
    folder = _copy(made, tmp_path_factory)
    (file,) = (each for each in folder.iterdir() if each.name != "manifest.json")
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    assert fresh(folder)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"about": 1}', '{"about": {}, "files": []}'])
def test_a_damaged_manifest_is_none(content, made, fresh, tmp_path_factory):
    folder = _copy(made, tmp_path_factory)
    (folder / "manifest.json").write_text(content)
    assert fresh(folder)


def test_content_that_is_no_code_is_compiled(made, fresh, tmp_path_factory):
    """Also where its digest is as stated: what cannot be loaded is no error."""
    folder = _copy(made, tmp_path_factory)
    (file,) = (each for each in folder.iterdir() if each.name != "manifest.json")
    file.write_bytes(b"no machine code")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][file.name] = hashlib.sha256(b"no machine code").hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert fresh(folder)


def test_code_for_the_processor_at_hand_is_not_collected(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "loops"))
    monkeypatch.setattr(jit, "PREBUILT", Prebuilt(tmp_path, ""))
    jit.kernel(compaction.gather.py_func)(np.array([10]), np.array([0], np.int32), np.empty(1, np.int64))
    with pytest.raises(ValueError, match="holds code for"):
        write_folder(tmp_path / "loops", tmp_path / "prebuilt", jit.STAMP)


def test_a_processor_that_is_asked_for_by_name_compiles(made, fresh, monkeypatch):
    monkeypatch.setattr(numba.config, "CPU_NAME", "znver3")
    assert fresh(made)
    monkeypatch.setattr(numba.config, "CPU_NAME", prebuilt.TARGET_CPU)
    assert not fresh(made)


def test_features_are_all_needed():
    assert has_features(",".join(f"+{name}" for name in FEATURES) + ",+avx512f,-sse4a")
    assert not has_features(",".join(f"+{name}" for name in FEATURES[:-1]))
    assert not has_features("")


def test_without_a_folder_of_numbas_kernels_are_kept_in_another_or_in_none(monkeypatch, tmp_path):
    from numba.core.caching import FunctionCache

    made = FunctionCache.__init__

    def refuse(self, function):
        if not numba.config.CACHE_DIR:
            raise RuntimeError("cannot cache function: no locator available")
        made(self, function)

    monkeypatch.setattr(FunctionCache, "__init__", refuse)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiled = jit.kernel(compaction.gather.py_func)
    assert Path(compiled.stats.cache_path).is_relative_to(tmp_path)
    assert not numba.config.CACHE_DIR

    def no_folder(part):
        raise PermissionError(part)

    monkeypatch.setattr(jit, "cache_folder", no_folder)
    compiled, taken = jit.kernel(compaction.gather.py_func), np.empty(1, np.int64)
    compiled(np.array([10]), np.array([0], np.int32), taken)
    assert taken.tolist() == [10]


def _copy(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("copy")
    for file in made.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder
