"""Output of the command line for other programs: JSON, completion, help and version."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ROOT, finish, start

import cer_gpu
from cer_gpu.cli.group import cli as commands
from cer_gpu.cli.group import main

QUERY = "SELECT * FROM S WHERE A AS a ; B FILTER a[price > 10] WITHIN 3 SECONDS"
WRONG = "SELECT *\nFROM S WHERE A ; B\nFILTER b[price > 1]"


# ---- JSON -----------------------------------------------------------------------------------------------------------


def test_run_prints_its_summary_as_json(cli):
    args = ("run", QUERY, "events.parquet", "--time-column", "ts", "--json")
    code, out, err = cli(*args)
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert summary.pop("seconds") > 0
    assert summary == {
        "n_events": 7,
        "n_late": 0,
        "output": "positions",
        "n_rows": 4,
        "n_matches": 4,
        "limit_reached": False,
        "rows_per_second": None,
        "out": None,
        "notes": [],
    }
    code, out, _ = cli(*args, "-o", "out.csv", "--limit", 2)
    summary = json.loads(out)
    assert (summary["n_rows"], summary["limit_reached"], summary["out"]) == (2, True, "out.csv")
    for output, n_rows, n_matches in ("count", 3, 4), ("bindings", 4, None):
        _, out, _ = cli(*args, "--output", output)
        summary = json.loads(out)
        assert (summary["n_rows"], summary["n_matches"]) == (n_rows, n_matches)


def test_the_summary_leaves_standard_output_to_the_rows(piped):
    code, out, err = piped("run", QUERY, "events.parquet", "--time-column", "ts", "--json", "-o", "-")
    assert code == 0
    assert [json.loads(line)["end"] for line in out.splitlines()] == [1, 4, 4, 6]
    assert json.loads(err)["n_rows"] == 4


def test_errors_of_a_query_have_their_position_in_json(cli):
    Path("q.ceql").write_text(WRONG)
    for command in (["run", "q.ceql", "events.parquet"], ["explain", "q.ceql"]):
        code, out, err = cli(*command, "--json")
        assert (code, out) == (1, "")
        assert json.loads(err) == {
            "errors": [
                {
                    "type": "QueryError",
                    "message": "FILTER names 'b', which the formula does not define",
                    "hint": "did you mean 'B'?",
                    "file": "q.ceql",
                    "start": WRONG.index("b["),
                    "end": WRONG.index("b[") + 1,
                    "line": 3,
                    "column": 8,
                }
            ]
        }


@pytest.mark.parametrize(
    ("args", "code", "kind", "message"),
    [
        (["run", "SELECT * FROM S WHERE A", "gone.parquet"], 1, "EventsError", "gone.parquet: no such file"),
        (
            ["run", "SELECT * FROM S WHERE A", "events.parquet", "-o", "a.xyz"],
            1,
            "OptionError",
            "cannot tell the format",
        ),
        (["run", "SELECT * FROM S WHERE A"], 2, "UsageError", "Missing argument 'EVENTS...'"),
        (["explain", "SELECT * FROM S WHERE A", "--analyze"], 2, "UsageError", "QUERY EVENTS"),
        (["walk"], 2, "UsageError", "No such command 'walk'"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_every_error_is_json(cli, args, code, kind, message):
    returned, out, err = cli(*args, "--json")
    assert (returned, out) == (code, "")
    (error,) = json.loads(err)["errors"]
    assert error["type"] == kind
    assert message in error["message"]
    returned, _, err = cli(*args)
    assert returned == code
    assert not err.startswith("{")


def test_check_prints_errors_and_columns_as_json(cli):
    code, out, err = cli("check", QUERY, "events.parquet", "--time-column", "ts", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "ok": True,
        "errors": [],
        "warnings": [],
        "notes": [],
        "columns": ["type", "price", "ts"],
    }
    code, out, err = cli(
        "check", "SELECT x FROM S WHERE A+ FILTER A[prize > 1] AND b[n > 1]", "events.parquet", "--json"
    )
    assert (code, err) == (1, "")
    said = json.loads(out)
    assert not said["ok"]
    assert [(error["type"], error["events"]) for error in said["errors"]] == [
        ("QueryError", None),
        ("QueryTypeError", "events.parquet"),
        ("QueryError", None),
        ("QueryTypeError", "events.parquet"),
    ]


# ---- completion -----------------------------------------------------------------------------------------------------


def asking(words):
    """Return the environment in which the program tells bash the completions of the last word."""
    return {
        "_CER_GPU_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }


@pytest.fixture
def completed(monkeypatch, capsys):
    """Return a function that gives the completions of the last word, each as kind and text."""

    def completed(words):
        with monkeypatch.context() as patch:
            for name, value in asking(words).items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                main([])
        told = capsys.readouterr()
        assert (ended.value.code, told.err) == (0, "")
        return [tuple(line.split(",")) for line in told.out.splitlines()]

    return completed


def test_a_process_completes_a_command():
    environment = {
        **os.environ,
        **asking(["cer-gpu", "e"]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, "-m", "cer_gpu"], env=environment, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("plain,explain\nplain,explore\n", "")


def test_commands_options_values_and_files_are_completed(completed):
    assert completed(["cer-gpu", "e"]) == [("plain", "explain"), ("plain", "explore")]
    assert completed(["cer-gpu", "explain", "--sv"]) == [("plain", "--svg")]
    assert completed(["cer-gpu", "run", "--output", "e"]) == [("plain", "events"), ("plain", "ends")]
    for words in (
        ["run", "q"],
        ["run", "q", "e"],
        ["check", "q"],
        ["report", "q"],
        ["report", "q", "e"],
        ["report", "q", "e", "-o", "r"],
        ["explain", "q"],
        ["explain", "q", "--events", "e"],
    ):
        assert completed(["cer-gpu", *words]) == [("file", words[-1])]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_accept_their_script(cli, shell):
    code, out, _ = cli("completion", shell)
    assert code == 0
    assert "_CER_GPU_COMPLETE" in out
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    Path("script").write_text(out)
    subprocess.run([shell, "-n", "script"], check=True)


def test_an_unknown_shell_is_wrong_usage(cli):
    code, _, err = cli("completion", "dos")
    assert code == 2
    assert "'bash', 'zsh', 'fish'" in err


# ---- help -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", sorted(commands.commands))
def test_every_command_has_help_with_examples(cli, command):
    code, out, _ = cli(command, "--help")
    assert code == 0
    assert f"cer-gpu {command} " in out[out.index("Examples:") :]


def test_version_is_that_of_the_package():
    process = start("--version", stdout=subprocess.PIPE)
    assert finish(process)[:2] == (0, f"cer-gpu {cer_gpu.__version__}\n")
