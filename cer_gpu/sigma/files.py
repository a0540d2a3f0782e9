"""Files that hold rules of Sigma, and what is given as the path of one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from cer_gpu.rule import TEST_ENDINGS

YAML_ENDINGS = (".yml", ".yaml")


def files_in(path: Path) -> Iterator[Path]:
    """Yield the files of rules in a folder and in those in it, in order; of a file, itself."""
    if path.is_dir():
        yield from sorted(each for each in path.rglob("*") if _is_of_rules(each))
    else:
        yield path


def _is_of_rules(path: Path) -> bool:
    return path.suffix in YAML_ENDINGS and not path.name.endswith(TEST_ENDINGS) and path.is_file()


def is_path(rules: object) -> bool:
    """Return True for a path, False for YAML; a text without a line break is a path, unless it is empty."""
    return isinstance(rules, os.PathLike) or (isinstance(rules, str) and "\n" not in rules.strip() != "")
