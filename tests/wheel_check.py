"""Build an sdist and wheels into dist/, and try the wheel as a stranger would (`make wheel`).

The wheel is installed with the pinned versions into a fresh environment in a temporary folder; README's first example,
`cer-gpu --version` and `cer-gpu run` are run there, and the command by `pipx run` and `uvx`.  On Linux with an x86-64
processor a second wheel is made of the first, with the machine code of the loops (`cer_gpu.backend.prebuilt`), in which
first answers compile nothing; where the processor lacks a feature, or a file is damaged, they compile and are the same.
Nothing is published.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
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
PREBUILT = "cer_gpu/prebuilt"
PLATFORM = "manylinux_2_27_x86_64"
"""Platform of the wheel with machine code: that of the oldest wheels of LLVM that it can stand beside.  The code calls
nothing of the system by itself: Numba links it when it is loaded."""
AARCH64 = [f"manylinux_2_{minor}_aarch64" for minor in range(17, 29)] + ["manylinux2014_aarch64"]
"""Platforms of Linux on aarch64, for which there is no wheel with machine code: the other one serves them."""
COLLECT = (
    "import sys; from pathlib import Path; from cer_gpu.backend import jit, prebuilt; "
    "print(prebuilt.write_folder(Path(sys.argv[1]), Path(sys.argv[2]), jit.STAMP))"
)
FIRST_ANSWER = """
import pyarrow as pa, cer_gpu
from cer_gpu.backend.jit import COMPILING
events = pa.table({"type": ["SELL", "BUY", "BUY"], "price": [101, 90, 120]})
found = cer_gpu.compile(%r).evaluate(events)
assert found["positions"].to_pylist() == [[0, 1]], found
print(COMPILING.count)
"""
PLUGIN = """
from sigma.plugins import InstalledSigmaPlugins
found = InstalledSigmaPlugins.autodiscover(include_validators=False)
assert "cer_gpu" in found.backends and "cer_gpu_windows" in found.pipelines, found
"""


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
        run([environment(folder / "sigma", [f"{wheel}[sigma]"]), "-c", PLUGIN], folder)
        print("pySigma finds the plugin")
        (sdist,) = DIST.glob("*.tar.gz")
        from_source = Path(environment(folder / "source", [str(sdist)]))
        try_command("the sdist", [str(from_source.with_name("cer-gpu"))], folder, version)
        resolve(wheel, folder)
        command = [str(Path(python).with_name("cer-gpu"))]
        try_command("cer-gpu", command, folder, version)
        tools = Path(environment(folder / "tools", ["pipx", "uv"])).parent
        spec = str(wheel)
        constraints = f"--pip-args=--constraint={CONSTRAINTS}"
        try_command("pipx run", [str(tools / "pipx"), "run", constraints, "--spec", spec, "cer-gpu"], folder, version)
        uvx = [str(tools / "uvx"), "--constraints", str(CONSTRAINTS), "--from", spec, "cer-gpu"]
        try_command("uvx", uvx, folder, version)
        print(f"{wheel.relative_to(ROOT)} is good")
        if (sys.platform, platform.machine(), platform.python_implementation()) == ("linux", "x86_64", "CPython"):
            made = with_machine_code(wheel, python, folder)
            try_machine_code(environment(folder / "platform", [str(made)]), folder)
            print(f"{made.relative_to(ROOT)} is good")
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


def with_machine_code(wheel: Path, python: str, folder: Path) -> Path:
    """Return a wheel for this platform and version of Python, made of the other with the machine code of its loops.

    Parameters
    ----------
    wheel
    python
        Interpreter of an environment in which it is installed.
    folder
        For what is made on the way.
    """
    settings = json.loads(run([python, "-c", "import json; from cer_gpu.backend import prebuilt; "
                               "print(json.dumps(prebuilt.ENVIRONMENT))"], folder).stdout)  # fmt: skip
    loops = folder / "loops"
    run([python, "-m", "cer_gpu", "warm"], folder, NUMBA_CACHE_DIR=str(loops), **settings)
    tool = [sys.executable, "-m", "wheel"]
    run([*tool, "unpack", "--dest", str(folder / "unpacked"), str(wheel)], folder)
    (unpacked,) = (folder / "unpacked").iterdir()
    n_files = run([python, "-c", COLLECT, str(loops), str(unpacked / PREBUILT)], folder).stdout.strip()
    run([*tool, "pack", "--dest-dir", str(folder), str(unpacked)], folder)
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    tags = ["--python-tag", version, "--abi-tag", version, "--platform-tag", PLATFORM]
    name = run([*tool, "tags", *tags, str(folder / wheel.name)], folder).stdout.strip()
    made = (folder / name).rename(DIST / name)
    with zipfile.ZipFile(made) as archive:
        packed = {each for each in archive.namelist() if each.startswith(f"{PREBUILT}/")}
    assert len(packed) == int(n_files) + 1 > 50, packed
    print(f"{made.name}: {n_files} files of machine code, {made.stat().st_size / 1e6:.1f} MB in all")
    return made


def try_machine_code(python: str, folder: Path) -> None:
    """Ask for first answers of each kind with an empty cache; then without a feature, and with a damaged file."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    first_run = importlib.import_module("first_run")
    for name, text in first_run.QUERIES.items():
        with tempfile.TemporaryDirectory(dir=folder) as cache:
            told = first_run.run(text, cache, python)
        assert told["compiled"] == 0, (name, told)
        print(f"{name}: {told['seconds']:.2f} s of processor time, nothing compiled")
    answer = [python, "-c", FIRST_ANSWER % QUERY]
    features = "from numba.core.codegen import get_host_cpu_features as f; print(f())"
    lacking = run([python, "-c", features], folder).stdout.strip().replace("+avx2", "-avx2")
    where = run([python, "-c", "from cer_gpu.backend.prebuilt import FOLDER; print(FOLDER)"], folder).stdout.strip()
    for name, settings in (("as it is", {}), ("without AVX2", {"NUMBA_CPU_FEATURES": lacking}), ("damaged", {})):
        if name == "damaged":
            for file in Path(where).iterdir():
                file.write_bytes(file.read_bytes()[:-1] if file.suffix else b"no machine code")
        cache = str(folder / "caches" / name)
        n_compiled = int(run(answer, folder, NUMBA_CACHE_DIR=cache, CER_GPU_NOTICES="off", **settings).stdout)
        assert (n_compiled == 0) == (name == "as it is"), (name, n_compiled)
        print(f"{name}: the same answer, {n_compiled} functions compiled")


def expected_files() -> set[str]:
    """Return the files of the packages in the checkout, by their names in a wheel."""
    found = {
        path.relative_to(ROOT).as_posix().replace("cer_gpu/sigma/plugin/", "sigma/")
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


def resolve(wheel: Path, folder: Path) -> None:
    """Ask pip for wheels of all that the wheel needs on Linux with aarch64, as pinned; none is installed."""
    asked = ["install", "--quiet", "--dry-run", "--target", str(folder / "elsewhere"), "--only-binary=:all:"]
    for platform_tag in AARCH64:
        asked += ["--platform", platform_tag]
    run([sys.executable, "-m", "pip", *asked, "--constraint", str(CONSTRAINTS), str(wheel)], folder)
    print("all that it needs has wheels for Linux on aarch64")


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
