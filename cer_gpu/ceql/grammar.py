"""The grammar of CEQL (grammar.lark) as a parser of texts into parse trees."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

import lark
from lark.lexer import PatternRE, TerminalDef

UNITS = {"DAYS": 86_400, "HOURS": 3_600, "MINUTES": 60, "SECONDS": 1}
"""Seconds in each unit of a length of time."""


@lru_cache(maxsize=1)
def tree_parser() -> lark.Lark:
    """Return the parser, made once."""
    grammar = files("cer_gpu.ceql").joinpath("grammar.lark").read_text(encoding="utf-8")
    return lark.Lark(
        grammar,
        start=["query", "lone_expression"],
        parser="lalr",
        propagate_positions=True,
        maybe_placeholders=True,
        edit_terminals=_whole_word,
    )


def _whole_word(terminal: TerminalDef) -> None:
    """Make a keyword match whole words only, and before NAME."""
    word = terminal.pattern.value
    if isinstance(terminal.pattern, lark.lexer.PatternStr) and word.isalpha():
        terminal.pattern = PatternRE(rf"{word}(?![a-z_0-9])", terminal.pattern.flags)
        terminal.priority = 1
