"""Results measured on a GPU: one file for each card, to which later runs on the same card and commit add.

Nothing is written without a GPU.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

from report import Results, add, as_file_name, save, tables

from cer_gpu.backend import cupy_backend
from cer_gpu.backend.jit import source_stamp

ROOT = Path(__file__).parent.parent
UNKNOWN = "unknown"
SAME = ("card", "commit", "sources")
"""What two runs must have in common for their results to stand in one file."""


def first_line(*command: str) -> str:
    """Return the first line that a command prints, or that it is unknown where the command fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    except OSError:
        return UNKNOWN
    return next(iter(done.stdout.splitlines()), UNKNOWN) if done.returncode == 0 else UNKNOWN


def sources() -> str:
    """Return a digest of the package and its kernels, which tells a changed checkout from its commit."""
    return source_stamp(ROOT / "cer_gpu", *sorted((ROOT / "kernels").glob("*.cu*")))[:12]


def origin(commit: str | None = None) -> dict[str, str]:
    """Return the card, the versions below it, and the state of the code; `commit`: where there is no Git to ask."""
    driver = first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    commit = commit or first_line("git", "rev-parse", "HEAD")
    return {**cupy_backend.versions(), "driver": driver, "commit": commit, "sources": sources()}


def file_of(folder: Path, of: dict[str, str]) -> Path:
    """Return the file for the results of a card."""
    return folder / f"gpu-{as_file_name(of['card'])}.json"


def kept(folder: Path, of: dict[str, str]) -> Results | None:
    """Return the stored results of the same card and code; None: there are none."""
    path = file_of(folder, of)
    if not path.exists():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    return found["results"] if all(found["about"].get(name) == of[name] for name in SAME) else None


def keep(folder: Path, results: Results, notes: dict[str, str], command: list[str], of: dict[str, str]) -> None:
    """Add results to those of the same card and code, or write them in the place of others; and their tables."""
    if (why := cupy_backend.missing_cupy()) is not None:
        raise RuntimeError(f"no results of a GPU are written without one: {why}")
    path, console = file_of(folder, of), SimpleNamespace(print=lambda text: print(text, flush=True))
    if kept(folder, of) is None:
        save(console, path, results, command, notes, of)
    else:
        add(console, path, results, notes)
    path.with_suffix(".md").write_text(tables(path), encoding="utf-8")
