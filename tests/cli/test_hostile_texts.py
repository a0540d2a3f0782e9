"""Names and values with control codes, marks of direction and markup: each command shows them, and sends none."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cer_gpu
from cer_gpu.cli.group import cli as commands

HOSTILE = "\x1b]0;x\x07\x1b[31m\x9b2J\u202e[red]b[/]:cat:<i>&$a$"
SENT = re.compile("\x1b\\]|\x1b\\[31m|\x07|\x9b|\u202e")
"""Sent to a terminal or into a page; a command's own colours are others, or those of a label."""
LABEL = "\x1b[31m\x1b[1merror: "
KIND, VALUE, COLUMN, PLACE = f"A{HOSTILE}", f"v{HOSTILE}", f"c{HOSTILE}", f"r{HOSTILE.replace('/', '')}"
QUERY = f"SELECT * WHERE `{KIND}` AS a ; B AS `b{HOSTILE}` FILTER a[`{COLUMN}` = '{VALUE}'] /* {HOSTILE} */"
BROKEN = f"SELECT * WHERE `{KIND}` ; '{HOSTILE}'"
MISSING = f"SELECT * WHERE B AS b FILTER b[`n{HOSTILE}` = 1]"
SETS = {
    f"{PLACE}.ceql": QUERY,
    "rows.sql": f"SELECT * FROM e MATCH_RECOGNIZE (ORDER BY n MEASURES X.`{COLUMN}` AS `m{HOSTILE}` PATTERN (X)"
    f" DEFINE X AS n > 1)",
}  # fmt: skip
CASE = f"""events:
- {{type: {json.dumps(KIND)}, n: 1, {json.dumps(COLUMN)}: {json.dumps(VALUE)}}}
- {{type: B, n: 2}}
cases:
- {{name: {json.dumps(HOSTILE)}, rule: "*", expect: {{rows: [{{start: {json.dumps(VALUE)}}}]}}}}
- {{name: {json.dumps(HOSTILE)}, rule: {json.dumps(HOSTILE)}, expect: none}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    events = {"type": [KIND, "B", KIND, "B"], COLUMN: [VALUE, "w", VALUE, "w"], "n": [1, 2, 3, 4]}
    pq.write_table(pa.table(events), f"{PLACE}.parquet")
    (Path("rules") / PLACE).mkdir(parents=True)
    for name, text in SETS.items():
        (Path("rules") / PLACE / name).write_text(text)
    (Path("rules") / f"{PLACE}.test.yml").write_text(CASE)
    Path(f"{PLACE}.ceql").write_text(BROKEN)
    for folder in ("live", "set"):
        Path(folder).mkdir()
    (Path("set") / f"{PLACE}.ceql").write_text(QUERY)
    pq.write_table(pa.table(events), f"live/{PLACE}.parquet")
    cer_gpu.compile(QUERY).evaluate(pa.table(events))  # Numba keeps the standard output that it first meets
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    return tmp_path


def lines() -> dict[str, list[tuple]]:
    """Return calls of each command that show names of every kind."""
    events = f"{PLACE}.parquet"
    return {
        "run": [
            (QUERY, events),
            (QUERY, events, "--output", "rows"),
            (QUERY, events, "--output", "events"),
            (QUERY, events, "--output", "funnel"),
            (QUERY, events, "-o", f"{HOSTILE.replace('/', '')}.csv"),
            (SETS["rows.sql"], events),
            (BROKEN, events), (MISSING, events), (f"{PLACE}.ceql", events), (f"{HOSTILE}.ceql", events),
            (QUERY, f"{HOSTILE}.parquet"), (QUERY, events, f"--{HOSTILE}"), (QUERY, events, "--output", HOSTILE),
            (QUERY, events, "--type-column", HOSTILE), ("--queries", "rules", events),
            (QUERY, events, "--time-column", COLUMN), ("--queries", f"rules{HOSTILE}", events),
            (QUERY, "--follow", "live", "--once", "--settle", "0", "-o", "found"),
        ],
        "check": [(QUERY,), (QUERY, events), (BROKEN,), (MISSING, events), ("--queries", "rules", events)],
        "test": [("rules",), (f"rules/{PLACE}.test.yml", "--junit", "junit.xml")],
        "columns": [(events,), (events, "--type-column", "type"), (events, "--type-column", HOSTILE)],
        "report": [
            (QUERY, events, "-o", "one.html"), ("--queries", "set", events, "-o", "set.html"),
            (QUERY, events, "--output", "funnel", "-o", "funnel.html"), (BROKEN, events, "-o", "no.html"),
        ],
        "explain": [
            (QUERY,), (QUERY, "--passes"), (QUERY, "--events", events, "--analyze"), (SETS["rows.sql"],),
            (QUERY, "--svg", "a.svg", "--dot", "a.dot"), (BROKEN,), (HOSTILE,),
        ],
        "forecast": [
            (QUERY, events, "--history", events, "--within", "5 events"),
            (QUERY, events, "--history", events, "--within", "5 events", "--explain"),
            (BROKEN, events, "--history", events, "--within", "5 events"),
            (QUERY, events, "--model", f"{PLACE}.parquet"),
        ],
        "completion": [], "explore": [], "lsp": [], "warm": [],
    }  # fmt: skip


def test_every_command_shows_them_and_sends_none(folder, cli):
    assert lines().keys() == commands.commands.keys()
    n_shown = 0
    for command, calls in lines().items():
        for call in calls:
            for args in [call, *([(*call, "--json")] if command != "test" else [])]:
                code, out, err = cli(command, *args)
                said = out + err.replace(LABEL, "")
                assert not SENT.search(said), (command, args, said)
                assert code in (0, 1, 2)
                if "--json" not in args:
                    n_shown += r"\x1b]0;x\x07\x1b[31m\x9b2J\u202e[red]b[" in said
    assert n_shown >= 30
    for path in ["a.svg", "a.dot", "one.html", "set.html", "funnel.html", "junit.xml"]:
        text = Path(path).read_text()
        assert not SENT.search(text), path
        assert path.endswith(".dot") or "<i>" not in text, path
        if path.endswith((".svg", ".xml")):
            ElementTree.fromstring(text)
        assert r"\x1b]0;x\x07" in text.replace("\\\\", "\\") or r"\u001b]0;x\u0007" in text or path == "junit.xml"


def test_progress_on_a_terminal_sends_none(folder):
    Path("live").rename(HOSTILE.replace("/", ""))
    outer, inner = pty.openpty()
    follow = [QUERY, "--follow", HOSTILE.replace("/", ""), "--once", "--settle", "0.3", "-o", "found"]
    done = subprocess.Popen([sys.executable, "-m", "cer_gpu", "run", *follow], stderr=inner, stdout=inner)
    os.close(inner)
    said = b""
    with contextlib.suppress(OSError):  # at the end of the other side
        while part := os.read(outer, 1 << 12):
            said += part
    os.close(outer)
    assert done.wait() == 0, said
    text = said.decode()
    assert "looking for files" in text
    assert r"\x1b]0;x\x07\x1b[31m\x9b2J\u202e[red]b[]:cat:" in text
    assert not SENT.search(text), text


def test_python_shows_them_and_sends_none(folder):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    from cer_gpu.notebook.magic import Shown

    query, events = cer_gpu.compile(QUERY), pq.read_table(f"{PLACE}.parquet")
    queries = cer_gpu.compile_all({PLACE: QUERY})
    found = query.evaluate(events, output="events")
    cell = Shown(query, found, found, "events", events.num_rows)
    pages = [query._repr_html_(), queries._repr_html_(), cell._repr_html_(), query.explain().to_svg()]
    assert not any("<i>" in text for text in pages)
    shown = [
        *pages,
        str(query.explain(events, detail="all")),
        query.explain().to_dot(),
        repr(cell),
        repr(queries),
        repr(query),
    ]
    for wrong in (
        lambda: cer_gpu.compile(BROKEN),
        lambda: cer_gpu.compile(MISSING).evaluate(events),
        lambda: query.evaluate(f"{HOSTILE}.csv"),
        lambda: query.evaluate(events, output=HOSTILE),
    ):
        with pytest.raises(cer_gpu.CerError) as raised:
            wrong()
        shown.append(str(raised.value))
    for text in shown:
        assert not SENT.search(text), text
    axes = Figure().subplots()
    found = pa.table({"start": [0], "end": [1], COLUMN: [VALUE]})
    cer_gpu.plot.timeline(found, axes, by=COLUMN)
    assert axes.get_yticklabels()[0].get_text() == axes.get_ylabel().replace("c\\x1b", "v\\x1b", 1)
    assert r"\x1b]0;x\x07" in axes.get_ylabel()
    assert r"\$a\$" in axes.get_ylabel()
    axes.figure.savefig(io.BytesIO())


def test_a_caret_stands_under_its_text_behind_control_codes():
    with pytest.raises(cer_gpu.QuerySyntaxError) as raised:
        cer_gpu.compile("SELECT * WHERE `\x1b[1m` AS\tx ; ; B\r\nWITHIN 5 EVENTS")
    _, line, carets = str(raised.value).splitlines()[:3]
    assert line == "  line 1: SELECT * WHERE `\\x1b[1m` AS\tx ; ; B"
    place = line.index("; B")
    assert (carets[place:], carets[:place].split(), carets.index("\t")) == ("^", [], line.index("\t"))
