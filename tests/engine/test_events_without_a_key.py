"""Events whose key of PARTITION BY is NULL: in no match, and counted in a note."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from sizes import seeds

import cer_gpu

KINDS, USERS = "ABX", [None, "u", "v"]


def events(seed: int, n: int = 200) -> pa.Table:
    rng = random.Random(seed)
    return pa.table(
        {
            "type": [rng.choice(KINDS) for _ in range(n)],
            "user": pa.array([rng.choice(USERS) for _ in range(n)], pa.string()),
            "account": pa.array([rng.choice([None, None, "u"]) for _ in range(n)], pa.string()),
            "ts": pa.array(range(n), pa.timestamp("s")),
        }
    )


def note_of(query, table: pa.Table, **options) -> int:
    """Return the number of events in the note; 0: there is none."""
    evaluator = query.evaluator(**options)
    for batch in table.to_batches(max_chunksize=37):
        evaluator.push(batch)
    evaluator.finish()
    notes = [note for note in evaluator.notes if "no key" in note]
    return int(notes[0].split()[0].replace(",", "")) if notes else 0


@pytest.mark.parametrize("seed", seeds(8))
@pytest.mark.parametrize("clause", ["[user]", "[user, account]", "[user], [account]"])
def test_the_note_counts_the_events_that_the_query_could_use(seed, clause):
    query = cer_gpu.compile(f"SELECT * WHERE A ; B PARTITION BY {clause} WITHIN 20 SECONDS", time_column="ts")
    table = events(seed)
    rows = [row for row in table.to_pylist() if row["type"] in "AB"]
    missing = {
        "[user]": lambda row: row["user"] is None,
        "[user, account]": lambda row: row["user"] is None and row["account"] is None,
        "[user], [account]": lambda row: row["user"] is None or row["account"] is None,
    }[clause]
    assert note_of(query, table) == sum(map(missing, rows))


def test_threads_and_the_command_line_count_the_same(tmp_path, capsys):
    import pyarrow.parquet as pq

    from cer_gpu.cli.group import main

    table = pa.concat_tables([events(1, 3000).set_column(3, "ts", pa.array(range(3000), pa.timestamp("s")))])
    pq.write_table(table, tmp_path / "e.parquet", row_group_size=500)
    n = sum(row["user"] is None for row in table.to_pylist() if row["type"] in "AB")
    for within in ("WITHIN 20 SECONDS", "WITHIN 5 EVENTS"):
        for threads in "12":
            query = f"SELECT * WHERE A ; B PARTITION BY [user] {within}"
            run = ["run", query, str(tmp_path / "e.parquet"), "--time-column", "ts", "--threads", threads]
            assert main([*run, "--no-progress"]) == 0
            assert (
                f"note: {n:,} events of the pattern have no key (NULL in user), and are in no match"
                in capsys.readouterr().err
            )


def test_events_with_keys_have_no_note():
    query = cer_gpu.compile("SELECT * WHERE A ; B PARTITION BY [user]")
    table = events(2).filter(pa.compute.field("user").is_valid())
    assert note_of(query, table) == 0


def test_a_note_about_one_event_is_in_the_singular():
    evaluator = cer_gpu.compile("SELECT * WHERE A ; B PARTITION BY [user]").evaluator()
    evaluator.push(pa.record_batch({"type": ["A", "A", "B"], "user": ["ann", None, "ann"]}))
    evaluator.finish()
    assert evaluator.notes == ["1 event of the pattern has no key (NULL in user), and is in no match"]
