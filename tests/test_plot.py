"""Pictures of complex events."""

import subprocess
import sys

import pyarrow as pa
import pytest

import cer_gpu

plot = pytest.importorskip("cer_gpu.plot")
matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

EVENTS = pa.table(
    {
        "type": ["A", "A", "B", "B"],
        "k": ["x", "y", "x", "y"],
        "ts": pa.array([0, 1000, 2000, 4000], pa.timestamp("ms")),
        "n": [0, 10, 20, 40],
        "day": pa.array([0, 1, 2, 4], pa.date32()),
        "since": pa.array([0, 10, 20, 40], pa.duration("s")),
    }
)
QUERY = "SELECT * FROM S WHERE A ; B PARTITION BY [k]"


@pytest.fixture(autouse=True)
def _closed():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def found(time_column=None, text=QUERY, **options):
    return cer_gpu.compile(text, time_column=time_column).evaluate(EVENTS, **options)


def lines(ax):
    return [[tuple(point) for point in path.vertices] for path in ax.collections[0].get_paths()]


def test_a_timeline_without_times_draws_positions():
    ax = plot.timeline(found())
    assert lines(ax) == [[(0, 0), (2, 0)], [(1, 1), (3, 1)]]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("position", "matches at a time")


def test_a_timeline_by_a_key_has_a_row_for_each_value():
    ax = plot.timeline(found("n").sort_by([("start", "descending")]), by="k", color="C3")
    assert lines(ax) == [[(10, 0), (40, 0)], [(0, 1), (20, 1)]]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["y", "x"]
    assert ax.get_xlabel() == "time"


def test_matches_that_overlap_are_above_one_another_and_rows_are_used_again():
    table = pa.table({"start": [0, 1, 3, 4, 9], "end": [2, 5, 3, 4, 9]})
    assert [points[0][1] for points in lines(plot.timeline(table))] == [0, 1, 0, 0, 0]


def test_of_many_keys_those_with_most_matches_have_a_row(monkeypatch):
    monkeypatch.setattr(plot, "MAX_LANES", 2)
    table = pa.table({"start": range(6), "end": range(6), "k": ["x", "y", "z", "z", "y", None]})
    ax = plot.timeline(table, by="k")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["y", "z"]
    assert [tuple(points[0]) for points in lines(ax)] == [(1, 0), (2, 1), (3, 1), (4, 0)]
    assert ax.get_title() == "the 2 of 4 with most matches"


@pytest.mark.parametrize("column", ["ts", "n", "day", "since"])
@pytest.mark.parametrize("output", ["positions", "bindings", "events"])
def test_every_kind_of_time_is_drawn(column, output):
    ax = plot.timeline(found(column, output=output))
    assert len(lines(ax)) == 2
    ax.figure.canvas.draw()


@pytest.mark.parametrize(
    ("column", "unit", "sums"),
    [
        (None, "positions", 4),
        ("ts", "seconds", 5),
        ("n", "units of the time column", 50),
        ("day", "days", 5),
        ("since", "seconds", 50),
    ],
)
def test_durations_are_in_the_unit_of_the_times(column, unit, sums):
    ax = plot.durations(found(column), bins=10)
    assert ax.get_xlabel() == f"duration ({unit})"
    assert sum(bar.get_height() for bar in ax.patches) == 2
    assert ax.dataLim.x0 + ax.dataLim.x1 == pytest.approx(sums)


def test_given_axes_are_drawn_on():
    import matplotlib.pyplot as plt

    _, ax = plt.subplots()
    assert plot.timeline(found(), ax) is ax
    assert plot.durations(found(), ax) is ax


def test_an_empty_table_is_drawn():
    plot.timeline(found(text="SELECT * FROM S WHERE B : A PARTITION BY [k]"))
    plot.durations(found(text="SELECT * FROM S WHERE B : A PARTITION BY [k]"))


def test_too_many_complex_events_are_thinned_evenly(monkeypatch):
    monkeypatch.setattr(plot, "MAX_LINES", 10)
    matches = cer_gpu.compile("SELECT * FROM S WHERE A").evaluate(pa.table({"type": ["A"] * 1000}))
    ax = plot.timeline(matches)
    drawn = lines(ax)
    assert (drawn[0][0], drawn[-1][0], len(drawn)) == ((0, 0), (999, 0), 10)
    assert ax.get_title() == "10 of 1,000 matches"


def test_tables_without_starts_or_the_given_column_are_refused():
    with pytest.raises(cer_gpu.OptionError, match=r"expected matches with a column 'start', got end, count"):
        plot.timeline(found(text="SELECT * FROM S WHERE A", output="count"))
    with pytest.raises(cer_gpu.OptionError, match=r"no column 'j'\nhint: the columns are start, end, positions, k"):
        plot.timeline(found(), by="j")


def test_a_missing_matplotlib_is_reported_with_the_install_command():
    code = """
import sys; sys.modules["matplotlib"] = None
import pyarrow as pa, cer_gpu, cer_gpu.plot
try:
    cer_gpu.plot.durations(pa.table({"start": [0], "end": [1]}))
except cer_gpu.CerError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "pictures need Matplotlib\nhint: pip install 'cer-gpu[plot]', or pip install matplotlib\n"
