"""Strings of explanations, as a person reads them: golden/*.txt.

A file holds the query, a line ``----`` with the options to compile it with, and the explanation. To write the
explanation of a new file (nothing after the line), run pytest with CER_GPU_WRITE_GOLDEN=1, and read the result.
"""

import os
from pathlib import Path

import pytest

import cer_gpu
from cer_gpu.predicates import guards, placement

FILES = sorted((Path(__file__).parent / "golden").glob("*.txt"))


def read(path):
    """Return the query, the options and the explanation."""
    query, rest = path.read_text(encoding="utf-8").split("\n---- ", 1)
    head, _, said = rest.partition("\n")
    options = dict(option.split("=") for option in head.split())
    return query, {name: None if value == "none" else value for name, value in options.items()}, said


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_explanation_prints_its_golden_text(path, monkeypatch):
    monkeypatch.setattr(placement, "missing", lambda: "there is no NVIDIA driver (libcuda.so.1)\nhint: install it")
    monkeypatch.setattr(guards, "TIER", None)
    query, options, expected = read(path)
    said = f"{cer_gpu.compile(query, **options).explain(detail='all')}\n"
    if not expected and os.environ.get("CER_GPU_WRITE_GOLDEN"):
        path.write_text(path.read_text(encoding="utf-8") + said, encoding="utf-8")
        pytest.fail(f"wrote {path.name}; read it, and run again")
    assert said == expected


def test_there_are_at_least_sixteen_golden_files():
    assert len(FILES) >= 16
