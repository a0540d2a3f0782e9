"""Actions of a commit in the log of a table of Delta, checked before they are used: others write these files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cer_gpu.errors import EventsError

_FILE: Mapping[str, tuple[type, ...]] = {"path": (str,), "dataChange": (bool, type(None))}
_FORMS: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "add": {**_FILE, "partitionValues": (dict, type(None)), "stats": (str, type(None))},
    "remove": _FILE,
    "commitInfo": {},
}
"""Types of the fields that are read of each action."""


def actions_in(text: str, path: str) -> list[dict[str, Any]]:
    """Return the actions of a commit, one a line, without those that are null.

    Parameters
    ----------
    text
    path
        Path of its file, for messages.

    Raises
    ------
    EventsError
        When a line is no action.
    """
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            action = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise EventsError(f"{path}: is damaged: a line is no JSON: {error}") from error
        why = _why_no_action(action)
        if why is not None:
            raise EventsError(f"{path}: is damaged: line {number}: {why}")
        found.append({name: value for name, value in action.items() if value is not None})
    return found


def _why_no_action(action: object) -> str | None:
    if not isinstance(action, dict):
        return "expected an action"
    for name, form in _FORMS.items():
        told = action.get(name)
        if told is None:
            continue
        if not isinstance(told, dict):
            return f"{name!r} is no object"
        for key, types in form.items():
            if not isinstance(told.get(key), types):
                return f"{key!r} of {name!r} is {told[key]!r}" if key in told else f"{key!r} of {name!r} is missing"
    return None


def n_records(add: Mapping[str, Any]) -> int | None:
    """Return the number of rows that the statistics of an added file tell, or None if they tell none.

    Raises
    ------
    EventsError
        When they are damaged.
    """
    try:
        told = json.loads(add.get("stats") or "{}").get("numRecords")
    except (ValueError, AttributeError, RecursionError) as error:
        raise EventsError(f"the log of the table is damaged: the statistics of {add['path']!r} are no JSON") from error
    if told is not None and (not isinstance(told, int) or isinstance(told, bool) or told < 0):
        raise EventsError(f"the log of the table is damaged: {add['path']!r} has {told!r} rows")
    return told
