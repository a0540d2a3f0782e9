"""A statement with MATCH_RECOGNIZE, cut into its clauses.

sqlglot reads the tokens, and later the expressions; the clauses between the brackets of MATCH_RECOGNIZE are separated
here, as no dialect of sqlglot knows all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cer_gpu.ceql.syntax import Span
from cer_gpu.errors import QuerySyntaxError
from cer_gpu.row_patterns.pattern import RowPattern, parse_pattern

SHOW_EMPTY, OMIT_EMPTY, WITH_UNMATCHED = "SHOW EMPTY MATCHES", "OMIT EMPTY MATCHES", "WITH UNMATCHED ROWS"

_CLAUSES = ("PARTITION BY", "ORDER BY", "MEASURES", "PER MATCH", "AFTER MATCH", "PATTERN", "SUBSET", "DEFINE")
"""The clauses in their order."""
_BEGINS = {
    ("PARTITION", "BY"): 0,
    ("ORDER", "BY"): 1,
    ("MEASURES",): 2,
    ("ONE", "ROW"): 3,
    ("ALL", "ROWS"): 3,
    ("AFTER", "MATCH"): 4,
    ("PATTERN", "("): 5,
    ("SUBSET",): 6,
    ("DEFINE",): 7,
}


@dataclass(frozen=True)
class Named:
    """An expression with its name: ``expression AS name`` or, in DEFINE, ``name AS expression``."""

    name: str
    span: Span


@dataclass(frozen=True)
class Order:
    """A column of ORDER BY."""

    column: str
    ascending: bool
    nulls_first: bool
    span: Span


@dataclass(frozen=True)
class Statement:
    """A statement, cut into its clauses.

    Attributes
    ----------
    text : str
        All of it, to which spans refer.
    select : tuple of (str, str) or None
        Output columns and their names, or None for ``*``.
    table : str
    partition : tuple of (str, (int, int))
        Columns of PARTITION BY.
    order : tuple of Order
    measures, define : tuple of Named
    all_rows : bool
        True for ALL ROWS PER MATCH.
    empty : str
        `SHOW_EMPTY`, `OMIT_EMPTY` or `WITH_UNMATCHED`, for ALL ROWS PER MATCH.
    skip : tuple of str, and its span
        ("PAST LAST ROW",), ("TO NEXT ROW",), ("TO FIRST", variable) or ("TO LAST", variable).
    pattern : RowPattern
    subsets : dict from str to tuple of str
    """

    text: str
    select: tuple[tuple[str, str], ...] | None
    table: str
    partition: tuple[tuple[str, Span], ...]
    order: tuple[Order, ...]
    measures: tuple[Named, ...]
    define: tuple[Named, ...]
    all_rows: bool
    empty: str
    skip: tuple[str, ...]
    skip_span: Span
    pattern: RowPattern
    pattern_span: Span
    subsets: dict[str, tuple[str, ...]]


def parse_statement(text: str) -> Statement:
    """Cut a statement into its clauses.

    Raises
    ------
    QuerySyntaxError
        When a clause is missing, repeated, in the wrong place or unknown.
    """
    return _Parser(text, _tokens_of(text)).statement()


def _tokens_of(text: str) -> list[Any]:
    """Return the words of a statement, without a semicolon after it."""
    from sqlglot.dialects import Trino
    from sqlglot.errors import TokenError

    try:
        tokens = list(Trino().tokenize(text))
    except TokenError as error:
        raise QuerySyntaxError(f"no words of SQL: {error}", text, 0, len(text)) from None
    return tokens[:-1] if tokens and tokens[-1].text == ";" else tokens


class _Parser:
    """Parser of one statement: tokens, and a place among them."""

    def __init__(self, text: str, tokens: list[Any]) -> None:
        self._text, self._tokens = text, tokens
        self._at = 0

    # ---- tokens -----------------------------------------------------------------------------------------------

    def word(self, ahead: int = 0) -> str:
        """Return a token in upper case, or as it is in the text if it is quoted; "" at the end."""
        at = self._at + ahead
        if at >= len(self._tokens):
            return ""
        token = self._tokens[at]
        written = self._text[token.start : token.end + 1]
        return " ".join(written.split()).upper() if written[:1] not in "\"'" else written

    def span(self, ahead: int = 0) -> Span:
        """Return the place of a token, or the end of the text."""
        at = self._at + ahead
        return (self._tokens[at].start, self._tokens[at].end + 1) if at < len(self._tokens) else (len(self._text),) * 2

    def error(self, message: str, span: Span | None = None, hint: str = "") -> QuerySyntaxError:
        """Return an error at a token, or at a place."""
        return QuerySyntaxError(message, self._text, *(span or self.span()), hint)

    def seen(self) -> str:
        """Return the next token for a message."""
        return repr(self._text[slice(*self.span())]) if self.word() else "the end"

    def skip(self, *words: str) -> bool:
        """Skip these words if they come next."""
        n = 0
        taken: list[str] = []
        while len(taken) < len(words) and self.word(n):
            taken += self.word(n).split()
            n += 1
        if taken != list(words):
            return False
        self._at += n
        return True

    def expect(self, *words: str) -> None:
        """Skip these words, which must come next."""
        if not self.skip(*words):
            raise self.error(f"expected {' '.join(words)}, got {self.seen()}")

    def name(self, what: str) -> str:
        """Skip a name, and return it as it names a column: quoted or not, its case is preserved."""
        word = self._text[slice(*self.span())]
        if not re.fullmatch(r'[A-Za-z_]\w*|"([^"]|"")+"', word):
            raise self.error(f"expected {what}, got {self.seen()}")
        self._at += 1
        return word[1:-1].replace('""', '"') if word.startswith('"') else word

    def variable(self) -> str:
        """Skip the name of a row pattern variable and return it, in upper case unless it is quoted."""
        quoted = self.word().startswith('"')
        name = self.name("a variable")
        return name if quoted else name.upper()

    # ---- the statement ----------------------------------------------------------------------------------------

    def statement(self) -> Statement:
        """Return the statement."""
        self.expect("SELECT")
        select = self._parse_select()
        self.expect("FROM")
        if self.word() == "(":
            raise self.error(
                f"expected the name of a table, got {self.seen()}: a query in FROM is not evaluated here",
                hint="evaluate it first, and give its table as the events: query.evaluate(duckdb.sql('SELECT ...'))",
            )
        table = self.name("the name of a table")
        while self.skip("."):
            table = self.name("the name of a table")
        if self.word() not in ("MATCH_RECOGNIZE", ""):
            self.skip("AS")
            self.name("MATCH_RECOGNIZE")
        self.expect("MATCH_RECOGNIZE")
        self.expect("(")
        clauses = self._clauses()
        if self.skip("AS") or self.word():
            if not re.fullmatch(r'[A-Z_]\w*|".*"', self.word()) or self.word() in _OUTER:
                raise self._beyond()
            self.name("a name")
        if self.word():
            raise self._beyond()
        return self._statement_of_clauses(select, table, clauses)

    def _beyond(self) -> QuerySyntaxError:
        hint = "evaluate this, and do the rest over its table, in DuckDB, Polars or pandas"
        return self.error(f"{self.seen()} after MATCH_RECOGNIZE (...) is not supported", hint=hint)

    def _parse_select(self) -> tuple[tuple[str, str], ...] | None:
        if self.skip("*"):
            return None
        columns: list[tuple[str, str]] = []
        while True:
            column = self.name("* or the name of a column")
            if self.skip("."):
                if self.skip("*"):
                    return None
                column = self.name("the name of a column")
            alias, at = column, self._at - 1
            if self.skip("AS") or self.word() not in (",", "FROM"):
                at = self._at
                alias = self.name("a comma, FROM or a name (expressions stand in MEASURES)")
            if any(alias == other for _, other in columns):
                self._at = at
                raise self.error(f"two columns of SELECT are called {alias!r}", hint="rename one: column AS name")
            columns.append((column, alias))
            if not self.skip(","):
                return tuple(columns)

    def _clauses(self) -> dict[str, range]:
        """Skip all clauses and the bracket after them; return the tokens of each."""
        clauses: dict[str, tuple[int, int]] = {}
        depth, last, begin = 0, -1, self._at
        while True:
            word = self.word()
            if not word:
                raise self.error("expected a bracket that ends MATCH_RECOGNIZE (", hint="close it with )")
            kind = self._clause_kind() if depth == 0 else None
            if kind is not None or (word == ")" and depth == 0):
                if last >= 0:
                    clauses[_CLAUSES[last]] = (begin, self._at)
                elif self._at > begin:
                    self._at = begin
                    raise self.error(f"expected a clause of MATCH_RECOGNIZE, got {self.seen()}", hint=_ORDER_HINT)
                if kind is None:
                    self._at += 1
                    break
                if _CLAUSES[kind] in clauses or kind < last:
                    twice = _CLAUSES[kind] in clauses
                    reason = "stands twice" if twice else f"stands after {_CLAUSES[last]}"
                    raise self.error(f"{self.seen()} {reason} in MATCH_RECOGNIZE", hint=_ORDER_HINT)
                last, begin = kind, self._at
            depth += (word in ("(", "{")) - (word in (")", "}"))
            self._at += 1
        return {name: range(*tokens) for name, tokens in clauses.items()}

    def _clause_kind(self) -> int | None:
        """Return the clause that begins at the next token."""
        words = " ".join(self.word(i) for i in range(2)).split()
        if words[1:2] == ["PATTERN"] and self.word(-1) != "AS" and words[0] in ("INITIAL", "SEEK"):
            raise self.error(f"{words[0]} is not supported: only MATCH_RECOGNIZE in FROM is")
        if words[:1] in (["SUBSET"], ["DEFINE"]) and self.word(2) not in ("=", "AS"):
            return None  # a column of that name
        return next((clause for begin, clause in _BEGINS.items() if tuple(words[: len(begin)]) == begin), None)

    def _statement_of_clauses(
        self, select: tuple[tuple[str, str], ...] | None, table: str, clauses: dict[str, range]
    ) -> Statement:
        end = self._at - 1
        for needed in ("PATTERN", "DEFINE"):
            if needed not in clauses:
                self._at = end
                raise self.error(f"MATCH_RECOGNIZE needs {needed}", hint=_ORDER_HINT)
        within = {name: self._parse_within(tokens) for name, tokens in clauses.items()}
        pattern_span = within["PATTERN"].bracket()
        all_rows, empty = within["PER MATCH"].per_match() if "PER MATCH" in within else (False, SHOW_EMPTY)
        skip: tuple[str, ...] = ("PAST LAST ROW",)
        skip_span = (0, 0)
        if "AFTER MATCH" in within:
            skip, skip_span = within["AFTER MATCH"].after_match()
        return Statement(
            text=self._text,
            select=select,
            table=table,
            partition=within["PARTITION BY"].columns() if "PARTITION BY" in within else (),
            order=within["ORDER BY"].order() if "ORDER BY" in within else (),
            measures=within["MEASURES"].measures() if "MEASURES" in within else (),
            define=within["DEFINE"].define(),
            all_rows=all_rows,
            empty=empty,
            skip=skip,
            skip_span=skip_span,
            pattern=parse_pattern(self._text, pattern_span),
            pattern_span=pattern_span,
            subsets=within["SUBSET"].subsets() if "SUBSET" in within else {},
        )

    def _parse_within(self, tokens: range) -> _Clause:
        return _Clause(self._text, self._tokens[tokens.start : tokens.stop])


_OUTER = {
    "WHERE",
    "GROUP",
    "GROUP BY",
    "ORDER",
    "ORDER BY",
    "LIMIT",
    "HAVING",
    "JOIN",
    "UNION",
    "QUALIFY",
    "WINDOW",
    ",",
}
_ORDER_HINT = (
    "the clauses are PARTITION BY, ORDER BY, MEASURES, ONE ROW or ALL ROWS PER MATCH, AFTER MATCH SKIP, PATTERN, "
    "SUBSET, DEFINE, in this order"
)


class _Clause(_Parser):
    """Parser of the tokens of one clause."""

    def span(self, ahead: int = 0) -> Span:
        """Return the place of a token, or the end of the clause."""
        at = self._at + ahead
        if at < len(self._tokens):
            return self._tokens[at].start, self._tokens[at].end + 1
        return self._tokens[-1].end, self._tokens[-1].end + 1

    def _ended(self) -> None:
        if self.word():
            raise self.error(f"expected the next clause, got {self.seen()}", hint=_ORDER_HINT)

    def _items(self) -> Iterator[tuple[int, int]]:
        """Yield the tokens of the parts between commas, as ranges; the parser is at each meanwhile."""
        while True:
            begin, depth = self._at, 0
            while self.word() and (depth or self.word() != ","):
                depth += (self.word() == "(") - (self.word() == ")")
                self._at += 1
            end = self._at
            self._at = begin
            if begin == end:
                raise self.error(f"expected an item, got {self.seen()}")
            yield begin, end
            self._at = end
            if not self.skip(","):
                return

    def _after_column(self) -> None:
        if self.word() not in (",", ""):
            raise self.error(f"expected a comma or the next clause, got {self.seen()}", hint="columns alone")

    def bracket(self) -> Span:
        """Return the place between the brackets of PATTERN."""
        self.expect("PATTERN")
        begin = self.span()[1]
        if self._tokens[-1].text != ")":
            self._at = len(self._tokens) - 1
            raise self.error(f"expected the next clause, got {self.seen()}", hint=_ORDER_HINT)
        return begin, self._tokens[-1].start

    def columns(self) -> tuple[tuple[str, Span], ...]:
        """Return the columns of PARTITION BY."""
        self.expect("PARTITION", "BY")
        columns = []
        for _ in self._items():
            span = self.span()
            columns.append((self._path(), span))
            self._after_column()
        return tuple(columns)

    def _path(self) -> str:
        """Return the name of a column, or of a field of a struct, with dots."""
        names = [self.name("the name of a column")]
        while self.skip("."):
            names.append(self.name("the name of a field"))
        return ".".join(names)

    def order(self) -> tuple[Order, ...]:
        """Return the columns of ORDER BY; NULL comes last, as in most systems, unless stated otherwise."""
        self.expect("ORDER", "BY")
        orders = []
        for _ in self._items():
            span = self.span()
            column = self._path()
            ascending = not self.skip("DESC")
            if ascending:
                self.skip("ASC")
            nulls_first = False
            if self.skip("NULLS", "FIRST"):
                nulls_first = True
            else:
                self.skip("NULLS", "LAST")
            self._after_column()
            orders.append(Order(column, ascending, nulls_first, span))
        return tuple(orders)

    def measures(self) -> tuple[Named, ...]:
        """Return the measures."""
        self.expect("MEASURES")
        measures: list[Named] = []
        for begin, end in self._items():
            self._at = end - 2
            if end - begin < 3 or self.word() != "AS":
                self._at = end - 1
                raise self.error("a measure has a name: expression AS name")
            span = self._tokens[begin].start, self._tokens[end - 3].end + 1
            self._at = end - 1
            name = self.name("the name of the measure")
            if any(each.name == name for each in measures):
                self._at = end - 1
                raise self.error(f"two measures are called {name!r}")
            measures.append(Named(name, span))
        return tuple(measures)

    def define(self) -> tuple[Named, ...]:
        """Return the conditions of variables."""
        self.expect("DEFINE")
        conditions: list[Named] = []
        for begin, end in self._items():
            name = self.variable()
            if any(each.name == name for each in conditions):
                self._at = begin
                raise self.error(f"DEFINE has {name} twice")
            self.expect("AS")
            if self._at == end:
                raise self.error(f"expected the condition of {name}, got {self.seen()}")
            conditions.append(Named(name, (self._tokens[self._at].start, self._tokens[end - 1].end + 1)))
        return tuple(conditions)

    def per_match(self) -> tuple[bool, str]:
        """Return whether all rows of a match are requested, and the treatment of others."""
        if self.skip("ONE", "ROW", "PER", "MATCH"):
            self._ended()
            return False, SHOW_EMPTY
        self.expect("ALL", "ROWS", "PER", "MATCH")
        empty = next(
            (each for each in (SHOW_EMPTY, OMIT_EMPTY, WITH_UNMATCHED) if self.skip(*each.split())), SHOW_EMPTY
        )
        self._ended()
        return True, empty

    def after_match(self) -> tuple[tuple[str, ...], Span]:
        """Return where the search continues."""
        begin = self.span()[0]
        self.expect("AFTER", "MATCH", "SKIP")
        skip: tuple[str, ...] = ()
        if self.skip("PAST", "LAST", "ROW"):
            skip = ("PAST LAST ROW",)
        elif self.skip("TO", "NEXT", "ROW"):
            skip = ("TO NEXT ROW",)
        else:
            self.expect("TO")
            side = "TO FIRST" if self.skip("FIRST") else "TO LAST"
            self.skip("LAST")
            skip = (side, self.variable())
        self._ended()
        return skip, (begin, self._tokens[-1].end + 1)

    def subsets(self) -> dict[str, tuple[str, ...]]:
        """Return the variables of each subset."""
        self.expect("SUBSET")
        subsets: dict[str, tuple[str, ...]] = {}
        for _ in self._items():
            name = self.variable()
            if name in subsets:
                raise self.error(f"SUBSET has {name} twice")
            self.expect("=")
            self.expect("(")
            members = [self.variable()]
            while self.skip(","):
                members.append(self.variable())
            self.expect(")")
            subsets[name] = tuple(members)
        return subsets
