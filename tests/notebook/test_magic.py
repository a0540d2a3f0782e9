"""The cell magic %%ceql in IPython's shell: tables, pictures, variables, and errors without a traceback."""

import gc

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

import cer_gpu.polars  # also where a test has imported cer_gpu before Polars
from cer_gpu.notebook import magic

QUERY = "SELECT * FROM S WHERE A AS a ; B AS b FILTER a[x < 3] WITHIN 10 [x]"
EVENTS = pl.DataFrame({"type": ["A", "A", "B", "C"], "x": [1, 2, 3, 4], "k": ["<u>", "v", "<u>", "v"]})


@pytest.fixture(scope="module")
def loaded():
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "cer_gpu")
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture
def shell(loaded, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(gc, "collect", lambda *generation: 0)  # it would pass over the objects of all tests
        loaded.reset(new_session=True)
    loaded.user_ns["events"] = EVENTS
    return loaded


def run(shell, line, cell=QUERY):
    done = shell.run_cell(f"%%ceql {line}\n{cell}", store_history=False)
    assert done.success
    return done.result


def test_a_cell_shows_a_table_the_number_of_complex_events_and_a_timeline(shell):
    found = run(shell, "events --rows 1")
    html = found._repr_html_()
    assert "<th>start</th><th>end</th><th>positions</th>" in html
    assert "<td>1</td><td>2</td><td>1 2</td>" in html
    assert "the first 1 of 2 matches" in html
    assert 'src="data:image/png;base64,' in html
    assert "the first 1 of 2 matches" in repr(found)
    assert found.result.equals(EVENTS.cer.match(QUERY))


def test_the_result_is_a_variable_of_the_kind_of_the_events(shell, tmp_path):
    path = tmp_path / "events.parquet"
    EVENTS.write_parquet(path)
    shell.user_ns |= {"lazy": EVENTS.lazy(), "frame": EVENTS.to_pandas(), "batches": EVENTS.to_arrow().to_batches()}
    kinds = {"events": pl.DataFrame, "lazy": pl.LazyFrame, "frame": pd.DataFrame, "batches": pa.Table, path: pa.Table}
    for name, kind in kinds.items():
        run(shell, f"{name} --output events --limit 1 -o found")
        assert isinstance(shell.user_ns["found"], kind)
    assert shell.user_ns["found"]["events"].to_pylist()[0][1]["k"] == "<u>"


def test_events_are_escaped_and_one_on_a_line(shell):
    html = run(shell, "events --output events")._repr_html_()
    assert "type: A, x: 1, k: &lt;u&gt;<br>type: B, x: 3, k: &lt;u&gt;" in html


def test_options_are_those_of_the_command_line(shell):
    shell.user_ns["events"] = EVENTS.rename({"type": "kind"}).sort("x", descending=True)
    text = QUERY.replace("WITHIN 10 [x]", "PARTITION BY [k] WITHIN 10 SECONDS")
    found = run(shell, "events --type-column kind --time-column x --time-unit s --sort --output count", text)
    assert repr(found).endswith("1 match at 1 position")
    assert "data:image" not in found._repr_html_()
    everything = "SELECT * FROM S WHERE S AS a FILTER a[x > 3]"
    assert repr(run(shell, "events --no-type-column", everything)).endswith("1 match")


def test_quotes_and_options_for_files_are_those_of_a_shell(shell, tmp_path):
    shell.user_ns["events"] = EVENTS.rename({"type": "event name"})
    assert repr(run(shell, "events --type-column 'event name'")).endswith("2 matches")
    assert repr(run(shell, 'events --type-column "event name"')).endswith("2 matches")
    path = tmp_path / "my events.csv"
    path.write_text("type;ts;n\nB;01.03.2024 05:00;2\nA;01.03.2024 05:00;1\n")
    line = f"'{path}' --time-column ts --time-format 'ts=%d.%m.%Y %H:%M' --sort ts,n --undecided hold"
    assert repr(run(shell, line, "SELECT * WHERE A ; B")).endswith("1 match")


def test_a_limit_of_no_results_is_one(shell):
    assert repr(run(shell, "events --limit 0")) == "no matches"


def test_globs_and_addresses_name_files(shell, tmp_path):
    EVENTS.write_parquet(tmp_path / "events.parquet")
    for name in (tmp_path / "*.parquet", (tmp_path / "events.parquet").as_uri()):
        assert repr(run(shell, name)).endswith("2 matches")


def test_sql_and_nothing_found_are_shown_as_well(shell):
    statement = "SELECT * FROM t MATCH_RECOGNIZE (MEASURES LAST(x) AS last PATTERN (A+) DEFINE A AS x < 3)"
    found = run(shell, "events", statement)
    assert "<th>last</th>" in found._repr_html_()
    assert repr(found).endswith("1 row")
    found = run(shell, "events", "SELECT * FROM S WHERE B ; A")
    assert repr(found) == "no matches"
    assert found._repr_html_() == "<div><p>no matches</p></div>"


def test_a_cell_may_be_eql(shell):
    shell.user_ns["events"] = EVENTS.with_columns(pl.from_epoch("x").alias("@timestamp")).rename(
        {"type": "event.category", "k": "user.name"}
    )
    assert repr(run(shell, "events", 'A where user.name : "V"')).endswith("1 match")
    found = run(shell, "events --missing-fields null --language eql --selection all", "A where no.such == null")
    assert repr(found).endswith("2 matches")


def test_without_matplotlib_there_is_no_picture(shell, monkeypatch):
    monkeypatch.setattr(magic, "find_spec", lambda name: None)
    assert "<img" not in run(shell, "events")._repr_html_()


@pytest.mark.parametrize(
    ("line", "cell", "told"),
    [
        ("events", "SELECT * FROM S\nWHERE A ;; B", ["line 2: WHERE A ;; B\n", "                   ^"]),
        ("events", "SELECT * FROM S WHERE A FILTER A[z > 1]", ["no column 'z'", "^", "hint: columns: type, x, k"]),
        ("evens", QUERY, ["'evens' is neither a variable nor a file\nhint: did you mean 'events'?"]),
        ("nowhere/a.csv", QUERY, ["nowhere/a.csv: no such file\nhint: no folder nowhere"]),
        ("events --output evnts", QUERY, ["got 'evnts'\nhint: did you mean 'events'?"]),
        ("events -o 1", QUERY, ["-o: expected the name of a variable, got '1'"]),
        ("events --limit x", QUERY, ["argument --limit: invalid int value"]),
        ("", QUERY, ["the following arguments are required: events"]),
        ("number", QUERY, ["got int"]),
        ("events --type-column 'event name", QUERY, ["No closing quotation: quote arguments as in a shell"]),
        ("events --empty-is-text", QUERY, ["apply to files, and the events are in a variable"]),
    ],
)
def test_errors_are_told_without_a_traceback(shell, capsys, line, cell, told):
    shell.user_ns["number"] = 5
    done = shell.run_cell(f"%%ceql {line}\n{cell}")
    assert not done.success
    err = capsys.readouterr()
    for text in told:
        assert text in err.err
    assert "Traceback" not in err.err + err.out


def test_all_errors_of_a_cell_are_told_at_once(shell, capsys):
    shell.run_cell("%%ceql events\nSELECT * FROM S WHERE A AS a\nFILTER a[z > 1] AND b[x > 1]")
    err = capsys.readouterr().err
    assert err.index("no column 'z'") < err.index("FILTER names 'b'")
    assert err.count("line 2: FILTER a[z > 1] AND b[x > 1]\n") == err.count("^") == 2


def test_a_cell_is_explained_in_place_of_its_evaluation(shell):
    found = run(shell, "events --explain")
    assert "an A event (a) with x < 3" in str(found) == shell.display_formatter.format(found)[0]["text/plain"]
    assert found.to_dict()["events"]["n"] == 4


def offered(shell, cell):
    """The completions at the sign | of a cell."""
    before, _, after = f"%%ceql {cell}".partition("|")
    with provisionalcompleter():
        return [each.text for each in shell.Completer.completions(before + after, len(before))]


@pytest.mark.long("asks the completer of IPython many times")
def test_cells_complete_words_variables_and_the_columns_of_their_events(shell):
    shell.user_ns["points"] = pa.table({"type": ["A"], "st": [{"left": 1, "right": 2}], "odd name": [1]})
    assert offered(shell, "events\nSELECT * FROM S\nWHERE A AS a FIL|") == ["FILTER"]
    assert offered(shell, "events\nSELECT * FROM S WHERE A AS a\nFILTER a[|")[:3] == ["type", "x", "k"]
    assert offered(shell, "events\nSELECT * FROM S WHERE A AS ab FILTER a|")[:3] == ["ab", "A", "abs"]
    assert offered(shell, "points\nSELECT * FROM S WHERE A AS a FILTER a.st.|") == ["left", "right"]
    assert offered(shell, "points\nSELECT * FROM S WHERE A FILTER A[o|") == ["`odd name`"]
    assert offered(shell, "nothing\nSELECT * FROM S W|") == ["WHERE"]
    assert offered(shell, "events -o\nSELECT * FROM S W|") == []


def test_the_extension_is_not_among_the_public_names():
    assert "load_ipython_extension" not in dir(cer_gpu)
