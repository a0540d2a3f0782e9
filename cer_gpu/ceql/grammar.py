"""The grammar of CEQL (grammar.lark) as a parser of texts into parse trees.

The tables of the parser take some tenths of a second to make.  They are kept in the user's cache, under a digest of all
that they are made of.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from functools import lru_cache
from importlib.resources import files

import lark
from lark.lexer import PatternRE, TerminalDef

from cer_gpu.cache import cache_folder, whole_file

UNITS = {"DAYS": 86_400, "HOURS": 3_600, "MINUTES": 60, "SECONDS": 1}
"""Seconds in each unit of a length of time."""


@lru_cache(maxsize=1)
def tree_parser() -> lark.Lark:
    """Return the parser, made once, or loaded as an earlier process has kept it."""
    room = files("cer_gpu.ceql")
    grammar = room.joinpath("grammar.lark").read_text(encoding="utf-8")
    made_of = repr((grammar, room.joinpath("grammar.py").read_bytes(), lark.__version__, sys.version_info[:2]))
    try:
        path = cache_folder("grammar") / hashlib.sha256(made_of.encode()).hexdigest()[:32]
        with path.open("rb") as file:
            return lark.Lark.load(file)
    except FileNotFoundError:
        parser = _made(grammar)
        with contextlib.suppress(OSError), whole_file(path, 0o600) as written:
            parser.save(written)
        return parser
    except Exception:  # no folder, or a file that is damaged in any way
        return _made(grammar)


def _made(grammar: str) -> lark.Lark:
    """Return the parser of a grammar."""
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
