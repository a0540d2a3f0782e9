"""docs/first_query.md, followed word by word in an empty folder: its file, its commands and its Python."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

from cer_gpu.cli import main

PAGE = Path(__file__).parent.parent / "docs" / "first_query.md"
TEXT = PAGE.read_text(encoding="utf-8")
STEP = re.compile(
    r"^```(?:sh\n(?:cat > (?P<file>\S+) <<'END'\n(?P<content>.*?)END|(?P<command>.*?))"
    r"|python\n(?P<code>.*?)|\n(?P<output>.*?))\n```$",
    re.MULTILINE | re.DOTALL,
)
SECONDS = re.compile(r"\b\d+\.\d+ s\b")


def test_the_page_works_from_top_to_bottom_in_an_empty_folder(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    names: dict[str, object] = {}
    runner, report, n_commands, n_outputs = doctest.DocTestRunner(verbose=False), [], 0, 0
    for step in STEP.finditer(TEXT):
        if step["file"]:
            Path(step["file"]).write_text(step["content"], encoding="utf-8")
        elif step["command"]:
            program, *arguments = shlex.split(step["command"])
            assert program == "cer-gpu"
            assert main(arguments) == 0
            printed = capsys.readouterr()
            shown, n_commands = printed.out + printed.err, n_commands + 1
        elif step["code"]:
            line = TEXT.count("\n", 0, step.start())
            test = doctest.DocTestParser().get_doctest(step["code"], names, PAGE.name, str(PAGE), line)
            runner.run(test, out=report.append, clear_globs=False)
            names.update(test.globs)
        else:
            assert SECONDS.sub("", step["output"].rstrip()) == SECONDS.sub("", shown.rstrip())
            n_outputs += 1
    assert not report, "".join(report)
    assert (n_commands, n_outputs) == (4, 2)
    assert Path("report.html").stat().st_size > 10_000
