"""The commands of docs/guides/detection.md work, and its tables are what they print."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cer_gpu.cli import main

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "guides" / "detection.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
TABLES = re.findall(r"```\n( .*?)```", PAGE, re.DOTALL)


@pytest.fixture
def here(tmp_path, monkeypatch):
    pytest.importorskip("duckdb")
    pytest.importorskip("sigma.rule")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    os.symlink(ROOT / "examples", "examples")
    return tmp_path


def words(table):
    return [line.split() for line in table.splitlines() if "───" not in line]


def test_the_tutorial_works(here, capsys):
    assert len(COMMANDS) == 12
    printed = {}
    for command in COMMANDS:
        program, *args = shlex.split(command)
        if args[:2] == ["-m", "spark_glue"]:
            continue  # tests/spark has one
        if program == "python":
            subprocess.run([sys.executable, *args], check=True)
            continue
        assert program == "cer-gpu"
        assert main(args) == 0, capsys.readouterr().err
        printed[command] = capsys.readouterr()
    alerts, near = (each for each in TABLES)
    (run,) = (said for command, said in printed.items() if command.endswith("--pipeline ecs") and " run " in command)
    assert words(run.out) == words(alerts)
    for note in re.findall(r"^note: .*$", PAGE, re.MULTILINE):
        assert note in run.err.splitlines()
    (progress,) = (said for command, said in printed.items() if command.endswith("funnel"))
    assert words(progress.out) == words(near)
    assert pq.read_table("alerts.parquet").num_rows == 8
    page = Path("alerts.html").read_text(encoding="utf-8")
    assert "Password guessed over the network" in page
    assert "https://attack.mitre.org/techniques/T1069/002/" in page  # of a correlation of Sigma


def test_the_events_are_those_that_the_script_makes(here):
    subprocess.run([sys.executable, "examples/detection/make_events.py", "made.parquet"], check=True)
    assert pq.read_table("made.parquet").equals(pq.read_table(ROOT / "examples" / "detection" / "windows.parquet"))
