"""Draw stored results as in papers/002 (figures 7 to 9): bars and lines over a logarithmic axis.

    python benchmarks/pictures.py [benchmarks/results/MACHINE.json]

writes ``benchmarks/results/MACHINE-*.svg``; the same results give the same bytes.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from report import RESULTS, Results, Row, machine

RATE = "million events/s"
OURS = "cer_gpu, million events/s"
THEIRS = "peer, million events/s"
COLOURS = ("#1f4e79", "#c55a11", "#548235", "#bf9000", "#7030a0", "#7f7f7f", "#00a0a0")
MARKS = "osD^v*P"
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
    "axes.titlesize": 11,
    "grid.color": "#dddddd",
    "legend.frameon": False,
}
Curves = dict[str, tuple[list[float], list[float]]]


def curves(rows: list[Row], x: str, rate: str = RATE, name: str = "workload") -> Curves:
    """Return, for each name, the values of one column and those of a rate."""
    found: Curves = {}
    for row in rows:
        if x in row and row.get(rate):
            xs, ys = found.setdefault(str(row[name]), ([], []))
            xs.append(float(str(row[x])))
            ys.append(float(str(row[rate])))
    return found


@dataclass(frozen=True)
class Panel:
    """Curves over the values of an axis, drawn as lines or as groups of bars; or bars with a name each."""

    found: Curves
    axis: str = ""
    title: str = ""
    style: str = "lines"

    def draw(self, axes: Any, style: dict[str, tuple[str, str]]) -> None:
        """Draw the panel; a name has the same colour and mark in all panels of a picture."""
        values = sorted({x for xs, _ in self.found.values() for x in xs})
        width = 0.8 / max(len(self.found), 1)
        for k, (name, (xs, ys)) in enumerate(self.found.items()):
            colour, mark = style[name]
            if self.style == "lines":
                axes.plot(xs, ys, color=colour, marker=mark, markersize=5, linewidth=1.6, label=name)
            elif self.style == "groups":
                at = [values.index(x) + (k - (len(self.found) - 1) / 2) * width for x in xs]
                axes.bar(at, ys, width * 0.92, color=colour, label=name)
            else:
                axes.bar([name], ys, 0.7, color=COLOURS[0])
        axes.set(yscale="log", xlabel=self.axis, title=self.title)
        if self.style == "lines":
            axes.set_xscale("log")
            axes.set_xticks(values, [f"{value:,.10g}" for value in values])
        elif self.style == "groups":
            axes.set_xticks(range(len(values)), [f"{value:,.10g}" for value in values])


def _one(family: str, x: str, axis: str, style: str, results: Results) -> list[Panel]:
    return [Panel(curves(results[family], x), axis, style=style)]


def _peers(results: Results) -> list[Panel]:
    found = []
    for question in ("count all", "list a few", "no output"):
        rows = [row for row in results["Against peers"] if row["workload"] == question and row["n"] == 3]
        ours = {str(row["window"]): {**row, "peer": "cer_gpu, one thread"} for row in rows}
        both = curves(list(ours.values()), "window", OURS, "peer") | curves(rows, "window", THEIRS, "peer")
        found += [Panel(both, "window, events", question)] if both else []
    return found


def _queries(results: Results) -> list[Panel]:
    found = []
    for family, title, axis in (
        ("Selection strategies", "no output", "selection strategy"),
        ("Iteration and disjunction", "iteration and disjunction", "query"),
        ("Stock market", "stock market", "query"),
    ):
        names = {str(row["workload"]): float(str(row[RATE])) for row in results[family]}
        if family == "Selection strategies":
            names = {name.removesuffix(", no output"): rate for name, rate in names.items() if ", no" in name}
        shown = {name: ([0.0], [rate]) for name, rate in names.items() if "," not in name}
        found.append(Panel(shown, axis, title, "names"))
    return found


PICTURES: dict[str, tuple[tuple[str, ...], Callable[[Results], list[Panel]]]] = {
    "sequences": (
        ("Sequences",),
        partial(_one, "Sequences", "n", "n, types in the sequence (WITHIN 100 EVENTS)", "groups"),
    ),
    "windows": (
        ("Windows without output",),
        partial(_one, "Windows without output", "window", "window, events", "lines"),
    ),
    "peers": (("Against peers",), _peers),
    "queries": (("Selection strategies", "Iteration and disjunction", "Stock market"), _queries),
    "partitions": (("Partitions",), partial(_one, "Partitions", "keys", "keys", "lines")),
    "relevant": (
        ("Share of relevant events",),
        partial(_one, "Share of relevant events", "relevant, %", "relevant events, % of all", "lines"),
    ),
}
"""Families that each picture needs, and its panels."""


def picture(panels: list[Panel]) -> Any:
    """Return a figure of panels side by side, with one axis of rates over whole powers of ten, and one legend."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    figure = Figure(figsize=(6.4, 4) if len(panels) == 1 else (4 * len(panels), 4), layout="constrained")
    names = list(dict.fromkeys(name for panel in panels for name in panel.found))
    style = {name: (COLOURS[k % len(COLOURS)], MARKS[k % len(MARKS)]) for k, name in enumerate(names)}
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    rates = [rate for panel in panels for _, ys in panel.found.values() for rate in ys]
    low, high = min(math.floor(math.log10(min(rates))), 0), math.floor(math.log10(max(rates))) + 1
    for panel, axes in zip(panels, all_axes, strict=True):
        panel.draw(axes, style)
        axes.set_ylim(10.0**low, 10.0**high)
        axes.yaxis.set_major_locator(FixedLocator([10.0**k for k in range(low, high + 1)]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:,.10g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_locator(NullLocator())
    all_axes[0].set_ylabel(RATE)
    labelled = {label: mark for axes in all_axes for mark, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if len(labelled) > 1:
        columns = 2 if len(panels) == 1 else 4
        figure.legend(labelled.values(), labelled.keys(), loc="outside upper center", ncols=columns)
    return figure


def draw(kept: Path) -> Iterator[Path]:
    """Draw the pictures for which the results in a file have figures, and yield them."""
    import matplotlib as mpl

    results: Results = json.loads(kept.read_text(encoding="utf-8"))["results"]
    for name, (needed, panels) in PICTURES.items():
        if all(results.get(title) for title in needed):
            target = kept.with_name(f"{kept.stem}-{name}.svg")
            with mpl.rc_context(LOOK):
                picture(panels(results)).savefig(target, metadata={"Date": None, "Creator": None})
            yield target


def main(arguments: list[str]) -> int:
    """Draw the results of one file."""
    for target in draw(Path(arguments[0]) if arguments else RESULTS / f"{machine()}.json"):
        print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
