"""What docs/api.md promises: the code has every name, parameter, command and option of it, and none besides."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("sigma")

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("make_api", ROOT / "docs" / "make_api.py")
assert spec is not None
assert spec.loader is not None
make_api = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_api)
PAGE = make_api.PAGE.read_text(encoding="utf-8")


def test_nothing_public_is_gone_or_changed():
    gone, _ = make_api.differences(PAGE, make_api.page())
    assert gone == [], "deprecate it first (docs/stability.md); if it was never released: make docs"


def test_everything_public_is_on_the_page():
    _, new = make_api.differences(PAGE, make_api.page())
    assert new == [], "make docs, and a line of CHANGELOG.md"


def test_a_lost_option_and_another_default_are_told():
    changed = PAGE.replace("cer_gpu.plot.durations(matches, ax=None", "cer_gpu.plot.durations(matches, ax=1").replace(
        "cer-gpu run --decimal-comma\n", ""
    )
    gone, new = make_api.differences(changed, PAGE)
    assert gone == ["cer_gpu.plot.durations(matches, ax=1, **style)"]
    assert new == ["cer_gpu.plot.durations(matches, ax=None, **style)", "cer-gpu run --decimal-comma"]
