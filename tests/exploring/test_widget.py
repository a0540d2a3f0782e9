"""The widget: the protocol of a session over the messages of a kernel."""

import queue
import sys

import pyarrow as pa
import pytest

import cer_gpu

EVENTS = pa.table({"type": ["A", "B", "A", "B"], "x": [1, 2, 3, 4]})


def test_a_widget_evaluates_what_its_page_sends(monkeypatch, tmp_path):
    (tmp_path / "first.ceql").write_text("SELECT * FROM S WHERE A : B")
    messages = queue.Queue()
    widget = cer_gpu.explore(EVENTS, query="SELECT * FROM S WHERE A", rules=tmp_path)
    monkeypatch.setattr(widget._session, "_transport", messages.put)

    def until(kind):
        while (message := messages.get(timeout=60))["kind"] != kind:
            pass
        return message

    assert "export default" in widget._esm
    widget._handle_custom_msg({"kind": "hello"}, [])
    hello = until("hello")
    assert hello["query"] == "SELECT * FROM S WHERE A"
    assert [rule["name"] for rule in hello["rules"]] == ["first"]
    widget._handle_custom_msg({"kind": "text", "id": 1, "text": "SELECT * FROM S WHERE A ; B"}, [])
    assert until("page")["page"]["n_matches"] == 3
    widget._handle_custom_msg({"kind": "rules", "id": 2}, [])
    assert until("rules")["counts"] == {"first": 2}
    widget.close()


def test_without_anywidget_the_error_has_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "cer_gpu.exploring.widget", raising=False)
    with pytest.raises(cer_gpu.CerError, match=r"cer-gpu\[explore\]"):
        cer_gpu.explore(EVENTS)


def test_without_starlette_the_command_has_the_install_command(monkeypatch, capsys):
    from cer_gpu.cli import main

    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    monkeypatch.delitem(sys.modules, "cer_gpu.exploring.app", raising=False)
    assert main(["explore", "events.parquet"]) == 1
    assert "cer-gpu[explore]" in capsys.readouterr().err
