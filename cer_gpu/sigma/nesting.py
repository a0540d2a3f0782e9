"""A bound on the nesting of conditions, which pySigma parses and copies on Python's stack."""

from __future__ import annotations

import re
from typing import Any

from sigma.exceptions import SigmaConditionError

from cer_gpu.errors import underline

MAX_NESTED = 80
"""Most brackets and ``not`` around a name of a condition: the query of a rule has some levels of its own."""

_WORD = re.compile(r"[()]|[^\s()]+")


def check_condition(condition: Any) -> None:
    """Raise SigmaConditionError if a condition is a text with too many brackets and ``not`` around a name."""
    if not isinstance(condition, str):
        return
    inside = [0]  # levels in each open bracket
    level = 0
    for word in _WORD.finditer(condition):
        if word[0] == "(":
            inside.append(level + 1)
        elif word[0] == ")":
            inside = inside[:-1] or [0]
        level = level + 1 if word[0].lower() == "not" else inside[-1]
        if level > MAX_NESTED:
            shown = underline(condition, *word.span())
            raise SigmaConditionError(
                "\n".join([f"the condition is nested more than {MAX_NESTED} levels deep", *shown])
            )
