"""Draw the results that are kept, as in papers/002 (figures 7 to 9): bars and lines over a logarithmic axis.

    python benchmarks/pictures.py [benchmarks/results/MACHINE.json]

writes ``benchmarks/results/MACHINE-*.svg``; the same results give the same bytes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from report import RESULTS, Results, Row, machine

RATE = "million events/s"
COLOURS = ("#1f4e79", "#c55a11", "#548235", "#7f6000", "#7030a0", "#808080")
MARKS = "osD^v*"
LOOK = {
    "svg.hashsalt": "cer_gpu",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "legend.fontsize": 10,
}


def series(
    rows: list[Row], x: str, rate: str = RATE, name: str = "workload"
) -> dict[str, tuple[list[float], list[float]]]:
    """Return what to draw: for each name the values of one column and those of a rate."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        if x in row and row.get(rate):
            xs, ys = found.setdefault(str(row[name]), ([], []))
            xs.append(float(str(row[x])))
            ys.append(float(str(row[rate])))
    return found


def lines(axes: Any, found: dict[str, tuple[list[float], list[float]]], label: str) -> None:
    """Draw a line for each series, both axes logarithmic."""
    for (name, (xs, ys)), colour, mark in zip(found.items(), COLOURS, MARKS, strict=False):
        axes.plot(xs, ys, color=colour, marker=mark, markersize=5, linewidth=1.6, label=name)
    axes.set(xscale="log", yscale="log", xlabel=label)
    axes.legend()


def bars(axes: Any, found: dict[str, tuple[list[float], list[float]]], label: str) -> None:
    """Draw a group of bars for each value, one for each series; the axis of rates is logarithmic."""
    values = sorted({x for xs, _ in found.values() for x in xs})
    width = 0.8 / max(len(found), 1)
    for k, ((name, (xs, ys)), colour) in enumerate(zip(found.items(), COLOURS, strict=False)):
        at = [values.index(x) + (k - (len(found) - 1) / 2) * width for x in xs]
        axes.bar(at, ys, width * 0.95, color=colour, label=name)
    axes.set(yscale="log", xlabel=label)
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    axes.legend(loc="lower right", framealpha=0.9, frameon=True, edgecolor="none")


def named_bars(axes: Any, rows: list[Row], title: str) -> None:
    """Draw a bar for each workload."""
    axes.bar([str(row["workload"]) for row in rows], [float(str(row[RATE])) for row in rows], 0.7, color=COLOURS[0])
    axes.set(yscale="log", title=title)
    axes.tick_params(axis="x", rotation=45 if len(rows) > 4 else 0)


def _sequences(results: Results, axes: Any) -> None:
    bars(axes, series(results["Sequences"], "n"), "n, types in the sequence (WITHIN 100 EVENTS)")


def _windows(results: Results, axes: Any) -> None:
    lines(axes, series(results["Windows without output"], "window"), "window, events")


def _partitions(results: Results, axes: Any) -> None:
    lines(axes, series(results["Partitions"], "keys"), "keys")


def _relevant(results: Results, axes: Any) -> None:
    lines(axes, series(results["Share of relevant events"], "relevant, %"), "relevant events, % of all")
    axes.invert_xaxis()


def _peers(question: str) -> Callable[[Results, Any], None]:
    def one(results: Results, axes: Any) -> None:
        rows = [row for row in results["Against peers"] if row["workload"] == question and row["n"] == 3]
        ours = {str(row["window"]): {**row, "peer": "cer_gpu, one thread"} for row in rows}
        found = series(list(ours.values()), "window", "cer_gpu, million events/s", "peer")
        lines(axes, found | series(rows, "window", "peer, million events/s", "peer"), "window, events")
        axes.set_title(question)

    return one


def _of(
    family: str, title: str, keep: Callable[[str], bool], short: Callable[[str], str] = str
) -> Callable[[Results, Any], None]:
    def one(results: Results, axes: Any) -> None:
        rows = [
            row | {"workload": short(str(row["workload"]))} for row in results[family] if keep(str(row["workload"]))
        ]
        named_bars(axes, rows, title)

    return one


PICTURES: dict[str, tuple[list[str], list[Callable[[Results, Any], None]]]] = {
    "sequences": (["Sequences"], [_sequences]),
    "windows": (["Windows without output"], [_windows]),
    "peers": (["Against peers"], [_peers("count all"), _peers("list a few"), _peers("no output")]),
    "queries": (
        ["Selection strategies", "Iteration and disjunction", "Stock market"],
        [
            _of(
                "Selection strategies",
                "strategies, no output",
                lambda n: n.endswith(", no output"),
                lambda n: n.split(",")[0],
            ),
            _of("Iteration and disjunction", "iteration, disjunction", lambda n: "," not in n),
            _of("Stock market", "stock market", lambda n: True),
        ],
    ),
    "partitions": (["Partitions"], [_partitions]),
    "relevant": (["Share of relevant events"], [_relevant]),
}
"""For each picture: the families that it needs, and what draws its panels."""


def draw(kept: Path) -> Iterator[Path]:
    """Draw what the results in a file have figures for, and yield the pictures."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    results: Results = json.loads(kept.read_text(encoding="utf-8"))["results"]
    for name, (needed, panels) in PICTURES.items():
        if not all(results.get(title) for title in needed):
            continue
        with mpl.rc_context(LOOK):
            figure = Figure(figsize=(6.4, 3.8) if len(panels) == 1 else (4.4 * len(panels), 3.8), layout="constrained")
            all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
            for panel, axes in zip(panels, all_axes, strict=True):
                panel(results, axes)
            all_axes[0].set_ylabel(RATE)
            target = kept.with_name(f"{kept.stem}-{name}.svg")
            figure.savefig(target, metadata={"Date": None, "Creator": None})
        yield target


def main(arguments: list[str]) -> int:
    """Draw the results of one file."""
    for picture in draw(Path(arguments[0]) if arguments else RESULTS / f"{machine()}.json"):
        print(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
