"""Random correlations of Sigma, as the mappings of their documents, and events for them.

Values are few, so that rules meet at events, groups overlap, times tie and thresholds are crossed both ways.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from tests.sigma import correlation_reference as ref

SECOND = 1000
KINDS = ("a", "b", "c", "d")
GROUPS = ("user", "host", "target")
COUNTS = ("event_count", "value_count")
METRICS = ("value_sum", "value_avg", "value_median", "value_percentile")
TEMPORAL = ("temporal", "temporal_ordered")
SCHEMA = pa.schema(
    {
        ref.TIME: pa.timestamp("ms"),
        "kind": pa.string(),
        "user": pa.string(),
        "host": pa.int64(),
        "target": pa.string(),
        "name": pa.string(),
        "n": pa.int64(),
        "x": pa.float64(),
    }
)


def rows_of(rnd: random.Random, n: int) -> list[ref.Row]:
    """Return n events whose times do not decrease."""
    time, found = 0, []
    step = rnd.choice([[0, 0, 1, 1, 2], [0, 1, 2, 5, 20], [1]])
    missing = rnd.choice([0.0, 0.15])

    def some(values: Any) -> Any:
        return None if rnd.random() < missing else rnd.choice(values)

    for _ in range(n):
        time += rnd.choice(step) * SECOND
        found.append(
            {
                ref.TIME: time,
                "kind": some(KINDS),
                "user": some(["ann", "bob", "Ann"]),
                "host": some([1, 2]),
                "target": some(["ann", "bob"]),
                "name": some(["p", "q", "r", "R"]),
                "n": some([-2, 0, 1, 2, 3]),
                "x": some([0.5, -0.25, 1e3, 0.1]),
            }
        )
    return found


def table_of(rows: list[ref.Row], lacking: str | None = None) -> pa.Table:
    """Return events as a table, which may lack a column."""
    return pa.Table.from_pylist(rows, pa.schema([field for field in SCHEMA if field.name != lacking]))


class CorrelationDraw:
    """Random documents: detections and correlations over them, the last one being what is asked.

    Parameters
    ----------
    rnd
    types
        Types of correlations.
    chained
        True: correlations may stand on correlations.
    aliased
        True: groups may be told by aliases.
    own_groups
        True: a correlation on which others stand may have groups of its own.
    """

    def __init__(
        self,
        rnd: random.Random,
        types: tuple[str, ...],
        *,
        chained: bool = False,
        aliased: bool = False,
        own_groups: bool = False,
    ) -> None:
        self.rnd, self._types, self._aliased, self._own_groups = rnd, types, aliased, own_groups
        self.documents: list[dict[str, Any]] = []
        self.by = rnd.sample(GROUPS, rnd.choice([0, 1, 1, 1, 2]))
        names = [self.detection(f"rule_{letter}") for letter in "abcd"[: rnd.randint(1, 4)]]
        for level in range(rnd.randint(1, 2) if chained else 0):
            names.append(self.correlation(f"inner_{level}", rnd.sample(names, rnd.randint(1, min(3, len(names))))))
        used = rnd.sample(names, rnd.randint(1, min(3, len(names))))
        if chained and not any(name.startswith("inner") for name in used):
            used[rnd.randrange(len(used))] = names[-1]
        self.asked = self.correlation("outer", used)
        rnd.shuffle(self.documents)  # references may come before what they refer to

    def detection(self, name: str) -> str:
        """Add a detection."""
        rnd = self.rnd
        selection = rnd.choice(
            [
                {"kind": rnd.choice(KINDS)},
                {"kind": rnd.choice(KINDS)},
                {"kind": rnd.sample(KINDS, 2)},
                {"kind": rnd.choice(KINDS), "host": rnd.choice([1, 2])},
                {"n|gte": rnd.randint(0, 2)},
                {"name": rnd.choice(["p", "q", "r"])},
            ]
        )
        condition = rnd.choice(["selection", "selection", "selection", "not selection"])
        self.documents.append(
            {
                "title": f"Detection {name}",
                "name": name,
                "logsource": {"product": "test"},
                "detection": {"selection": selection, "condition": condition},
            }
        )
        return name

    def correlation(self, name: str, names: list[str]) -> str:
        """Add a correlation over rules."""
        rnd = self.rnd
        kinds = self._types if name == "outer" else [each for each in self._types if each != "temporal_ordered"]
        kind = rnd.choice(kinds or COUNTS)
        correlation: dict[str, Any] = {"type": kind, "rules": names, "timespan": self.timespan()}
        by = rnd.sample(GROUPS, rnd.choice([0, 1, 2])) if self._own_groups and rnd.random() < 0.5 else list(self.by)
        if self._aliased and rnd.random() < 0.7:
            by = [*(each for each in by if each == "host"), "who"]
            alias = {each: rnd.choice(["user", "target"]) for each in names}
            correlation["aliases"] = {"who": alias}
        if by:
            correlation["group-by"] = by
        condition = self.condition(kind, names)
        if condition is not None:
            correlation["condition"] = condition
        if rnd.random() < 0.3:
            correlation["generate"] = rnd.random() < 0.5
        self.documents.append({"title": f"Correlation {name}", "name": name, "correlation": correlation})
        return name

    def timespan(self) -> str:
        """Return a time span."""
        return self.rnd.choice(["1s", "2s", "4s", "5s", "10s", "1m", "1h"])

    def condition(self, kind: str, names: list[str]) -> Any:
        """Return the condition of a correlation; None: it has none."""
        rnd = self.rnd
        op = rnd.choice(["gte", "gte", "gte", "gt", "lt", "lte", "eq", "neq"])
        more = self.bounds() if rnd.random() < 0.25 else {}
        if kind == "event_count":
            return more or {op: rnd.randint(0, 4)}
        if kind == "value_count":
            field = rnd.choice(["name", "host", "n", "user", ["name"]])
            return {**(more or {op: rnd.randint(0, 3)}), "field": field}
        if kind in METRICS:
            found = {**(more or {op: rnd.choice([0, 1, 2, 0.5, -1, 3])}), "field": rnd.choice(["n", "n", "x"])}
            return found | ({"percentile": rnd.choice([0, 10, 50, 75, 95, 100])} if kind == "value_percentile" else {})
        if rnd.random() < 0.3 or kind == "temporal_ordered":
            return None
        if rnd.random() < 0.4:
            return more or {op: rnd.randint(0, len(names))}
        return self.extended(names)

    def bounds(self) -> dict[str, int]:
        """Return a range that holds a number."""
        rnd = self.rnd
        low, width = rnd.randint(-1, 2), rnd.randint(0, 2)
        lower, upper = rnd.choice([("gte", "lte"), ("gt", "lte"), ("gte", "lt")])
        found = [(lower, low), (upper, low + width + (width == 0 and lower + upper != "gtelte"))]
        rnd.shuffle(found)
        return dict(found)

    def extended(self, names: list[str]) -> str:
        """Return an extended condition of names, each of which stands in it."""
        rnd = self.rnd
        if len(names) == 1:
            return f"not {names[0]}" if rnd.random() < 0.2 else names[0]
        place = rnd.randint(1, len(names) - 1)
        parts = [self.extended(part) for part in (names[:place], names[place:])]
        text = f" {rnd.choice(['and', 'or'])} ".join(f"({part})" if " " in part else part for part in parts)
        return f"not ({text})" if rnd.random() < 0.15 else text


def detects(document: ref.Document, row: ref.Row) -> bool:
    """Return True if a detection of `CorrelationDraw` is true of an event."""
    found = all(_passes(key, values, row) for key, values in document["detection"]["selection"].items())
    return found != document["detection"]["condition"].startswith("not")


def _passes(key: str, values: Any, row: ref.Row) -> bool:
    name, _, modifier = key.partition("|")
    value = row.get(name)
    if value is None:
        return False
    if modifier == "gte":
        return bool(value >= values)
    values = values if isinstance(values, list) else [values]
    return any(str(value).lower() == str(each).lower() for each in values)
