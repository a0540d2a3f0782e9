"""``cer-gpu check`` warns of what is hardly meant so."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

WRONG = "SELECT a FROM S WHERE A AS a ; B AS b FILTER a[x > 5 AND x < 3]"


def test_warnings_stand_before_the_outcome(cli):
    code, out, err = cli("check", WRONG)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line for line in lines if set(line) - set(" ^")] == [
        "warning: no window: the events of this pattern may be any distance apart, "
        "and partial matches are kept until the input ends",
        "  " + WRONG,
        "hint: add WITHIN, such as WITHIN 10 MINUTES or WITHIN 1000 EVENTS",
        "warning: variable 'b' is not used: neither SELECT nor a filter reads it",
        "  " + WRONG,
        "hint: drop AS, or select it",
        "warning: no event satisfies this: no value of 'x' satisfies all of its conditions",
        "  " + WRONG,
        "ok: the query has no errors",
    ]
    marked = [WRONG[line.index("^") - 2 : line.rindex("^") - 1] for line in lines if set(line) == set(" ^")]
    assert marked == ["A AS a ; B AS b", "b", "x > 5 AND x < 3"]


def test_strict(cli):
    code, _, err = cli("check", WRONG, "--strict")
    assert (code, err) == (1, "3 warnings\n")
    assert cli("check", "SELECT * FROM S WHERE A", "--strict")[0] == 0


def test_warnings_of_rules_name_their_files(cli):
    Path("rules").mkdir()
    Path("rules/a.ceql").write_text("SELECT *\nFROM S WHERE A ; B")
    Path("rules/b.ceql").write_text("SELECT * FROM S WHERE A")
    code, out, _ = cli("check", "--queries", "rules")
    assert code == 0
    assert out.startswith("warning: rules/a.ceql: no window")
    assert "line 2: FROM S WHERE A ; B" in out


def test_json(cli):
    code, out, _ = cli("check", WRONG, "--json")
    facts = json.loads(out)
    assert (code, facts["ok"]) == (0, True)
    assert [each["kind"] for each in facts["warnings"]] == ["no window", "unused variable", "never"]
    last = facts["warnings"][-1]
    assert (last["line"], last["column"], WRONG[last["start"] : last["end"]]) == (1, 48, "x > 5 AND x < 3")
    code, out, _ = cli("check", WRONG, "--json", "--strict")
    assert (code, json.loads(out)["ok"]) == (1, False)


def test_types_that_the_events_cannot_have(cli):
    query = "SELECT * FROM S WHERE A : ZEBRA"
    code, out, _ = cli("check", query, "events.parquet")
    assert code == 0
    assert "warning: no event has the type 'ZEBRA': those in type range from 'A' to " in out
    pq.write_table(pa.table({"type": ["ZEBRA"]}), "more.parquet")
    Path("both").mkdir()
    Path("both/a.parquet").write_bytes(Path("events.parquet").read_bytes())
    Path("both/b.parquet").write_bytes(Path("more.parquet").read_bytes())
    _, out, _ = cli("check", query, "both")
    assert "warning" not in out


def test_values_that_a_column_cannot_have(cli):
    pq.write_table(pa.table({"type": ["A"], "n": pa.array([1], pa.int8())}), "small.parquet")
    _, out, _ = cli("check", "SELECT * FROM S WHERE A AS a FILTER a[n = 300]", "small.parquet")
    assert "warning: no event satisfies this: no value of 'n' satisfies all of its conditions" in out
