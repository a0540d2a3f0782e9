r"""Strings of messages: foreign strings made safe to print, on a terminal, in a page or a picture; and counted nouns.

Names of columns, files and rules, values, and queries may hold characters that move the cursor, set its colour, ring,
or change the direction of writing.  They are shown as in a literal of Python (``\x1b``, ``\u202e``), never sent.
"""

from __future__ import annotations

from html import escape


def printable(text: str) -> str:
    r"""Escape the characters of a text that would break its line, move the cursor or change the writing direction.

    Examples
    --------
    >>> print(printable("\x1b[31mred\n"))
    \x1b[31mred\n
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def utf8(text: str) -> str:
    r"""Escape what is no UTF-8 in the name of a file, for tables and documents, which hold nothing else.

    Examples
    --------
    >>> import os
    >>> print(utf8(os.fsdecode(b"late\xff.csv")))
    late\udcff.csv
    """
    return text.encode("utf-8", "backslashreplace").decode()


def printable_lines(text: str) -> str:
    """Return the same for a text of several lines, whose breaks and tabs stay."""
    if text.isprintable():
        return text
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def html_text(text: str) -> str:
    r"""Return a text for a page or a picture, which is shown and never read as markup.

    Examples
    --------
    >>> print(html_text("<b>\x1b"))
    &lt;b&gt;\x1b
    """
    return escape(printable_lines(text))


def plural(what: str) -> str:
    """Return the plural of a noun.

    Examples
    --------
    >>> [plural(noun) for noun in ("row of bindings", "key", "query", "match")]
    ['rows of bindings', 'keys', 'queries', 'matches']
    """
    head, of, rest = what.partition(" of ")
    if head.endswith("y") and head[-2:-1] not in set("aeiou"):
        several = f"{head[:-1]}ies"
    else:
        several = f"{head}es" if head.endswith("ch") else f"{head}s"
    return f"{several}{of}{rest}"


def counted(n: int, what: str) -> str:
    """Return a number with its noun, such as "2 rows of bindings"."""
    return f"{n:,} {what if n == 1 else plural(what)}"
