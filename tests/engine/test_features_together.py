"""What asks of the past, of each step and of silence, together: absences counted back as tests of a step."""

import random

import pyarrow as pa
import pytest

import cer_gpu

LENGTH = 5
FORMULAS = [  # with an absence counted back, and with a column in its place
    (
        f"!(D) FOR {LENGTH} SECONDS ; A AS a ; B AS b ; !C ; A AS c",
        "A AS a ; B AS b ; !C ; A AS c FILTER a[clear = TRUE]",
    ),
    (f"A ; (!(D) FOR {LENGTH} SECONDS ; B{{2}}) ; C", "A ; B AS b ; B ; C FILTER b[clear = TRUE]"),
]


def stream(rng, keyed):
    types, keys = rng.choices("ABCD", k=60), rng.choices(range(2), k=60)
    times = sorted(rng.choices(range(90), k=60))
    before = [[j for j in range(i) if not keyed or keys[i] == keys[j]] for i in range(60)]
    clear = [not any(types[j] == "D" and times[i] - times[j] <= LENGTH for j in before[i]) for i in range(60)]
    return pa.table({"type": types, "k": keys, "ts": times, "clear": clear})


@pytest.mark.parametrize("which", ["FIRST", "LAST"])
def test_one_filter_reads_each_event_of_a_variable_and_the_last(which):
    events = pa.table({"type": list("BBBA"), "x": [1, 2, 1, 2]})
    found = cer_gpu.compile(f"SELECT * FROM S WHERE B{{2}} AS a ; A AS b FILTER b.x + {which}(a).x > a.x + 1").evaluate(
        events
    )
    wanted = {"FIRST": [[0, 2, 3], [1, 2, 3]], "LAST": [[0, 1, 3], [0, 2, 3]]}[which]
    assert sorted(found["positions"].to_pylist()) == wanted


@pytest.mark.parametrize(("absence", "column"), FORMULAS)
@pytest.mark.parametrize(("strategy", "output"), [("RECENT", "positions"), ("ALL", "funnel")])
@pytest.mark.parametrize("keyed", [False, True])
def test_an_absence_counted_back_is_a_test_of_its_step(absence, column, strategy, output, keyed):
    rng, n_found = random.Random(f"{absence} {strategy} {keyed}"), 0
    for _ in range(6):
        events = stream(rng, keyed)
        keys = " PARTITION BY [k]" if keyed else ""
        one, other = (
            cer_gpu.compile(
                f"SELECT {strategy} * FROM S WHERE {formula}{keys} WITHIN 30 SECONDS", time_column="ts", time_unit="s"
            )
            .evaluate(events, output=output)
            .to_pylist()
            for formula in (absence, column)
        )
        assert one == other
        n_found += len(one)
    assert n_found


@pytest.mark.long("compiles loops for clocks of floats")
def test_clocks_may_be_negative_floats():
    events = pa.table({"type": list("AABAB"), "n": [-9.0, -8.0, -7.5, -2.0, -1.0]})
    progress = cer_gpu.compile("SELECT * FROM S WHERE A ; B WITHIN 2 [n]").evaluate(events, output="funnel")
    assert progress["positions"].to_pylist() == [[0, 2], [1, 2], [3, 4]]
    limited = cer_gpu.compile("SELECT * FROM S WHERE A LIMIT 1 EVERY 2 [n]").evaluate(events)
    assert limited["end"].to_pylist() == [0, 3]
    recent = cer_gpu.compile("SELECT RECENT * FROM S WHERE A ; B WITHIN 2 [n]").evaluate(events)
    assert recent["positions"].to_pylist() == [[1, 2], [3, 4]]
    counted = cer_gpu.compile("SELECT * FROM S WHERE A FILTER A[COUNT(A) OVER 2 [n] = 2]").evaluate(events)
    assert counted["end"].to_pylist() == [1]
