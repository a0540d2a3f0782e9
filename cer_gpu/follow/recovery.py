"""Checks of a state before anything of it is changed: the log must tell of every step that left something behind.

A step that was not committed can have left its rows, and with them its state.  A state without rows (they were
published), and a state two steps ahead, are of a step that was committed: a log without its line was cut off, damaged,
or is an older copy.  To read the events again would write their results twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cer_gpu.errors import CheckpointError, OptionError
from cer_gpu.follow.targets import LiveTarget
from cer_gpu.private_files import why_not_private

_HINT = (
    "hint: restore the folder of the state from a copy that is as new as the results; or begin anew, with results and "
    "state in another place; nothing was removed"
)


def check_private(state: Path) -> None:
    """Refuse a folder of a state that others can change.

    Raises
    ------
    OptionError
        When it is one.
    """
    why = why_not_private(state)
    if why is not None:
        raise OptionError(
            f"{state}: the folder of the state {why}\nhint: a folder that only you can write to (chmod go-w {state})"
        )


def check_steps(log: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a log without its first line, or whose steps do not follow each other.

    Raises
    ------
    CheckpointError
        When lines are missing, or come twice.
    """
    if entries and "version" not in entries[0]:
        raise CheckpointError(f"{log}: its first line is missing\n{_HINT}")
    before = 0
    for number, entry in enumerate(entries[1:], 2):
        step = entry.get("step")
        if not isinstance(step, int) or (step != before + 1 and not (number == 2 and "read" in entry)):
            raise CheckpointError(f"{log}: line {number}: expected step {before + 1:,}, found {step!r}\n{_HINT}")
        before = step


def check_nothing_later(log: Path, entries: Sequence[Mapping[str, Any]], target: LiveTarget) -> None:
    """Refuse a log beside what later steps have left behind.

    Raises
    ------
    CheckpointError
        When there is a state, a part of the log or results of a step after the last one.
    """
    step = int(entries[-1]["step"]) if entries[1:] else 0
    later = next(_later(step, target), None) or target.later_than(step, entries[-1] if step else {})
    if later is not None:
        tells = f"the log ends with step {step:,}" if step else "the log tells of no step"
        raise CheckpointError(
            f"{log}: {tells}, and {later}: the log was cut off or damaged, or is an older copy, or something else has "
            f"written to the results\n{_HINT}"
        )


def _later(step: int, target: LiveTarget) -> Iterator[str]:
    for path in sorted(target.state.iterdir()):
        found = re.fullmatch(r"(state-|log-until-)([0-9]+)(\.jsonl)?", path.name)
        if found is None or int(found[2]) <= step:
            continue
        uncommitted = found[1] == "state-" and int(found[2]) == step + 1 and target.is_pending(step + 1)
        if not uncommitted:
            yield f"{path} is of a later one"


def check_events(entry: Mapping[str, Any], n_events: int) -> None:
    """Refuse a state that has read other events than the last line of the log tells.

    Raises
    ------
    CheckpointError
        When it is of another step.
    """
    files = entry.get("files")
    if files and n_events != (expected := files[-1]["first"] + files[-1]["n_events"]):
        raise CheckpointError(
            f"expected the state after {expected:,} events, and found that after {n_events:,}\n{_HINT}"
        )
