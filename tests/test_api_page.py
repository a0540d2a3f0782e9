"""What docs/reference/api.md promises: the code has every name and parameter of it, and none besides."""

import importlib
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("sigma")

sys.path.insert(0, str(Path(__file__).parent.parent / "docs"))
make_api = importlib.import_module("make_api")
sys.path.pop(0)
PAGE = make_api.PAGE.read_text(encoding="utf-8")


def differences(before, now):
    return make_api.differences(make_api.promised(before), make_api.promised(now))


def test_nothing_public_is_gone_or_changed():
    gone, _ = differences(PAGE, make_api.page())
    assert gone == [], "deprecate it first (docs/reference/compatibility.md); if it was never released: make docs"


def test_everything_public_is_on_the_page():
    _, new = differences(PAGE, make_api.page())
    assert new == [], "make docs, and a line of CHANGELOG.md"


def test_descriptions_are_those_of_the_docstrings():
    assert make_api.page() == PAGE, "make docs"


def test_nearly_every_name_has_a_description():
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(rows) > 250
    assert sum(line.endswith("|  |") for line in rows) < len(rows) / 10


def test_another_default_is_reported():
    changed = PAGE.replace("cer_gpu.plot.durations(matches, ax=None", "cer_gpu.plot.durations(matches, ax=1")
    gone, new = differences(changed, PAGE)
    assert gone == ["cer_gpu.plot.durations(matches, ax=1, **style)"]
    assert new == ["cer_gpu.plot.durations(matches, ax=None, **style)"]
