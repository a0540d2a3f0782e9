"""The grammar of CEQL (grammar.lark) as a parser of texts into parse trees.

The tables of the parser take some tenths of a second to build.  They are cached on disk, under a digest of all
their inputs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from importlib.resources import files
from typing import Any

import lark
from lark.grammar import Rule
from lark.lexer import PatternRE, TerminalDef

from cer_gpu.cache import own_folder, read_cached, write_cached
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import Node, children, fold
from cer_gpu.errors import QueryTooLargeError

MAX_NESTING = 100
"""Most levels of a query.  Parentheses, ``AS`` and ``FILTER`` add none; a chain of one of ``; : ALL OR AND`` is one
level, of any length, also with filters between.  Pickling needs the deepest stack: some three frames a level."""

_CHAINS = (s.Sequence, s.Conjunction, s.Disjunction)
_Chain = type[s.Sequence] | type[s.Conjunction] | type[s.Disjunction] | None


def check_nesting(formula: s.Formula | s.Predicate | s.Expression, text: str) -> None:
    """Raise QueryTooLargeError if a formula, with its filters, a predicate or an expression is nested too deeply."""

    def descend(item: tuple[Node, int, _Chain]) -> list[tuple[Node, int, _Chain]]:
        node, level, around = item
        chain: _Chain = None
        if isinstance(node, s.Assign | s.Filtered):
            chain = around
        else:
            chain = next((kind for kind in _CHAINS if isinstance(node, kind)), None)
            level += chain is None or chain is not around
        if level > MAX_NESTING:
            start, _ = getattr(node, "span", (None, None))
            message = f"the query is nested more than {MAX_NESTING} levels deep"
            raise QueryTooLargeError(message, text, start, hint=_HINT)
        return [(child, level, chain) for child in children(node)]

    root: tuple[Node, int, _Chain] = (formula, 0, None)
    fold(root, lambda item, below: None, descend)


_HINT = (
    "a chain of ;, ALL, OR or AND is one level, however long; a list of values is IN {...}; "
    "a long sum can be a column of its own"
)


UNITS = {"DAYS": 86_400, "HOURS": 3_600, "MINUTES": 60, "SECONDS": 1}
"""Seconds in each unit of a length of time."""


@lru_cache(maxsize=1)
def tree_parser() -> lark.Lark:
    """Return the parser of CEQL."""
    return parser_of("cer_gpu.ceql", ("query", "lone_expression"), _whole_word)


def parser_of(package: str, start: Sequence[str], edit_terminals: Callable[[TerminalDef], None]) -> lark.Lark:
    """Return the parser of the grammar.lark of a package, from the disk cache if an earlier process has built it.

    Parameters
    ----------
    package
        Name of the package.
    start
        Rules that a whole text may match.
    edit_terminals
        Changes a terminal.
    """
    grammar = files(package).joinpath("grammar.lark").read_text(encoding="utf-8")
    build = partial(_build_parser, grammar, start, edit_terminals)
    modules = sorted({edit_terminals.__module__, __name__})  # the tables depend on what these do
    sources = [
        files(folder).joinpath(f"{name}.py").read_bytes()
        for folder, _, name in (each.rpartition(".") for each in modules)
    ]
    inputs = repr((grammar, sources, lark.__version__, sys.version_info[:2]))
    try:
        path = own_folder("grammar") / hashlib.sha256(inputs.encode()).hexdigest()[:32]
        parser: lark.Lark = lark.Lark.load(json.loads(read_cached(path), object_hook=_with_integer_keys))
        return parser
    except FileNotFoundError:
        parser = build()
        with contextlib.suppress(OSError):
            write_cached(path, _tables(parser).encode())
        return parser
    except Exception:  # no folder, or a file that is damaged in any way
        return build()


def _tables(parser: lark.Lark) -> str:
    """Return the tables of a parser as JSON: lists in the place of tuples, which it reads as well."""
    data, memo = parser.memo_serialize([TerminalDef, Rule])
    data["options"] = data["options"] | {"edit_terminals": None}  # they are edited already
    return json.dumps({"data": data, "memo": memo})


def _with_integer_keys(read: dict[str, Any]) -> dict[Any, Any]:
    """Return a JSON object with integer keys where they were integers: states, tokens, and places in the memo."""
    is_numbered = next(iter(read), "").isdigit()
    return {int(key): value for key, value in read.items()} if is_numbered else read


def _build_parser(grammar: str, start: Sequence[str], edit_terminals: Callable[[TerminalDef], None]) -> lark.Lark:
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
