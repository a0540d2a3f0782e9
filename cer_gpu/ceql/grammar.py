"""The grammar of CEQL (grammar.lark) as a parser of texts into parse trees.

The tables of the parser take some tenths of a second to make.  They are kept in the user's cache, under a digest of all
that they are made of.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from importlib.resources import files

import lark
from lark.lexer import PatternRE, TerminalDef

from cer_gpu.cache import cache_folder, whole_file

UNITS = {"DAYS": 86_400, "HOURS": 3_600, "MINUTES": 60, "SECONDS": 1}
"""Seconds in each unit of a length of time."""


@lru_cache(maxsize=1)
def tree_parser() -> lark.Lark:
    """Return the parser of CEQL."""
    return parser_of("cer_gpu.ceql", ("query", "lone_expression"), _whole_word)


def parser_of(room: str, start: Sequence[str], edit_terminals: Callable[[TerminalDef], None]) -> lark.Lark:
    """Return the parser of the grammar.lark of a package, made once, or loaded as an earlier process has kept it.

    Parameters
    ----------
    room
        Package; what edits its terminals stands in its grammar.py.
    start
        Rules that a text may be.
    edit_terminals
        Changes a terminal.
    """
    grammar = files(room).joinpath("grammar.lark").read_text(encoding="utf-8")
    made = partial(_made, grammar, start, edit_terminals)
    sources = [files(each).joinpath("grammar.py").read_bytes() for each in sorted({room, "cer_gpu.ceql"})]
    made_of = repr((grammar, sources, lark.__version__, sys.version_info[:2]))
    try:
        path = cache_folder("grammar") / hashlib.sha256(made_of.encode()).hexdigest()[:32]
        with path.open("rb") as file:
            return lark.Lark.load(file)
    except FileNotFoundError:
        parser = made()
        with contextlib.suppress(OSError), whole_file(path, 0o600) as written:
            parser.save(written)
        return parser
    except Exception:  # no folder, or a file that is damaged in any way
        return made()


def _made(grammar: str, start: Sequence[str], edit_terminals: Callable[[TerminalDef], None]) -> lark.Lark:
    """Return the parser of a grammar."""
    return lark.Lark(
        grammar,
        start=list(start),
        parser="lalr",
        propagate_positions=True,
        maybe_placeholders=True,
        edit_terminals=edit_terminals,
    )


def _whole_word(terminal: TerminalDef) -> None:
    """Make a keyword match whole words only, and before NAME."""
    word = terminal.pattern.value
    if isinstance(terminal.pattern, lark.lexer.PatternStr) and word.isalpha():
        terminal.pattern = PatternRE(rf"{word}(?!\w)", terminal.pattern.flags)
        terminal.priority = 1
