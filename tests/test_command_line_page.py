"""What docs/reference/command_line.md promises: the programs have every command and option of it, and none besides."""

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "docs"))
make_api = importlib.import_module("make_api")
make_command_line = importlib.import_module("make_command_line")
sys.path.pop(0)
PAGE = make_command_line.PAGE.read_text(encoding="utf-8")


def differences(before, now):
    return make_api.differences(make_command_line.promised(before), make_command_line.promised(now))


def test_no_command_or_option_is_gone_or_changed():
    gone, _ = differences(PAGE, make_command_line.page())
    assert gone == [], "deprecate it first (docs/reference/compatibility.md); if it was never released: make docs"


def test_every_command_and_option_is_on_the_page():
    _, new = differences(PAGE, make_command_line.page())
    assert new == [], "make docs, and a line of CHANGELOG.md"


def test_descriptions_are_those_of_the_help():
    assert make_command_line.page() == PAGE, "make docs"


def test_a_lost_option_of_one_command_or_of_several_is_reported():
    row = next(line for line in PAGE.splitlines() if line.startswith("| `--undecided"))
    changed = PAGE.replace(row + "\n", "").replace("`--no-type-column`, ", "", 1)
    gone, new = differences(PAGE, changed)
    assert gone == ["cer-gpu check --no-type-column", r"cer-gpu run --undecided [report\|hold]"]
    assert new == []
