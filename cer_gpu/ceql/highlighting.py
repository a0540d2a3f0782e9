"""A lexer for Pygments, built from the terminals of the grammar: highlighted CEQL in pages, notebooks and editors.

Pygments finds it by its alias, ``ceql``, where the package is installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, ClassVar

from lark.lexer import PatternStr
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import RegexLexer, bygroups
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text

from cer_gpu.ceql.grammar import tree_parser

_TOKENS = {
    "AND": Operator.Word, "OR": Operator.Word, "NOT": Operator.Word, "IN": Operator.Word, "LIKE": Operator.Word,
    "GLOB": Operator.Word, "NOCASE": Operator.Word,
    "BETWEEN": Operator.Word, "IS": Operator.Word, "TRUE": Keyword.Constant, "FALSE": Keyword.Constant,
    "NULL": Keyword.Constant, "NUMBER": Number, "STRING": String.Single, "NAME": Name, "QUOTED_NAME": Name,
    "DOUBLE_QUOTED": Name,
    "NEXT_KEY": Punctuation,
}  # fmt: skip
"""Kinds of token for terminals; other words are keywords, and other signs operators or punctuation."""
_PUNCTUATION = frozenset("()[],.")


def _token_rules() -> Iterator[tuple[str, Any]]:
    """Yield the pattern of each terminal with its kind of token, in the order in which they are tried."""
    yield r"\s+", Text
    yield r"--[^\r\n]*", Comment.Single
    yield r"/\*(.|\n)*?\*/", Comment.Multiline
    terminals = {t.name: t for t in tree_parser().terminals if not t.name.startswith("__IGNORE")}
    name = terminals["NAME"].pattern.value
    yield rf"(\.)({name})", bygroups(Punctuation, Name.Attribute)  # a.limit, whatever words there are
    signs: list[str] = []
    for terminal in terminals.values():
        pattern = terminal.pattern.value
        if pattern[0].isalpha():
            yield pattern, _TOKENS.get(terminal.name, Keyword)
        elif isinstance(terminal.pattern, PatternStr):
            signs.append(re.escape(pattern))
        elif terminal.name not in _TOKENS:
            signs += pattern.removeprefix("(?:").removesuffix(")").split("|")
    yield rf"{name}(?=\s*\()", Name.Function
    for terminal_name in ("NUMBER", "STRING", "QUOTED_NAME", "DOUBLE_QUOTED", "NAME"):
        yield terminals[terminal_name].pattern.value, _TOKENS[terminal_name]
    for sign in sorted(signs, key=lambda sign: -len(sign.replace("\\", ""))):  # ':+' before ':'
        yield sign, Punctuation if sign.removeprefix("\\") in _PUNCTUATION else Operator


class CeqlLexer(RegexLexer):  # type: ignore[misc]
    """Lexer of CEQL for Pygments, alias ``ceql``.

    Examples
    --------
    >>> from cer_gpu.ceql.highlighting import CeqlLexer
    >>> [text for kind, text in CeqlLexer().get_tokens("SELECT * FROM S WHERE A") if "Keyword" in str(kind)]
    ['SELECT', 'FROM', 'WHERE']
    """

    name = "CEQL"
    aliases: ClassVar[list[str]] = ["ceql"]
    filenames: ClassVar[list[str]] = ["*.ceql"]
    flags = re.IGNORECASE
    tokens: ClassVar[dict[str, list[Any]]] = {"root": list(_token_rules())}


@lru_cache(maxsize=1)
def _formatter() -> Any:
    return HtmlFormatter(noclasses=True, nobackground=True, prestyles="margin: 0; white-space: pre-wrap")


def to_html(text: str) -> str:
    """Return the text of a query as HTML, highlighted by inline styles, which notebooks preserve."""
    return str(highlight(text.strip("\n"), CeqlLexer(), _formatter()))
