"""Compare conjunctions with joins of DuckDB, and with dictionaries of recent events in plain Python.

As in `join_peers`: the same events at the same time, and the answers are compared.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections import defaultdict, deque
from collections.abc import Iterator

import pyarrow as pa
from conjunctions import ALL_OF, QUERY, SHARE, TEXTS, WINDOWS, visits
from join_peers import DuckDB, Question, compared
from measure import Row
from rich.console import Console

TITLE = "Conjunctions against peers"
NOTE = "Least of three runs, from Arrow events to a number; DuckDB on all cores unless it says so, the others on one."
KEYS = {QUERY: ("s.id = t.id", "r.id = t.id AND r.loc = s.loc"), ALL_OF: ("s.id = t.id", "r.id = t.id")}
"""The conditions of the second and of the third event of each query."""


def of(kind: str, name: str, bucket: str = "", *, about: bool = False) -> str:
    """Return the events of a type as a table of a join; `about`: in their bucket, the one before, and the one after."""
    if not bucket:
        return f"(SELECT * FROM e WHERE type = '{kind}') {name}"
    buckets = f"unnest([{bucket} - 1, {bucket}, {bucket} + 1])" if about else bucket
    return f"(SELECT *, {buckets} AS g FROM e WHERE type = '{kind}') {name}"


def plans(name: str, window: int) -> dict[str, str]:
    """Return the plans of a query: all pairs of its events are at most a window apart."""
    near = "{0}.p - {1}.p BETWEEN -{2} AND {2}"
    st, rt, rs = (near.format(*pair, window) for pair in ("st", "rt", "rs"))
    second, third = KEYS[name]
    found = {}
    for plan, bucket in (("keys", ""), ("keys and buckets", f"p // {window}")):
        s, r = (f"{each}.g = t.g AND " if bucket else "" for each in "sr")
        found[plan] = (
            f"SELECT count(*) FROM {of('T', 't', bucket)}"
            f" JOIN {of('S', 's', bucket, about=True)} ON {s}{second} AND {st}"
            f" JOIN {of('R', 'r', bucket, about=True)} ON {r}{third} AND {rt} AND {rs}"
        )
    return found


class Dictionaries:
    """Recent events of each type under their keys, in plain Python: what a hand-written loop keeps of each key."""

    def missing(self) -> str | None:
        """See `join_peers.Peer`."""
        return None

    def name(self) -> str:
        """See `join_peers.Peer`."""
        return f"Python {platform.python_version()}"

    def fewest(self, question: Question) -> int:
        """See `join_peers.Peer`."""
        return 20_000

    def plans(self, question: Question) -> list[str]:
        """See `join_peers.Peer`."""
        return ["dictionaries"]

    def ask(self, question: Question, table: pa.Table, plan: str) -> tuple[float, int]:
        """See `join_peers.Peer`."""
        begun, window, located = time.perf_counter(), question.window, question.name == QUERY
        found = 0
        # of each id the recent events of each type, the oldest first, with their locs
        recent: dict[str, dict[int, deque[tuple[int, int]]]] = {kind: defaultdict(deque) for kind in "TSR"}
        columns = (table[name].to_pylist() for name in ("type", "id", "loc"))
        for p, (kind, key, loc) in enumerate(zip(*columns, strict=True)):
            if kind not in recent:
                continue
            held = []
            for other in "TSR".replace(kind, ""):
                events = recent[other][key]
                while events and p - events[0][0] > window:
                    events.popleft()
                held.append(events)
            first, second = held
            if not located:
                found += len(first) * len(second)
            elif kind == "T":
                found += sum(a == b for _, a in first for _, b in second)
            else:
                found += len(first) * sum(a == loc for _, a in second)
            recent[kind][key].append((p, loc))
        return time.perf_counter() - begun, found


def questions() -> list[Question]:
    """Return all questions."""
    return [
        Question(name, window, plans(name, window), visits, texts=TEXTS)
        for name in (QUERY, ALL_OF)
        for window in (WINDOWS if name == QUERY else WINDOWS[:3])
    ]


def against_peers(console: Console, options: argparse.Namespace) -> Iterator[tuple[str, list[Row], str]]:
    """Yield title, rows and a remark of the table: a row for each question and peer that ran."""
    yield TITLE, compared(console, options, [DuckDB(), DuckDB(1), Dictionaries()], questions(), SHARE), NOTE
