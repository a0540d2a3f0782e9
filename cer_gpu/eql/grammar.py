"""The grammar of EQL (grammar.lark) as a parser of texts into parse trees."""

from __future__ import annotations

from functools import lru_cache

import lark
from lark.lexer import PatternRE, TerminalDef

from cer_gpu.ceql.grammar import parser_of


@lru_cache(maxsize=1)
def eql_tree_parser() -> lark.Lark:
    """Return the parser, made once, or loaded as an earlier process has kept it."""
    return parser_of("cer_gpu.eql", ("query",), _whole_word)


def _whole_word(terminal: TerminalDef) -> None:
    """Make a keyword match whole words only, in lower case, and before names and functions."""
    word = terminal.pattern.value
    if isinstance(terminal.pattern, lark.lexer.PatternStr) and word.isalpha():
        terminal.pattern = PatternRE(rf"{word}(?![A-Za-z0-9_@])", terminal.pattern.flags)
        terminal.priority = 3
