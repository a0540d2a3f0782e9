"""Promises of the repository: light imports, short modules, small folders on the map, plain docstrings, no package index."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LONGEST = 600
MOST_MODULES = 24
# in two parts, so that this file does not hold them
INDEX_HOSTS = ["pypi" + ".org", "pypi" + ".python", "python" + "hosted", "npmjs" + ".org"]


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, cer_gpu; print(sorted({'cupy', 'pyspark', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_modules_are_short():
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for package in ("cer_gpu", "spark_glue")
        for path in (ROOT / package).rglob("*.py")
    }
    assert lengths
    assert {name: n for name, n in lengths.items() if n > LONGEST} == {}


def folders():
    """The folders of the package that hold modules, with the names of these."""
    found = {}
    for path in (ROOT / "cer_gpu").rglob("*.py"):
        found.setdefault(path.parent.relative_to(ROOT).as_posix(), []).append(path.name)
    return found


def test_folders_hold_few_modules():
    assert folders()
    assert {name: len(modules) for name, modules in folders().items() if len(modules) > MOST_MODULES} == {}


def test_the_map_names_every_room():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = [f"{name}/" for name in folders() if name != "cer_gpu"]
    rooms += [f"cer_gpu/{module}" for module in folders()["cer_gpu"] if module != "__init__.py"]
    assert [room for room in rooms if f"| `{room}` |" not in page] == []


def test_no_file_names_a_package_index():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: there is no list of tracked files")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    files = [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]
    assert files
    found = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in files
        if b"\0" not in (content := path.read_bytes())
        for host in INDEX_HOSTS
        if host.encode() in content.lower()
    ]
    assert found == []
