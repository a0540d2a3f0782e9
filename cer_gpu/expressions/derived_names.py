"""Names of derived columns: the text of the expression of each, in backquotes."""

from __future__ import annotations

import hashlib
import re

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.paths import names_of

_DIGEST = "\0"
"""Separator in the name of a column, before a suffix that distinguishes it from others of the same text."""
_PATH = "`.`"
"""Makes a name a path (`cer_gpu.ceql.paths`)."""


def derived_name(text: str, context: str = "") -> str:
    """Return the name for the column of an expression, from a text that no other one has.

    Parameters
    ----------
    text
    told_by
        Suffix that distinguishes it from other columns of that text.
    """
    if not context and _PATH not in text and _DIGEST not in text:
        return f"`{text}`"
    seen = re.sub(f"{_DIGEST}[0-9a-f]{{12}}", "", text).replace(_DIGEST, " ").replace(_PATH, ".")
    digest = hashlib.sha256(f"{text}{_DIGEST}{context}".encode()).hexdigest()[:12]
    return f"`{seen}{_DIGEST}{digest}`"


def is_derived(name: str) -> bool:
    """Return True for the name of a derived column, which is in backquotes and no path."""
    return name[:1] == "`" and len(names_of(name)) == 1


def shown(name: str) -> str:
    """Return the expression of a derived column."""
    return name[1:-1].partition(_DIGEST)[0]


def text_of_operand(expression: s.Expression) -> str:
    """Return an expression of one event as a text that no other one has."""
    match expression:
        case s.Attribute():
            if is_derived(expression.name):
                return expression.name[1:-1]
            names = names_of(expression.name)
            return ".".join(name if name.isidentifier() else f"`{name}`" for name in names)
        case s.Literal(value=str(value)):
            quoted = value.replace("'", "''")
            return f"'{quoted}'"
        case s.Literal():
            return expression.text or repr(expression.value)
        case s.Negative():
            return f"-({text_of_operand(expression.operand)})"
        case s.Arithmetic():
            return f"({text_of_operand(expression.left)} {expression.op} {text_of_operand(expression.right)})"
        case _:
            return repr(expression)
