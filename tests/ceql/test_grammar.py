"""The parser's tables, kept from one process to the next."""

import lark
import pytest

from cer_gpu.ceql import grammar

TEXT = "SELECT * FROM S WHERE A ; B+ AS b FILTER b[x > 3] WITHIN 3 SECONDS"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "cer-gpu" / "grammar"


def fresh():
    return grammar.tree_parser.__wrapped__()


def test_the_tables_are_made_once_and_loaded_then(folder, monkeypatch):
    made = fresh()
    assert len(list(folder.iterdir())) == 1
    monkeypatch.setattr(lark, "Lark", type("Loader", (), {"load": lark.Lark.load}))  # cannot make any
    loaded = fresh()
    assert loaded.parse(TEXT, start="query") == made.parse(TEXT, start="query")
    assert loaded.parse("b.x + 3", start="lone_expression") == made.parse("b.x + 3", start="lone_expression")


AS_WELL = pytest.mark.long("makes the tables of the grammar anew")


@pytest.mark.parametrize(
    "damage", [b"", *(pytest.param(each, marks=AS_WELL) for each in (b"\x80", b"cos\nno_such\n."))]
)
def test_a_damaged_file_is_passed_over(folder, damage):
    fresh()
    (kept,) = folder.iterdir()
    kept.write_bytes(damage)
    assert fresh().parse(TEXT, start="query").data == "query"


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(grammar, "own_folder", refuse)
    assert fresh().parse(TEXT, start="query").data == "query"
