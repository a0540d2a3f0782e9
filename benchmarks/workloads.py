"""Families of workloads to measure, each a table of the results.

The streams and queries "of papers/002" are those of its section 6: n + 6 types with equal shares, WITHIN 100 EVENTS,
and, with output, at most ten matches at a position, after which all is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import beside
import conjunctions
import joins
import pyarrow as pa
import stock
from measure import Row, Workload, floors, from_file, in_memory, threads_gain
from streams import before_the_last, blocks, never_after, random_types, repeated

HERE = Path(__file__).parent
FLIGHTS = HERE.parent / "examples" / "data" / "flights.parquet"
NOISE = tuple(f"B{k}" for k in range(1, 7))
"""The types of papers/002 that no query names."""
RARE = 1e-6
AS_PAPER = "CONSUME BY ANY LIMIT 10"
TWO = "A1 ; A2 ; A3"
STRATEGIES = ("ALL", "ANY", "NEXT", "LAST", "MAX", "STRICT")
WINDOWS = (50, 100, 1000, 10_000, 100_000)
KLEENE = "SELECT * FROM S WHERE A ; B+ ; C WITHIN 100 EVENTS"
FILTERED = "SELECT * FROM S WHERE A ; B+ ; C FILTER A[x > 0.5] AND B[x < 0.3] AND C[x >= 0] WITHIN 100 EVENTS"


@dataclass(frozen=True)
class Family:
    """Workloads that are measured alike; `about` is a line on the aim of the measurement."""

    title: str
    about: str
    workloads: list[Workload]
    measure: Callable[[Workload, int, int], Row] = in_memory


def _types(n: int) -> tuple[str, ...]:
    return tuple(f"A{k}" for k in range(1, n + 1))


def _query(formula: str, within: int | None = 100, clauses: str = "", strategy: str = "") -> str:
    window = "" if within is None else f"WITHIN {within} EVENTS"
    return " ".join(f"SELECT {strategy} * FROM S WHERE {formula} {window} {clauses}".split())


def _stream(*names: str, **options: object) -> Callable[[int], pa.Table]:
    """Return random events of some types and the noise, with equal shares unless `options` say otherwise."""
    return partial(random_types, names=(*names, *NOISE), **options)  # type: ignore[arg-type]


def _sequences() -> list[Workload]:
    found = []
    for n in (3, 5, 7, 9):
        names, formula, at = _types(n), " ; ".join(_types(n)), {"n": n}
        for by_automaton, how in ((False, ""), (True, ", by the automaton")):
            paper, waiting = _query(formula, 100, AS_PAPER), _query(formula)
            found += [
                Workload(f"with output{how}", paper, _stream(*names), at, by_automaton=by_automaton),
                Workload(f"no output{how}", waiting, _stream(*names[:-1]), at, by_automaton=by_automaton),
            ]
        found.append(Workload("counted", _query(formula), _stream(*names), at, output="count"))
    return sorted(found, key=lambda workload: workload.name)


def _windows() -> list[Workload]:
    found = []
    for window in WINDOWS:
        at = {"window": window}
        order = partial(never_after, first="A2", then="A3", instead="B1", names=(*_types(3), *NOISE))
        found += [
            Workload("last type absent", _query(TWO, window), _stream("A1", "A2"), at),
            Workload(
                "last type never passes its filter", _query(f"{TWO} FILTER A3[x < 0]", window), _stream(*_types(3)), at
            ),
            Workload("last type never where it must be", _query("A1 ; A2 : A3", window), order, at),
            Workload("A1 ; A2+ : A3, last type never there", _query("A1 ; A2+ : A3", window), order, at),
            Workload("A1 ; A2+ ; A3, last type absent", _query("A1 ; A2+ ; A3", window), _stream("A1", "A2"), at),
        ]
    return sorted(found, key=lambda workload: workload.name)


def _strategies() -> list[Workload]:
    return [
        Workload(
            f"{strategy}, {output}", _query(TWO, strategy=strategy), _stream(*_types(3 if output == "output" else 2))
        )
        for output in ("no output", "output")
        for strategy in STRATEGIES
    ]


def _operators() -> list[Workload]:
    formulas = {
        "K3": "A1 ; A2+ ; A3",
        "K5": "A1 ; A2+ ; A3 ; A4+ ; A5",
        "D3": "A1 ; (A2 OR D2) ; A3",
        "D5": "A1 ; (A2 OR D2) ; A3 ; (A4 OR D4) ; A5",
    }
    found = []
    for name, formula in formulas.items():
        names = [*_types(int(name[1])), *(kind for kind in ("D2", "D4") if kind in formula)]
        last = f"A{name[1]}"
        found.append(Workload(name, _query(formula, 100, AS_PAPER), _stream(*names)))
        found.append(
            Workload(f"{name}, no output", _query(formula), _stream(*(each for each in names if each != last)))
        )
    return sorted(found, key=lambda workload: len(workload.name))


def _listing(most: int) -> list[Workload]:
    """Return workloads of at most so many matches, and the fixed ones of the stress test."""
    found = []
    for n, copies in {3: 200, 5: 40, 7: 12, 9: 7}.items():
        names, each = _types(n), min(copies, int(most ** (1 / n)))
        found.append(
            Workload("a sequence", _query(" ; ".join(names), None), blocks(dict.fromkeys(names, each)), {"n": n})
        )
    kleene = blocks({"A": 1, "B": 20, "C": 1})
    found.append(Workload("A ; B+ ; C, 20 events B", _query("A ; B+ ; C", None), kleene))
    for others, last, n_events in (("ABEF", "C", 2000), *(("ABCE", "D", n) for n in (500, 1000, 2000))):
        formula = " ; ".join("ABCD"[: "ABCD".index(last) + 1])
        events = before_the_last(n_events, others, last)
        found.append(Workload(f"stress, {formula}", _query(formula, None), events, {"length": n_events}))
    return found


def _partitions() -> list[Workload]:
    return [
        Workload(
            "A ; B ; C PARTITION BY [key]",
            "SELECT * FROM S WHERE A ; B ; C PARTITION BY [key] WITHIN 100 EVENTS",
            partial(random_types, shares={"C": RARE}, n_keys=10**k),
            {"keys": 10**k},
        )
        for k in range(7)
    ]


def _small_partitions() -> list[Workload]:
    """Return neighbours and short chains in 100,000 partitions, as funnels and MATCH_RECOGNIZE have them."""
    patterns = [("A : B", ""), ("A ; B", ""), ("A ; B", "WITHIN 100 EVENTS")]
    return [
        Workload(
            f"{formula} {window}".strip() + f", {'texts' if texts else 'numbers'} {order}",
            f"SELECT * FROM S WHERE {formula} PARTITION BY [key] {window}",
            partial(random_types, n_keys=100_000, texts=texts, by_key=order == "in order"),
            {"keys": 100_000},
            times=0.4,
        )
        for formula, window in patterns
        for texts in (False, True)
        for order in ("in order", "mixed")
    ]


def _relevant() -> list[Workload]:
    found = []
    for percent in (100, 50, 25, 10, 1, 0.1):
        share = {"A": percent / 200, "B": percent / 200}
        events = partial(random_types, names="ABN", shares=share)
        found += [
            Workload("A ; B ; C, no event C", _query("A ; B ; C"), events, {"relevant, %": percent}),
            Workload("A ; B+ ; C, no event C", _query("A ; B+ ; C"), events, {"relevant, %": percent}),
        ]
    return sorted(found, key=lambda workload: workload.name)


def _memory() -> list[Workload]:
    keyed = "SELECT * FROM S WHERE A ; B+ ; C PARTITION BY [key] WITHIN 10 EVENTS"
    plain = partial(repeated, shares={"C": RARE})
    absent = partial(repeated, names="ABNNNNNN")
    return [
        Workload("A ; B ; C", _query("A ; B ; C", 1000), plain, {"window": 1000}, times=10, relevant=0.0),
        *(
            Workload("A ; B ; C, no event C", _query("A ; B ; C", window), absent, {"window": window}, relevant=0.25)
            for window in (100_000, 1_000_000, 5_000_000)
        ),
        Workload("A ; B ; C, no event C, no window", _query("A ; B ; C", None), absent, relevant=0.25),
        Workload(
            "A ; B ; C, no event C, 1,000 keys",
            _keyed_in_time(10_000_000),
            partial(_keyed, names="ABNNNNNN"),
            {"window": 10_000_000},
            times=2,
            relevant=0.25,
        ),
        Workload(
            "a million integer keys",
            keyed,
            partial(random_types, n_keys=10**6, shares={"C": RARE}),
            times=2,
            relevant=0.0,
        ),
        Workload(
            "a million texts as keys",
            keyed,
            partial(random_types, n_keys=10**6, texts=True, shares={"C": RARE}),
            times=2,
            relevant=0.0,
        ),
    ]


def _flights() -> list[Workload]:
    queries = [
        Workload(path.stem, path.read_text(encoding="utf-8"), FLIGHTS, time_column="ts")
        for path in sorted((HERE.parent / "examples" / "queries").glob("*.ceql"))
    ]
    generated = partial(random_types, shares={"C": RARE})
    return [
        *queries,
        Workload("random events: A ; B+ ; C", KLEENE, generated),
        Workload("with filters", FILTERED, generated),
    ]


def families(n_events: int, *, long: bool = False) -> list[Family]:
    """Return all families, with `n_events` events in most of their streams; `long`: those that take minutes, too."""
    rare = partial(random_types, shares={"C": RARE})
    rare_again = partial(repeated, shares={"C": RARE})
    rare_plain = partial(random_types, shares={"C": RARE}, plain=True)
    return [
        Family(
            "Floors",
            "The least work of every query: one pass over the columns that it names, and a copy of as many bytes.",
            [
                Workload("a dictionary of types", KLEENE, rare),
                Workload("the same and a float column", FILTERED, rare),
                Workload("types as plain strings", KLEENE, rare_plain),
            ],
            floors,
        ),
        Family(
            "Events read per second",
            "C is rare (1 in a million), so that the cost is that of reading.",
            [
                Workload("A ; B+ ; C", KLEENE, rare),
                Workload("A ; B+ ; C, filters on a float column", FILTERED, rare),
                Workload("A ; B+ ; C, plain strings", KLEENE, rare_plain),
                Workload("A ; B+ ; C, filters, plain strings", FILTERED, rare_plain),
            ],
        ),
        Family("Sequences", "Sequences of n types WITHIN 100 EVENTS, as in papers/002 (figure 7).", _sequences()),
        Family("Windows without output", "A1 ; A2 ; A3 that never ends, as in papers/002 (figure 8).", _windows()),
        Family("Selection strategies", "A1 ; A2 ; A3 WITHIN 100 EVENTS, as in papers/002 (figure 8).", _strategies()),
        Family("Iteration and disjunction", "K3, K5, D3 and D5 of papers/002 (figure 9).", _operators()),
        Family(
            "Stock market",
            "Q1 to Q7 of papers/002 (appendix C), over a generated day.",
            [Workload(name, text, stock.stock_market) for name, text in stock.QUERIES.items()],
        ),
        Family(
            "Matches listed per second",
            "Into Arrow lists; the stress test is that of papers/001 (section 8.2).",
            _listing(10 * n_events),
        ),
        Family(joins.TITLE, joins.ABOUT, joins.workloads()),
        Family(conjunctions.TITLE, conjunctions.ABOUT, conjunctions.workloads(), conjunctions.measure),
        Family(conjunctions.LISTED, conjunctions.ABOUT_LISTED, conjunctions.listings(), conjunctions.listed),
        *(
            [Family(conjunctions.HELD, conjunctions.ABOUT_HELD, conjunctions.held_workloads(), conjunctions.held)]
            if long
            else []
        ),
        Family(beside.TITLE, beside.ABOUT, beside.steps(), beside.compared),
        Family(beside.DISTANCES_TITLE, beside.ABOUT_DISTANCES, beside.distances(), beside.compared),
        Family(beside.CHOICES, beside.ABOUT_CHOICES, beside.choices(), beside.compared),
        Family(beside.MEASURES, beside.ABOUT_MEASURES, beside.measures(), beside.compared),
        Family("Partitions", "One of so many keys at random for each event; C is rare.", _partitions()),
        Family(
            "Small partitions",
            "Neighbours and short chains of random events of nine types, 40 of each key, key after key or mixed.",
            _small_partitions(),
        ),
        Family("Share of relevant events", "All others are of a type that the query does not name.", _relevant()),
        Family(
            "Threads",
            "Wall time on one thread and on all cores, of streams long enough that starting threads does not show.",
            [
                Workload("A ; B+ ; C", KLEENE, rare_again, times=10),
                Workload("A ; B+ ; C, filters on a float column", FILTERED, rare_again, times=10),
                Workload("A : B+ ; C", _query("A : B+ ; C"), rare_again, times=4),
                Workload("A ; B ; C, all counted", _query("A ; B ; C"), repeated, times=4, output="count"),
                Workload("A ; B ; C, all listed", _query("A ; B ; C"), repeated),
                Workload(
                    "A ; B ; C, 1,000 keys, a window of time",
                    _keyed_in_time(100_000),
                    partial(_keyed, shares={"C": RARE}),
                    times=5,
                ),
            ],
            threads_gain,
        ),
        Family("From Parquet", "Wall time, beside a bare scan of the same columns.", _flights(), from_file),
        Family(
            "Memory",
            "Above the events and what the process held before; some 9 MiB are for the blocks and batches under way.",
            _memory(),
        ),
    ]


def _keyed_in_time(window: int) -> str:
    return f"SELECT * FROM S WHERE A ; B ; C PARTITION BY [key] WITHIN {window} [at]"


def _keyed(n_events: int, **options: object) -> pa.Table:
    """Return random events of 1,000 keys, with a column "at" of their numbers."""
    table = random_types(n_events, n_keys=1000, **options)  # type: ignore[arg-type]
    return table.append_column("at", pa.array(range(n_events), pa.int64()))
