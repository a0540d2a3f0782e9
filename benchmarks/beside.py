"""Workloads of gaps, counts, choices and measures, each beside the plainest query that does as much without them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from measure import WARM_UP, Row, Workload, count, drain, seconds
from streams import random_types

TITLE = "Gaps, counts and options"
ABOUT = "Random events of nine types; each query beside a plainer one in the same run. Matches are ten at an end."
CHOICES = "Choices within the window"
ABOUT_CHOICES = "C is 1 in 10,000, A and B a tenth each, WITHIN 1000 EVENTS, beside the ends of ALL."
MEASURES = "Measures"
ABOUT_MEASURES = "Random events of nine types; the rows of each query beside the listing of its matches."
ALL = "SELECT * FROM S WHERE {} WITHIN 100 EVENTS LIMIT 10"
STEPS = {
    "A ; !D ; C": "A ; C",
    "A -> C": "A ; C",
    "A -> B -> C": "A ; B ; C",
    "A ; B{3,5} ; C": "A ; B+ ; C",
    "A ; B ->+ ; C": "A ; B+ ; C",
    "A ; B{500} ; C": "A ; B+ ; C",
    "A ; B? ; C": "A ; (B OR C) ; C",
}
"""Formulas, each with that of the plainer query."""
DISTANCES_TITLE = "Gaps at each step and windows within"
ABOUT_DISTANCES = "Random events of nine types WITHIN 100 EVENTS; each query beside the chain without the bounds."
GAPS = ", 30 EVENTS EACH STEP"
DISTANCES = {
    f"A ; B ; C{GAPS}": "A ; B ; C",
    f"A ; B+ ; C{GAPS}": "A ; B+ ; C",
    f"A ; B{{1,3}} ; C{GAPS}": "A ; B{1,3} ; C",
    f"A ; B{{3,5}} ; C{GAPS}": "A ; B{3,5} ; C",
    f"A ; !D ; B ; C{GAPS}": "A ; !D ; B ; C",
    f"A -> B ; C{GAPS}": "A -> B ; C",
    "(A ; B+ WITHIN 30 EVENTS) ; C": "A ; B+ ; C",
    "(A ; B ; C WITHIN 30 EVENTS) ; D": "A ; B ; C ; D",
    "A ; (B ; C ; D WITHIN 30 EVENTS)": "A ; B ; C ; D",
    "A ; (B ; C WITHIN 30 EVENTS) ; D": "A ; B ; C ; D",
    "A ; (B ; C ; D WITHIN 30 EVENTS) ; E": "A ; B ; C ; D ; E",
    "A ; (B+ ; C WITHIN 30 EVENTS) ; D": "A ; B+ ; C ; D",
    "(A ; B ; C WITHIN 30 EVENTS) ; (D ; E ; F WITHIN 30 EVENTS)": "A ; B ; C ; D ; E ; F",
}
"""Formulas, some with gaps at each step, each with that of the plainer query."""
RARE = partial(random_types, names=tuple("ABCDEFGHI"), shares={"A": 0.1, "B": 0.1, "C": 1e-4})
DENSE = partial(random_types, names=tuple("ABCDEFGHI"))
WHOLE = "SELECT {} FROM S WHERE {} WITHIN {} EVENTS"
SUMS = {
    "difference and count": "c.x - a.x AS d, COUNT(b) AS n",
    "a sum": "SUM(b.x) AS s",
    "difference, count and sum": "c.x - a.x AS d, COUNT(b) AS n, SUM(b.x) AS s",
}
PATTERNS = {"A ; B ; C": ("A AS a ; B AS b ; C AS c", 60), "A ; B+ ; C": ("A AS a ; B+ AS b ; C AS c", 35)}


STRATEGIES = ("NEXT", "LAST", "MAX")
CHAINS = ("A ; B ; C", "A ; B+ ; C")
SPACED = "SELECT * FROM S WHERE {} WITHIN 100 EVENTS"
BESIDE = {
    **{formula: SPACED.format(plain) for formula, plain in DISTANCES.items()},
    **{formula: ALL.format(plain) for formula, plain in STEPS.items()},
    **{f"{strategy}, {formula}": WHOLE.format("*", formula, 1000) for strategy in STRATEGIES for formula in CHAINS},
    **{f"{name}: {what}": WHOLE.format("*", *pattern) for name, pattern in PATTERNS.items() for what in SUMS},
}
"""Text of the plainer query, by the name of a workload."""


def steps() -> list[Workload]:
    """Return the workloads of gaps, counts and options, listed and counted."""
    return [
        Workload(formula, ALL.format(formula), DENSE, output=output, times=0.4)
        for output in ("positions", "count")
        for formula in STEPS
    ]


def distances() -> list[Workload]:
    """Return the workloads of bounds on distances, listed (ten matches at an end), counted, and their ends."""
    found = []
    for output in ("positions", "count", "ends"):
        for formula in DISTANCES:
            text = f"{SPACED.format(formula.removesuffix(GAPS))}{GAPS if formula.endswith(GAPS) else ''}"
            found.append(Workload(formula, text, DENSE, output=output, times=0.4))
    return found


def choices() -> list[Workload]:
    """Return the workloads of strategies that compare."""
    return [
        Workload(f"{strategy}, {formula}", WHOLE.format(f"{strategy} *", formula, 1000), RARE, output="count")
        for formula in CHAINS
        for strategy in STRATEGIES
    ]


def measures() -> list[Workload]:
    """Return the workloads of measures; each has about ten million matches of ten million events asked for."""
    return [
        Workload(f"{name}: {what}", WHOLE.format(items, *pattern), DENSE, output="measures", times=0.4)
        for name, pattern in PATTERNS.items()
        for what, items in SUMS.items()
    ]


def compared(workload: Workload, n_events: int, repeat: int) -> Row:
    """Measure a query and the plainer one in turn, on one thread."""
    few = " LIMIT 10" if workload.name in DISTANCES and workload.output == "positions" else ""
    workload = replace(workload, text=workload.text + few)
    plainer = Workload(workload.name, BESIDE[workload.name] + few, workload.events)
    beside = {"measures": "positions", "count": "ends" if workload.text.startswith(_COMPARING) else "count"}
    output = beside.get(workload.output, workload.output)
    query, other, table = workload.query(), plainer.query(), workload.table(n_events)
    for each, form in ((query, workload.output), (other, output)):
        for _ in drain(each, table.slice(0, WARM_UP), form):
            pass
    n_found = count(query, table, workload.output)
    taken, plain = seconds(
        lambda: count(query, table, workload.output), lambda: count(other, table, output), repeat=repeat
    )
    return {
        **workload.row(),
        "output": workload.output,
        "events": len(table),
        "matches": n_found,
        "million events/s": len(table) / taken / 1e6,
        "million matches/s": n_found / taken / 1e6,
        "beside": plainer.text.partition("WHERE ")[2].partition(" WITHIN")[0],
        "of its speed": plain / taken,
    }


_COMPARING = tuple(f"SELECT {strategy} " for strategy in STRATEGIES)
