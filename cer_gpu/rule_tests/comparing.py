"""Results of a rule beside those that a case expects: the difference in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

_SHOWN = 5
"""Most rows that a difference shows of each kind."""


def different_count(expected: int, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return lines on a number of rows that differs; none: it does not."""
    if expected == len(rows):
        return []
    return [f"expected {_matches(expected)}, got {_matches(len(rows))}", *_listed("got", rows)]


def too_few(expected: int, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return lines on rows of which there are fewer than expected; none: there are enough."""
    if len(rows) >= expected:
        return []
    return [f"expected at least {_matches(expected)}, got {_matches(len(rows))}", *_listed("got", rows)]


def different_positions(expected: Sequence[Sequence[int]], got: Sequence[Sequence[int]]) -> list[str]:
    """Return lines on the positions of matches that differ, in whatever order the matches are."""
    missing, more = _apart(list(map(list, expected)), list(map(list, got)), lambda wanted, found: wanted == found)
    if not missing and not more:
        return []
    return [
        _numbers(expected, got) or "expected other positions",
        *_listed("missing", missing),
        *_listed("unexpected", more),
    ]


def different_rows(expected: Sequence[Mapping[str, Any]], got: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return lines on rows that differ in the columns that are named, in whatever order the rows are."""
    missing, more = _apart(expected, got, is_as_expected)
    if not missing and not more:
        return []
    named = {name for row in expected for name in row} or {name for row in got for name in row}
    return [
        _numbers(expected, got) or "expected other values",
        *_listed("missing", missing),
        *_listed("unexpected", [{name: value for name, value in row.items() if name in named} for row in more]),
    ]


def is_as_expected(wanted: Any, found: Any) -> bool:
    """Return True for a value as a case expects it: of a mapping, only the keys that it names are compared."""
    match wanted:
        case dict():
            if not isinstance(found, dict):
                return False
            return all(name in found and is_as_expected(value, found[name]) for name, value in wanted.items())
        case list():
            if not isinstance(found, list) or len(wanted) != len(found):
                return False
            return all(map(is_as_expected, wanted, found))
        case bool() | None:
            return wanted is found
        case int() | float():
            return _same_number(wanted, found)
    if isinstance(found, datetime | date | time | timedelta):
        return bool(_moment(wanted) == _moment(found))
    return bool(wanted == found)


def _same_number(wanted: float, found: Any) -> bool:
    if isinstance(found, bool) or not isinstance(found, int | float | Decimal):
        return False
    if isinstance(found, float) or isinstance(wanted, float):
        return math.isclose(wanted, float(found), rel_tol=1e-9) or (math.isnan(wanted) and math.isnan(found))
    return wanted == found


def _moment(value: Any) -> Any:
    """Return a time or date, or a text of one, so that equal ones are equal: those without a zone are of UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return value
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, datetime):  # also pandas.Timestamp, of nanoseconds
        return value.replace(tzinfo=value.tzinfo or UTC)
    return value


def _apart(
    expected: Sequence[Any], got: Sequence[Any], fits: Callable[[Any, Any], bool]
) -> tuple[list[Any], list[Any]]:
    """Return what of the expected has no partner among the got, and the got without one, in a largest matching."""
    partners = [[j for j, found in enumerate(got) if fits(wanted, found)] for wanted in expected]
    of_got: dict[int, int] = {}

    def place(first: int) -> bool:
        """Find a partner for one more of the expected; others may change theirs (breadth first, along parents)."""
        came_from: dict[int, int] = {}
        todo = [first]
        for i in todo:
            for j in partners[i]:
                if j in came_from:
                    continue
                came_from[j] = i
                if j in of_got:
                    todo.append(of_got[j])
                    continue
                while True:  # each one on the way takes the partner that was found for it
                    owner = came_from[j]
                    before = next((k for k, own in of_got.items() if own == owner), None)
                    of_got[j] = owner
                    if before is None:
                        return True
                    del of_got[before]
                    j = before
        return False

    missing = [wanted for i, wanted in enumerate(expected) if not place(i)]
    return missing, [found for j, found in enumerate(got) if j not in of_got]


def _numbers(expected: Sequence[Any], got: Sequence[Any]) -> str:
    """Return a line on two numbers of matches; empty: they are equal."""
    return "" if len(expected) == len(got) else f"expected {_matches(len(expected))}, got {_matches(len(got))}"


def _matches(n: int) -> str:
    return "no match" if n == 0 else f"{n:,} match{'' if n == 1 else 'es'}"


def _listed(head: str, rows: Sequence[Any]) -> list[str]:
    lines = [f"  {head}: {_plain(row)}" for row in rows[:_SHOWN]]
    if len(rows) > _SHOWN:
        lines.append(f"  and {len(rows) - _SHOWN:,} more {head}")
    return lines


def _plain(row: Any) -> str:
    if isinstance(row, dict):
        return ", ".join(f"{name} = {_plain(value)}" for name, value in row.items())
    if isinstance(row, list):
        return f"[{', '.join(f'{{{_plain(each)}}}' if isinstance(each, dict) else _plain(each) for each in row)}]"
    return row.isoformat() if isinstance(row, datetime | date | time) else repr(row)
