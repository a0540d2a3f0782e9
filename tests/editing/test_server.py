"""The language server as an editor runs it: a process, and messages of the protocol over its standard streams."""

import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

pytest.importorskip("pygls")

TEXT = "-- events: events.parquet\r\nSELECT * FROM S WHERE A AS a ; B AS b\nFILTER {}[prise > 1] WITHIN 5 MINUTES"


class Editor:
    """The editor's side of the protocol."""

    def __init__(self, folder, *options):
        command = [sys.executable, "-m", "cer_gpu", "lsp", *options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder)
        self._n_asked = 0
        self.said = []

    def tell(self, method, **params):
        self._send({"method": method, "params": params})

    def ask(self, method, **params):
        """Send a request, and return the result of its answer; notifications before it are kept."""
        self._n_asked += 1
        self._send({"id": self._n_asked, "method": method, "params": params})
        while "id" not in (message := self._received()):
            self.said.append(message)
        assert message["id"] == self._n_asked
        return message["result"]

    def diagnostics(self):
        """Return those of the next notification."""
        message = self.said.pop(0) if self.said else self._received()
        assert message["method"] == "textDocument/publishDiagnostics"
        return message["params"]["diagnostics"]

    def close(self):
        self.ask("shutdown")
        self.tell("exit")
        return self._process.wait(timeout=60)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._process.kill()
        self._process.communicate()

    def _send(self, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._process.stdin.flush()

    def _received(self):
        length = 0
        while header := self._process.stdout.readline().strip():
            name, _, value = header.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        return json.loads(self._process.stdout.read(length))


def shown(diagnostic):
    start, end = diagnostic["range"]["start"], diagnostic["range"]["end"]
    return start["line"], start["character"], end["character"], diagnostic["severity"]


def test_an_editor_is_told_errors_columns_and_meaning_while_one_types(tmp_path):
    events = pa.table({"type": ["A"], "price": [1.0], "ts": pa.array([0], pa.timestamp("us"))})
    pq.write_table(events, tmp_path / "events.parquet")
    with Editor(tmp_path, "--time-column", "ts") as editor:
        check(editor, tmp_path)


def check(editor, folder):
    can = editor.ask("initialize", processId=None, rootUri=folder.as_uri(), capabilities={})["capabilities"]
    assert can["hoverProvider"]
    assert "." in can["completionProvider"]["triggerCharacters"]
    editor.tell("initialized")
    document = {"uri": (folder / "late.ceql").as_uri()}

    editor.tell(
        "textDocument/didOpen",
        textDocument={**document, "languageId": "ceql", "version": 1, "text": TEXT.format("c")},
    )
    wrong, misspelt = editor.diagnostics()
    assert (shown(wrong), shown(misspelt)) == ((2, 7, 8, 1), (2, 9, 14, 1))
    assert wrong["message"].startswith("FILTER names 'c', which the formula does not define\nhint: ")
    assert misspelt["message"].endswith("hint: did you mean 'price'?")

    def change(text, version):
        editor.tell(
            "textDocument/didChange", textDocument={**document, "version": version}, contentChanges=[{"text": text}]
        )
        return editor.diagnostics()

    unknown, _ = change(TEXT.format("/* \U0001f600 */ c"), 2)  # a sign of two code units in UTF-16
    assert shown(unknown)[:3] == (2, len("FILTER /* .. */ "), len("FILTER /* .. */ c"))

    text = TEXT.format("a").replace("prise", "pr")
    change(text, 4)
    listed = editor.ask("textDocument/completion", textDocument=document, position={"line": 2, "character": 11})
    column, *functions = listed["items"]
    assert (column["label"], column["detail"]) == ("price", "double")
    assert [each["label"] for each in functions] == ["PREV"]
    assert column["textEdit"]["range"] == {"start": {"line": 2, "character": 9}, "end": {"line": 2, "character": 11}}

    assert change(text.replace("pr", "price"), 5) == []
    meant = editor.ask("textDocument/hover", textDocument=document, position={"line": 2, "character": 10})
    value = meant["contents"]["value"]
    assert value.startswith("column `price`: double")
    assert "an A event (a) with price > 1" in value

    (lost,) = change(text.replace("pr", "price").replace("events.parquet", "evnts.parquet"), 6)
    assert "evnts.parquet: no such file\nhint: did you mean 'events.parquet'?" in lost["message"]
    write_deltalake(folder / "table", pq.read_table(folder / "events.parquet"))
    (pryce,) = change("-- events: delta:table\nSELECT * FROM S WHERE A AS a FILTER a[pryce > 1]", 8)
    assert pryce["message"].endswith("hint: did you mean 'price'?")
    (open_window,) = change("SELECT * FROM S WHERE A ; B", 9)
    assert shown(open_window)[3] == 2  # a warning
    editor.tell("textDocument/didClose", textDocument=document)
    assert editor.diagnostics() == []
    assert editor.close() == 0


def test_without_pygls_the_command_says_what_to_install(monkeypatch, capsys):
    from cer_gpu.cli import main

    monkeypatch.setitem(sys.modules, "pygls.lsp.server", None)
    monkeypatch.delitem(sys.modules, "cer_gpu.editing.server", raising=False)
    assert main(["lsp"]) == 1
    assert "hint: pip install 'cer-gpu[lsp]'" in capsys.readouterr().err
