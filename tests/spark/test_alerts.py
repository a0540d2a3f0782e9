"""Alerts of a folder of rules on Spark are those of one process."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cer_gpu
from cer_gpu.rules import Rule, compile_rules
from spark_glue import match, match_stage
from spark_glue.cli import main

EVENTS = pa.table(
    {
        "type": ["A", "B", "A", "C", "B", "A"] * 20,
        "user": ["ann", "ann", "bob", None, "bob", "ann"] * 20,
        "ts": pa.array(range(0, 120_000_000, 1_000_000), pa.timestamp("us")),
    }
)
RULES = {
    "pair": Rule("pair", "SELECT * FROM S WHERE A ; B PARTITION BY [user] WITHIN 3 SECONDS", level="high", tags=("t",)),
    "c": Rule("c", "SELECT * FROM S WHERE C WITHIN 3 SECONDS", id="1", techniques=("T1", "T2")),
}
BOB = """
title: Anything by Bob
level: low
logsource: {product: any}
detection:
  bob: {User: BOB}
  condition: bob
"""


def rows(table):
    """Return alerts as texts, sorted, with keys as pairs and events as JSON."""
    return sorted(
        json.dumps({**row, "key": sorted(row["key"]), "events": json.loads(row["events"])}, default=str)
        for row in table.to_pylist()
    )


@pytest.fixture
def rules():
    return compile_rules(RULES, time_column="ts")


def test_the_bare_stage_gives_alerts(rules):
    stage = match_stage(rules, output="alerts")
    found = pa.Table.from_batches(stage(iter(EVENTS.to_batches(max_chunksize=17))))
    assert rows(found) == rows(rules.alerts(EVENTS))


def test_rules_with_measures_are_refused_by_name():
    rules = compile_rules({"m": Rule("m", "SELECT COUNT(a) AS n FROM S WHERE A+ AS a WITHIN 2 EVENTS")})
    with pytest.raises(cer_gpu.OptionError, match="query 'm': alerts with measures"):
        match_stage(rules, output="alerts")


@pytest.mark.parametrize("source", ["files", "rows"])
def test_a_job_gives_alerts(spark, tmp_path, rules, source):
    pq.write_table(EVENTS, tmp_path / "events.parquet", row_group_size=30)
    df = spark.read.parquet(str(tmp_path / "events.parquet"))
    found = match(df, rules, order_by="ts", output="alerts", source=source, tasks=3).toArrow()
    assert rows(found) == rows(rules.alerts(EVENTS))


def test_the_command_writes_alerts_of_a_folder_whose_rules_have_levels(spark, tmp_path, capsys):
    pytest.importorskip("sigma.rule")
    pq.write_table(EVENTS, tmp_path / "events.parquet")
    (tmp_path / "rules").mkdir()
    for name, rule in RULES.items():
        text = f"[rule]\nname = '{name}'\nlanguage = 'ceql'\nseverity = 'high'\nquery = '''{rule.text}'''\n"
        (tmp_path / "rules" / f"{name}.toml").write_text(text)
    (tmp_path / "rules" / "bob.yml").write_text(BOB)
    asked = ["run", "--queries", str(tmp_path / "rules"), "--input", str(tmp_path / "events.parquet")]
    asked += ["--columns", "User=user"]
    assert main([*asked, "--order-by", "ts", "-o", str(tmp_path / "out")]) == 0, capsys.readouterr().err
    found = pq.read_table(tmp_path / "out")
    of_ceql = compile_rules(RULES, time_column="ts").alerts(EVENTS).num_rows
    assert found.num_rows == of_ceql + EVENTS["user"].to_pylist().count("bob")
    said = capsys.readouterr().err
    assert f"{found.num_rows} alerts, " in said
    assert "note: 3 rules: 2 CEQL, 1 Sigma" in said
    assert set(found["level"].to_pylist()) == {"high", "low"}
