"""docs/guides/detection.md, tests for rules: the commands work, and outputs and files are as shown."""

import os
import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cer_gpu.cli import main

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "guides" / "detection.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE[PAGE.index("## Tests for rules") :], re.DOTALL)
COMMANDS = [text.strip() for language, text in BLOCKS if language == "sh"]
OUTPUTS = [text for language, text in BLOCKS if not language and "├" not in text]
yaml = pytest.importorskip("yaml")


@pytest.fixture
def here(tmp_path, monkeypatch):
    pytest.importorskip("sigma")
    monkeypatch.chdir(tmp_path)
    os.symlink(ROOT / "examples", "examples")
    return tmp_path


def test_the_cases_of_the_example_pass(here, capsys):
    (command,) = (each for each in COMMANDS if " test " in each)
    assert main(shlex.split(command)[1:]) == 0
    *lines, total = capsys.readouterr().out.splitlines()
    assert lines == OUTPUTS[0].splitlines()
    assert total.startswith(f"{len(lines)} cases in 5 files: {len(lines)} passed, ")
    assert ElementTree.parse("junit.xml").getroot().get("tests") == str(len(lines))


def test_a_longer_window_fails_as_shown(here, capsys):
    rules = here / "rules"
    rules.mkdir()
    for name in ("guessed_password.toml", "guessed_password.test.yml"):
        text = (ROOT / "examples" / "detection" / "rules" / name).read_text(encoding="utf-8")
        (rules / name).write_text(text.replace("maxspan=5m", "maxspan=6m"), encoding="utf-8")
    assert main(["test", "rules"]) == 1
    out = capsys.readouterr().out
    assert OUTPUTS[1].partition("...")[0] in out


def test_the_warnings_are_those_shown(capsys):
    (command,) = (each for each in COMMANDS if " check " in each)
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out == OUTPUTS[2]


def test_the_page_has_the_files_that_it_shows():
    shown = [text for language, text in BLOCKS if language == "yaml"]
    cases = (ROOT / "examples" / "detection" / "rules" / "guessed_password.test.yml").read_text(encoding="utf-8")
    assert cases.startswith(shown[0])
    assert shown[1] in cases
    assert shown[2] == (ROOT / "examples" / "detection" / "workflow" / "detections.yml").read_text(encoding="utf-8")


def test_the_workflow_runs_commands_that_there_are(capsys):
    text = (ROOT / "examples" / "detection" / "workflow" / "detections.yml").read_text(encoding="utf-8")
    steps = yaml.safe_load(text)["jobs"]["rules"]["steps"]
    commands = [step["run"] for step in steps if step.get("run", "").startswith("cer-gpu ")]
    assert len(commands) == 2
    for command in commands:
        options = [word for word in shlex.split(command) if word.startswith("--")]
        assert main([shlex.split(command)[1], "--help"]) == 0
        shown = capsys.readouterr().out
        assert all(option in shown for option in options)
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) for step in steps if "uses" in step)
