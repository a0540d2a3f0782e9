"""Functions of EQL by their names in lower case, and the functions of the language of values for them."""

from __future__ import annotations

from cer_gpu.eql import syntax as e
from cer_gpu.errors import QueryError, did_you_mean

OF_NUMBERS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "modulo": "%"}
"""Functions that are operators of arithmetic."""
OF_VALUES = {
    "between": "between",
    "concat": "concat",
    "indexof": "indexof",
    "length": "length",
    "number": "number",
    "string": "string",
    "substring": "substring",
}
"""Functions that return a value."""
CONDITION_FUNCTIONS = {
    "cidrmatch": "",
    "endswith": "endswith",
    "match": "",
    "startswith": "startswith",
    "stringcontains": "contains",
    "wildcard": "",
}
"""Functions that are conditions; "" for those only over constants, as a test of strings."""
_OPERANDS = {
    **dict.fromkeys(OF_NUMBERS, (2, 2)),
    **dict.fromkeys(("startswith", "endswith", "stringcontains"), (2, None)),
    **dict.fromkeys(("cidrmatch", "match", "wildcard"), (2, None)),
    "between": (3, 4),
    "concat": (1, None),
    "indexof": (2, 3),
    "length": (1, 1),
    "number": (1, 2),
    "string": (1, 1),
    "substring": (2, 3),
}
WITH_DEFAULTS = {"indexof": 2, "number": 1, "substring": 2}
"""Functions whose last operand has a default, which null stands for, too; and how many operands are before it."""
_NOCASE = ("between", "endswith", "indexof", "match", "startswith", "stringcontains", "wildcard")
_NAMES = {
    name.lower(): name
    for name in (
        *("add", "between", "cidrMatch", "concat", "divide", "endsWith", "indexOf", "length", "match", "modulo"),
        *("multiply", "number", "startsWith", "string", "stringContains", "substring", "subtract", "wildcard"),
    )
}
_ELSEWHERE = {
    "arraycontains": 'field == "value" holds if one element of a list passes',
    "arraycount": "_arraysearch(field, $x, ...) tells whether there is one",
    "matchlite": "regex",
    "safe": "a missing value satisfies no test",
}
"""Functions of Endgame's EQL that Elasticsearch's does not have, and what to write."""


def check_call(call: e.FunctionCall, text: str) -> None:
    """Refuse an unknown function, or the wrong number of operands.

    Raises
    ------
    QueryError
    """
    name = call.name.lower()
    if name not in _OPERANDS:
        hint = _ELSEWHERE.get(name) or did_you_mean(call.name, _NAMES.values(), "functions")
        raise QueryError(f"there is no function {call.name!r}", text, *call.span, hint=hint)
    if call.nocase and name not in _NOCASE:
        raise QueryError(f"{_NAMES[name]} has no form with ~", text, *call.span)
    n_min, n_max = _OPERANDS[name]
    n = len(call.operands)
    if n < n_min or (n_max is not None and n > n_max):
        expected = f"{n_min}" if n_min == n_max else f"{n_min} or more" if n_max is None else f"{n_min} to {n_max}"
        raise QueryError(f"{_NAMES[name]} takes {expected} operands, and has {n}", text, *call.span)
