"""``cer-gpu run --offset``: matches, and their numbers, are those after the first of each query."""

import json
from pathlib import Path

import pytest

import cer_gpu

QUERY = "SELECT * FROM S WHERE A ; B"


def rows_of(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


@pytest.mark.parametrize("output", ["positions", "rows"])
def test_a_run_writes_the_matches_after_the_first(cli, output):
    code, _, err = cli("run", QUERY, "events.parquet", "--output", output, "-o", "all.jsonl")
    assert code == 0, err
    every, options = rows_of("all.jsonl"), ["--output", output, "--offset", 2, "--limit", 3]
    code, out, err = cli("run", QUERY, "events.parquet", *options, "-o", "some.jsonl", "--json")
    assert code == 0, err
    expected = every[2:5] if output == "positions" else [row for row in every if 2 <= row["match"] < 5]
    assert rows_of("some.jsonl") == expected
    facts = json.loads(out)
    assert (facts["n_rows"], facts["n_matches"], facts["limit_reached"]) == (len(expected), 3, True)


def test_each_query_of_a_folder_has_its_own_offset(cli):
    Path("rules").mkdir()
    Path("rules/ab.ceql").write_text(QUERY)
    Path("rules/a.ceql").write_text("SELECT * FROM S WHERE A")
    code, out, _ = cli("run", "--queries", "rules", "events.parquet", "--offset", 1, "-o", "some.jsonl", "--json")
    numbers = {
        name: cer_gpu.compile(Path(f"rules/{name}.ceql").read_text()).count("events.parquet") for name in ("ab", "a")
    }
    assert code == 0
    assert {name: each["n_rows"] for name, each in json.loads(out)["queries"].items()} == {
        name: n - 1 for name, n in numbers.items()
    }


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["events.parquet", "--offset", 1, "--output", "count"], "the output 'count' does not list"),
        (["--follow", "folder", "--once", "-o", "out", "--offset", 1], "--offset cannot be used with --follow"),
        (["events.parquet", "--offset", -1], "--offset"),
    ],
)
def test_an_offset_that_can_mean_nothing_is_refused(cli, args, said):
    Path("folder").mkdir()
    code, _, err = cli("run", QUERY, *args)
    assert code in (1, 2)
    assert said in err
