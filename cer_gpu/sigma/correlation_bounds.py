"""Ranges in the conditions of correlations, as ``gt: 100`` with ``lte: 200``: pySigma reads one bound of each."""

from __future__ import annotations

import math
from typing import Any

from sigma.correlations import SigmaCorrelationCondition, SigmaCorrelationConditionOperator
from sigma.exceptions import SigmaCorrelationConditionError

MORE_BOUNDS = "cer_gpu_bounds"
"""Custom attribute of a correlation of pySigma with the bounds of its condition but for the first one."""
_Op = SigmaCorrelationConditionOperator
_FROM, _TO = {_Op.GT, _Op.GTE, _Op.EQ}, {_Op.LT, _Op.LTE, _Op.EQ}
_OPEN = {_Op.GT, _Op.LT}


def split_range(condition: Any) -> tuple[Any, list[SigmaCorrelationCondition]]:
    """Return a condition with one bound, and its other bounds.

    Raises
    ------
    SigmaCorrelationConditionError
        For a bound that is no number, and for a range that no number lies in.
    """
    if not isinstance(condition, dict):
        return condition, []
    bounds = [key for key in condition if key in _Op.operators()]
    if len(bounds) < 2:
        return condition, []
    read = [SigmaCorrelationCondition.from_dict({key: condition[key]}) for key in bounds]
    _check_not_empty(read)
    return {key: value for key, value in condition.items() if key not in bounds[1:]}, read[1:]


def _check_not_empty(bounds: list[SigmaCorrelationCondition]) -> None:
    least = max((each.count for each in bounds if each.op in _FROM), default=-math.inf)
    greatest = min((each.count for each in bounds if each.op in _TO), default=math.inf)
    is_open = any(each.op in _OPEN and each.count in (least, greatest) for each in bounds)
    if least > greatest or (least == greatest and is_open):
        shown = ", ".join(f"{each.op.name.lower()}: {each.count}" for each in bounds)
        raise SigmaCorrelationConditionError(f"no number is in the range of the condition ({shown})")
