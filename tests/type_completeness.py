"""Ask pyright whether the types of all public names are known (`make lint`): a score of 100% for both packages.

Packages without types of their own, as pyarrow is, do not count.  PySigma has types, which pyright does not see, as it
is a namespace package without an `__init__.py`: it looks at links to its modules beside an empty one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("cer_gpu", "spark_glue")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="cer-gpu-types-") as temporary:
        folder = Path(temporary)
        link_sigma(folder / "sigma")
        return max([check(package, folder) for package in PACKAGES])


def link_sigma(folder: Path) -> None:
    """Make a package of links to the modules of pySigma, if it is installed."""
    folder.mkdir()
    (folder / "__init__.py").touch()
    found = find_spec("sigma")
    for place in (found.submodule_search_locations if found else None) or ():
        for path in Path(place).glob("[!_]*"):
            if not (folder / path.name).exists():
                (folder / path.name).symlink_to(path)


def check(package: str, folder: Path) -> int:
    """Return 0 if all types of a package are known, else 1, and print the names that lack them."""
    # it takes the interpreter that comes first in PATH, whatever --pythonpath says
    paths = {"PATH": str(Path(sys.executable).parent), "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    settings = os.environ | {"PATH": os.pathsep.join([paths["PATH"], os.environ.get("PATH", "")])}
    command = [sys.executable, "-m", "basedpyright", "--ignoreexternal", "--outputjson", "--verifytypes", package]
    done = subprocess.run(
        command,
        cwd=folder,
        env=settings | {"PYTHONPATH": paths["PYTHONPATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        told: dict[str, Any] = json.loads(done.stdout)["typeCompleteness"]
    except (ValueError, KeyError):
        print(f"expected JSON of pyright, got:\n{done.stdout}{done.stderr}", file=sys.stderr)
        return 1
    score, n = told["completenessScore"], sum(told["exportedSymbolCounts"].values())
    for symbol in told["symbols"]:
        if symbol["isExported"] and not symbol["isTypeKnown"]:
            for each in symbol["diagnostics"]:
                print(f"{symbol['name']}: {' '.join(each['message'].split())}", file=sys.stderr)
    print(f"{package}: the types of {score:.2%} of {n} public names are known to pyright")
    return int(score < 1 or n == 0)


if __name__ == "__main__":
    sys.exit(main())
