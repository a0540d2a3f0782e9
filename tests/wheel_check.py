"""Build an sdist and a wheel into dist/, and try the wheel as a stranger would (`make wheel`).

The wheel is installed with the pinned versions into a fresh environment in a temporary folder; README's first example,
`cer-gpu --version` and `cer-gpu run` are run there, and the command by `pipx run` and `uvx`.  Nothing is published.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
CONSTRAINTS = ROOT / "constraints.txt"
PACKAGES = ("cer_gpu", "spark_glue")
DATA = ("*.lark", "*.html", "*.css", "*.js", "*.properties", "py.typed")
QUERY = "SELECT * FROM Stock WHERE SELL ; BUY FILTER BUY[price < 100]"
EVENTS = "type,price\nSELL,101\nBUY,90\nBUY,120\n"


def main() -> int:
    wheel = build()
    version = check_content(wheel)
    with tempfile.TemporaryDirectory(prefix="cer-gpu-wheel-") as temporary:
        folder = Path(temporary)
        (folder / "events.csv").write_text(EVENTS, encoding="utf-8")
        python = environment(folder / "clean", [str(wheel)])
        run([python, "-m", "pip", "check"], folder)
        run([python, "-c", example_runner(), str(ROOT / "README.md")], folder)
        print("README's first example prints what README says")
        command = [str(Path(python).with_name("cer-gpu"))]
        try_command("cer-gpu", command, folder, version)
        tools = Path(environment(folder / "tools", ["pipx", "uv"])).parent
        spec = str(wheel)
        constraints = f"--pip-args=--constraint={CONSTRAINTS}"
        try_command("pipx run", [str(tools / "pipx"), "run", constraints, "--spec", spec, "cer-gpu"], folder, version)
        uvx = [str(tools / "uvx"), "--constraints", str(CONSTRAINTS), "--from", spec, "cer-gpu"]
        try_command("uvx", uvx, folder, version)
    print(f"{wheel.relative_to(ROOT)} is good")
    return 0


def build() -> Path:
    """Return the wheel, built from the sdist in an environment of its own with the pinned setuptools."""
    for old in DIST.glob("cer_gpu-*"):
        old.unlink()
    run([sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT)], ROOT, PIP_CONSTRAINT=str(CONSTRAINTS))
    (wheel,) = DIST.glob("*.whl")
    return wheel


def check_content(wheel: Path) -> str:
    """Return the version of a wheel that holds all modules and data of the packages, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    version = re.fullmatch(r"cer_gpu-(.+)-py3-none-any\.whl", wheel.name)
    assert version is not None, wheel.name
    about = f"cer_gpu-{version[1]}.dist-info/"
    packed = {name for name in names if not name.startswith(about)}
    assert packed == expected_files(), f"in one of wheel and checkout only: {sorted(packed ^ expected_files())}"
    assert {f"{about}licenses/LICENSE", f"{about}licenses/NOTICE"} <= names
    print(f"{wheel.name}: {len(packed)} files")
    return version[1]


def expected_files() -> set[str]:
    """Return the files of the packages in the checkout, by their names in a wheel."""
    found = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for pattern in ("*.py", *DATA)
        for path in (ROOT / package).rglob(pattern)
    }
    kernels = {f"cer_gpu/kernels/{path.name}" for path in (ROOT / "kernels").glob("*.cu*")}
    return found | kernels


def environment(folder: Path, packages: Sequence[str]) -> str:
    """Return the Python of a new environment with some packages, in the pinned versions."""
    run([sys.executable, "-m", "venv", str(folder)], ROOT)
    python = str(folder / "bin" / "python")
    run([python, "-m", "pip", "install", "--quiet", "--constraint", str(CONSTRAINTS), *packages], folder)
    return python


def example_runner() -> str:
    """Return a program that runs the first example of a page, and fails where it prints something else."""
    return (
        "import doctest, pathlib, re, sys\n"
        "page = pathlib.Path(sys.argv[1]).read_text(encoding='utf-8')\n"
        "code = re.search(r'^```python\\n(.*?)^```', page, re.MULTILINE | re.DOTALL)[1]\n"
        "test = doctest.DocTestParser().get_doctest(code, {}, 'README.md', sys.argv[1], 0)\n"
        "sys.exit(not test.examples or doctest.DocTestRunner().run(test).failed)\n"
    )


def try_command(name: str, command: Sequence[str], folder: Path, version: str) -> None:
    """Ask for the version, and find the one complex event of a small file."""
    said = run([*command, "--version"], folder).stdout
    assert said == f"cer-gpu {version}\n", said
    run([*command, "run", QUERY, "events.csv", "-o", "found.jsonl"], folder)
    found = (folder / "found.jsonl").read_text(encoding="utf-8")
    assert json.loads(found) == {"start": 0, "end": 1, "positions": [0, 1]}, found
    print(f"{name}: --version and run")


def run(command: Sequence[str], folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder outside of the checkout, without its modules in sight."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=folder, env=kept | settings, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}exit code {done.returncode}")
    return done


if __name__ == "__main__":
    sys.exit(main())
