"""The archive for --py-files works from where it is: nothing of it needs to be unpacked or installed."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from spark_glue import package
from spark_glue.cli import main

HERE = Path(__file__).parent

CODE = """
import sys
sys.path.insert(0, sys.argv[1])
import cer_gpu, spark_glue
assert cer_gpu.__file__.endswith(sys.argv[2]), cer_gpu.__file__
from cer_gpu.backend.kernel_source import kernel_names
assert cer_gpu.__file__.startswith(sys.argv[1]) and spark_glue.__file__.startswith(sys.argv[1])
assert kernel_names()
print(spark_glue.explain(cer_gpu.compile("SELECT * FROM S WHERE A ; B")))
"""


def test_it_is_whole_and_always_the_same(tmp_path):
    first, second = package(tmp_path / "a.zip"), package(tmp_path / "b.zip")
    assert first.read_bytes() == second.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert {
        "cer_gpu/py.typed",
        "cer_gpu/ceql/grammar.lark",
        "cer_gpu/kernels/common.cuh",
        "spark_glue/__main__.py",
        "spark_glue/__main__.pyc",
    } <= set(names)
    assert not [name for name in names if "__pycache__" in name]
    assert sorted(os.listdir(tmp_path)) == ["a.zip", "b.zip"]


@pytest.mark.long("installs an archive in a process of its own")
@pytest.mark.parametrize("of", ["this Python", "another Python"])
def test_the_packages_from_the_archive(tmp_path, of):
    archive, ending = package(tmp_path / "cer_gpu.zip"), "__init__.pyc"
    if of == "another Python":
        with zipfile.ZipFile(archive) as made:
            contents = {name: made.read(name) for name in made.namelist()}
        with zipfile.ZipFile(archive, "w") as made:
            for name, content in contents.items():
                made.writestr(name, b"\0\0\r\n" + content[4:] if name.endswith(".pyc") else content)
        ending = "__init__.py"
    done = subprocess.run(
        [sys.executable, "-P", "-c", CODE, str(archive), ending],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("broadcast: ")


def test_the_command(tmp_path, capsys):
    assert main(["package", str(tmp_path / "x.zip")]) == 0
    assert zipfile.is_zipfile(tmp_path / "x.zip")
    assert main(["package", str(tmp_path / "no" / "x.zip")]) == 1
    assert "No such file or directory" in capsys.readouterr().err
