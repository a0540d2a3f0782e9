"""Functions of EQL by their names in lower case, and the functions of the language of values that they are."""

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
"""Functions that give a value."""
CONDITION_FUNCTIONS = {
    "cidrmatch": "",
    "endswith": "endswith",
    "match": "",
    "startswith": "startswith",
    "stringcontains": "contains",
    "wildcard": "",
}
"""Functions that are conditions; "": only over constants, as a test of texts."""
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
"""Functions of Endgame's EQL that Elasticsearch's has not, and what to write."""


def check_call(call: e.FunctionCall, text: str) -> None:
    """Refuse a function that there is none of, or the wrong number of operands.

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
    least, most = _OPERANDS[name]
    n = len(call.operands)
    if n < least or (most is not None and n > most):
        expected = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
        raise QueryError(f"{_NAMES[name]} takes {expected} operands, and has {n}", text, *call.span)
