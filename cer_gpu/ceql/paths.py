"""Names of attributes: the name of a column, or the path to a field of a struct, as one string; quoted strings.

A path has each of its names in backquotes, such as `` `st`.`p` ``.  No name in a query holds a backquote, so a path is
never taken for a column that is called ``st.p``.
"""

from __future__ import annotations

from collections.abc import Sequence


def path_of(names: Sequence[str]) -> str:
    """Return the name of the attribute with these names on its path, the column first."""
    return names[0] if len(names) == 1 else ".".join(f"`{name}`" for name in names)


def names_of(attribute: str) -> tuple[str, ...]:
    """Return the names on the path of an attribute: one for a column, several for a field.

    Examples
    --------
    >>> names_of("st.p"), names_of("`st`.`p`")
    (('st.p',), ('st', 'p'))
    """
    if attribute[:1] == attribute[-1:] == "`" and "`.`" in attribute:
        return tuple(attribute[1:-1].split("`.`"))
    return (attribute,)


LET_MARK = "\0"
"""Stands in the name of a column of LET between the name as written and what tells it from others of that name."""


def dotted(attribute: str) -> str:
    """Return the name of an attribute with dots, for messages and for columns of the results."""
    return ".".join(names_of(attribute)).partition(LET_MARK)[0]


def below(variable: str, attribute: str) -> str | None:
    """Return the attribute that follows a variable on a path, or None if the path does not begin with the variable."""
    first, *rest = names_of(attribute)
    return path_of(rest) if rest and first == variable else None


def string_literal(string: str) -> str:
    """Return a string as CEQL writes it, in single quotes."""
    return "'" + string.replace("'", "''") + "'"
