"""Expressions of SQL as expressions of CEQL over leaves: rows of variables, aggregates, CLASSIFIER and MATCH_NUMBER.

sqlglot parses them; the syntax trees of CEQL carry them on, so that the predicates of DEFINE are bound and evaluated by
the code that serves CEQL (`cer_gpu.predicates`), and measures by its arithmetic (`cer_gpu.expressions.targets.arrow`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.dialects import Trino

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.functions import SCALAR
from cer_gpu.ceql.syntax import Span
from cer_gpu.errors import QueryError, QuerySyntaxError
from cer_gpu.expressions.functions import TRUNC_UNITS
from cer_gpu.row_patterns.leaves import Classifier, MatchNumber, Null, RowAggregate, RowLeaf, RowValue, name_among
from cer_gpu.row_patterns.pattern import check_expression, check_words, operands_of, too_deep_for_sql

_Node = exp.Expr
"""An expression as sqlglot parses it."""


_AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX", "ARRAY_AGG")
_SEMANTICS = ("RUNNING", "FINAL")
_AROUND: dict[type[_Node], tuple[str, str]] = {
    exp.Paren: (r"\(\s*$", r"\s*\)"),
    exp.In: ("", r"\s*\)"),
    exp.Neg: (r"-\s*$", ""),
    exp.Not: (r"(?i)\bNOT\s*$", ""),
    exp.Interval: (r"(?i)\bINTERVAL\s*$", r"\s+\w+"),
    exp.Is: ("", r"(?i)\s+IS\s+(?:NOT\s+)?NULL"),
}
"""Source text before and after the children of a node that belongs to it; of a function, its brackets."""
_MAX_ROWS = 10**9
"""Maximum number of rows that PREV, NEXT, FIRST and LAST go."""
_COMPARISONS: dict[type[_Node], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_ARITHMETIC: dict[type[_Node], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_FUNCTIONS: dict[type[_Node], str] = {
    exp.Abs: "abs",
    exp.Round: "round",
    exp.Lower: "lower",
    exp.Upper: "upper",
    exp.Length: "length",
}
_PARTS = {part.upper(): part for part in ("minute", "hour", "day", "week", "month", "year")}
_PARTS_OF: dict[type[Any], str] = {
    exp.Minute: "minute",
    exp.Hour: "hour",
    exp.Day: "day",
    exp.DayOfMonth: "day",
    exp.Week: "week",
    exp.Month: "month",
    exp.Year: "year",
    exp.Date: "date",
    exp.TsOrDsToDate: "date",
}
"""Functions of times by the nodes of their calls."""
_OUTSIDE = "make a column of it first, in DuckDB, Polars or pandas, and read that"
_INSTEAD: dict[type[Any], str] = {
    exp.Coalesce: "write x > 100 OR x IS NULL",
    exp.Lag: "write PREV(x)",
    exp.Lead: "write NEXT(x)",
    **dict.fromkeys((exp.Case, exp.If), "write the cases with OR and AND"),
    **dict.fromkeys((exp.DateDiff, exp.TimestampDiff), "write ts - PREV(ts) > INTERVAL '1' HOUR"),
    **dict.fromkeys(
        (exp.Trunc, exp.TimestampTrunc, exp.DateTrunc),
        f"TRUNC(x) of numbers; TRUNC(ts, unit): {', '.join(TRUNC_UNITS)}",
    ),
    exp.Floor: "write x >= 2 AND x < 3, or ROUND(x)",
    exp.Ceil: "write x > 1 AND x <= 2, or ROUND(x)",
    **dict.fromkeys(
        (exp.Cast, exp.TryCast),
        "numbers and times of all types are compared as they are; NUMBER(text) is a number, DATE(ts) a day",
    ),
}
"""Ways out for what is not supported."""
_SECONDS = {
    "NANOSECOND": Fraction(1, 10**9),
    "MICROSECOND": Fraction(1, 10**6),
    "MILLISECOND": Fraction(1, 1000),
    "SECOND": Fraction(1),
    "MINUTE": Fraction(60),
    "HOUR": Fraction(3600),
    "DAY": Fraction(86400),
    "WEEK": Fraction(7 * 86400),
}


@dataclass
class Translator:
    """Translator of the expressions of one statement.

    Attributes
    ----------
    text : str
        The statement.
    variables : frozenset of str
        Variables and subsets; another name before a dot is an error.
    leaves : dict from str to RowLeaf
        The leaves so far, by the names of their attributes.
    """

    text: str
    variables: frozenset[str]
    leaves: dict[str, RowLeaf] = field(default_factory=dict)
    _span: Span = (0, 0)
    _spans: dict[int, Span] = field(default_factory=dict)
    _of_match: s.Name | None = None

    def predicate(self, span: Span) -> s.Predicate:
        """Return the condition in a part of the statement; its attributes are named as `leaves` are."""
        return self._predicate(self._parsed(span))

    def measure(self, span: Span) -> s.Expression:
        """Return the expression in a part of the statement; its attributes, of a match, are named as `leaves` are."""
        self._of_match = s.Name("match")
        return self._bind_value(self._parsed(span))

    def _parsed(self, span: Span) -> _Node:
        self._span = span
        written = self.text[slice(*span)]
        try:
            tokens = Trino().tokenize(written)
            check_words(tokens, self.text, span[0])
            parsed = sqlglot.parse_one(_join_semantics(written, tokens), read="trino")
        except RecursionError:  # little was left of Python's stack
            raise too_deep_for_sql(self.text, span) from None
        except sqlglot.errors.SqlglotError as error:
            messages = getattr(error, "errors", [])
            seen = messages[0]["highlight"] if messages else ""
            at = span[0]
            if messages:
                before = written.split("\n")[: messages[0]["line"] - 1]
                at += sum(len(line) + 1 for line in before) + messages[0]["col"] - 1
            at = min(max(at, span[0]), span[1] - 1)
            reason = f"unexpected {seen!r} in an expression" if seen else f"no expression of SQL: {error}"
            raise QuerySyntaxError(reason, self.text, at, at + max(1, len(seen))) from None
        self._spans = {}
        for node in reversed(list(parsed.walk())):  # children before their parents
            self._locate_node(node)
        check_expression(parsed, self.text, self._at)
        return parsed

    def _locate_node(self, node: _Node) -> None:
        """Find the span of a node: from its first word or child to its last, with the signs around them."""
        spans = [self._spans[id(child)] for child in node.iter_expressions() if id(child) in self._spans]
        before, after = _AROUND.get(type(node), ("", ""))
        if "start" in node.meta:  # the word of a leaf, or the name of a function
            spans.append((self._span[0] + node.meta["start"], self._span[0] + node.meta["end"] + 1))
            after = r"\s*(?:\(\s*)?\)" if isinstance(node, exp.Func) else after
        if spans:
            begin, end = min(begin for begin, _ in spans), max(end for _, end in spans)
            left = re.search(before, self.text[self._span[0] : begin]) if before else None
            right = re.compile(after).match(self.text, end)
            self._spans[id(node)] = self._span[0] + left.start() if left else begin, right.end() if right else end

    def _at(self, node: _Node) -> Span:
        """Return the place of a node in the statement, or that of the whole expression if it is unknown."""
        return self._spans.get(id(node), self._span)

    def _statement_error(self, message: str, hint: str = "", name: str = "", node: _Node | None = None) -> QueryError:
        """Return an error at a word of a node, or of the whole expression, or at all of it."""
        places = [self._span] if node is None else [self._at(node), self._span]
        words_in_text = (re.search(rf"(?i)\b{re.escape(name)}", self.text[slice(*place)]) for place in places if name)
        words = (
            (place[0] + word.start(), place[0] + word.end())
            for place, word in zip(places, words_in_text, strict=False)
            if word
        )
        begin, end = next(words, places[0])
        return QueryError(message, self.text, begin, end, hint)

    def _unsupported(self, node: _Node) -> QueryError:
        name = node.sql_name() if isinstance(node, exp.Func) else node.key
        name = node.name if isinstance(node, exp.Anonymous) else name
        if type(node) in _COMPARISONS or isinstance(node, exp.Connector | exp.Not):
            return self._statement_error("conditions stand in DEFINE, and not in MEASURES", node=node)
        hint = _INSTEAD.get(type(node), _OUTSIDE)
        return self._statement_error(f"{name.upper()} is not supported in MATCH_RECOGNIZE", hint, name=name, node=node)

    # ---- conditions ------------------------------------------------------------------------------------------

    def _predicate(self, node: _Node) -> s.Predicate:
        span = self._at(node)
        match node:
            case exp.Paren():
                return self._predicate(node.this)
            case exp.And() | exp.Or():
                kind = s.And if isinstance(node, exp.And) else s.Or
                parts: list[s.Predicate] = []
                for part in map(self._predicate, operands_of(node)):
                    parts += part.operands if isinstance(part, kind) else [part]
                return kind(tuple(parts), span)
            case exp.Not():
                return s.Not(self._predicate(node.this), span)
            case exp.Between():
                value = self._bind_value(node.this)
                low, high = self._bind_value(node.args["low"]), self._bind_value(node.args["high"])
                return s.And(
                    (self._bind_comparison(">=", value, low, span), self._bind_comparison("<=", value, high, span)),
                    span,
                )
            case exp.In() if node.expressions:
                values = tuple(self._bind_value(each) for each in node.expressions)
                return s.Membership(self._bind_value(node.this), values, span)
            case exp.Is() if isinstance(node.expression, exp.Null):
                return s.IsNull(self._bind_value(node.this), span)
            case exp.NullSafeEQ() | exp.NullSafeNEQ():
                same = self._not_distinct(self._bind_value(node.this), self._bind_value(node.expression), span)
                return same if isinstance(node, exp.NullSafeEQ) else s.Not(same, span)
            case exp.Like() if isinstance(node.expression, exp.Literal) and node.expression.is_string:
                return self._like(node.this, _like(node.expression.name, None), span)
            case exp.Escape() if isinstance(node.this, exp.Like) and isinstance(node.this.expression, exp.Literal):
                return self._like(node.this.this, _like(node.this.expression.name, node.expression.name), span)
            case exp.RegexpLike() if isinstance(node.expression, exp.Literal):
                return self._like(node.this, node.expression.name, span)
            case exp.Boolean():
                truth = s.Literal(1, "1", span)
                return s.Comparison("=" if node.this else "<>", truth, truth, span)
            case exp.Column() | exp.Anonymous() | exp.Null():  # a column of booleans
                return s.Comparison("=", self._bind_value(node), s.Literal(True, "", span), span)
        op = _COMPARISONS.get(type(node))
        if op is None:
            raise self._unsupported(node)
        return self._bind_comparison(op, self._bind_value(node.this), self._bind_value(node.expression), span)

    def _not_distinct(self, x: s.Expression, y: s.Expression, span: Span) -> s.Predicate:
        """Return ``x IS NOT DISTINCT FROM y``, which is never unknown."""
        nulls = s.IsNull(x, span), s.IsNull(y, span)
        not_nulls = tuple(s.Not(each, span) for each in nulls)
        equal = s.And((*not_nulls, s.Comparison("=", x, y, span)), span)
        return s.Or((s.And(nulls, span), equal), span)

    def _like(self, operand: _Node, regex: str, span: Span) -> s.Like:
        return s.Like("LIKE", self._bind_value(operand), (s.Literal(regex, "", span),), span=span)

    def _bind_comparison(self, op: str, left: s.Expression, right: s.Expression, span: Span) -> s.Comparison:
        """Return a comparison; times with intervals added to them are compared by their difference."""
        (x, before), (y, after) = _without_lengths(left), _without_lengths(right)
        left = s.Duration(before, left.span) if x is None and before is not None else left
        right = s.Duration(after, right.span) if y is None and after is not None else right
        if x is None or y is None or before is None is after:
            return s.Comparison(op, left, right, span)
        length = s.Duration((after or Fraction(0)) - (before or Fraction(0)), (left if after is None else right).span)
        return s.Comparison(op, s.Arithmetic("-", x, y, span), length, span)

    # ---- values ----------------------------------------------------------------------------------------------

    def _bind_value(self, node: _Node) -> s.Expression:
        leaf, span = self._leaf(node), self._at(node)
        if leaf is not None:
            return self._leaf_attribute(leaf, span)
        match node:
            case exp.Paren():
                return self._bind_value(node.this)
            case exp.Neg():
                return s.Negative(self._bind_value(node.this), span)
            case exp.Null():
                return self._leaf_attribute(Null(), span)
            case exp.Boolean():
                return s.Literal(bool(node.this), "", span)
            case exp.Literal() if node.is_string:
                return s.Literal(node.name, "", span)
            case exp.Literal():
                whole = re.fullmatch(r"[0-9]+", node.name)
                return s.Literal(int(node.name) if whole else float(node.name), node.name, span)
            case exp.Interval():
                return self._interval(node)
            case exp.Cast() if isinstance(node.this, exp.Literal):
                if node.to.this in exp.DataType.TEMPORAL_TYPES:
                    return s.Literal(node.this.name, "", span)
            case exp.Cast() if node.to.this in exp.DataType.TEXT_TYPES:
                return s.Call("string", (self._bind_value(node.this),), span)
            case exp.Cast() if node.to.this in (exp.DataType.Type.DATE, exp.DataType.Type.DATE32):
                return s.Call("date", (self._bind_value(node.this),), span)
            case exp.Cast() if node.to.this in (exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT):
                return s.Arithmetic("*", self._bind_value(node.this), s.Literal(1.0, "1.0", span), span)
            case exp.Trunc() | exp.TimestampTrunc() | exp.DateTrunc() if (unit := _unit_of(node)) in TRUNC_UNITS:
                return s.Call("trunc", (self._bind_value(node.this), s.Literal(unit, "", span)), span)
            case exp.Trunc() if not _unit_of(node):
                value = self._bind_value(node.this)  # TRUNC(x) goes towards zero, as % does
                return s.Arithmetic("-", value, s.Arithmetic("%", value, s.Literal(1, "1", span), span), span)
            case exp.Anonymous() if node.name.lower() in SCALAR:
                return s.Call(node.name.lower(), tuple(self._bind_value(each) for each in node.expressions), span)
            case exp.Extract() if node.name.upper() in _PARTS:
                return s.Call(_PARTS[node.name.upper()], (self._bind_value(node.expression),), span)
        op = _ARITHMETIC.get(type(node))
        if op is not None:
            return s.Arithmetic(op, self._bind_value(node.this), self._bind_value(node.expression), span)
        function = _FUNCTIONS.get(type(node)) or _PARTS_OF.get(type(node))
        if function is None or (function == "round" and node.args.get("decimals") is not None):
            raise self._unsupported(node)
        return s.Call(function, (self._bind_value(node.this),), span)

    def _interval(self, node: exp.Interval) -> s.Duration:
        unit = node.unit.name.upper().rstrip("S") if node.unit is not None else "SECOND"
        if unit not in _SECONDS or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", node.name):
            raise self._statement_error("an INTERVAL is a number of weeks or less, like INTERVAL '5' MINUTE", node=node)
        return s.Duration(Fraction(node.name) * _SECONDS[unit], self._at(node))

    # ---- leaves ----------------------------------------------------------------------------------------------

    def _leaf_attribute(self, leaf: RowLeaf, span: Span) -> s.Attribute:
        return s.Attribute(name_among(leaf, self.leaves), span, self._of_match)

    def _leaf(self, node: _Node, final: bool | None = None) -> RowLeaf | None:
        if isinstance(node, exp.Column):
            column, variable = self._resolve_column(node)
            return RowValue(column, variable, final=final)
        name, arguments = self._call(node)
        for word, said in (("FINAL_", True), ("RUNNING_", False)):
            if name.startswith(word):
                name, final = name.removeprefix(word).lstrip("_"), said
        if name in ("PREV", "NEXT"):
            return self._physical(name, arguments, final)
        if name in ("FIRST", "LAST"):
            return self._logical(name, arguments, final)
        if name == "CLASSIFIER":
            self._expect_arguments(name, arguments, 0, 1)
            return Classifier(self._variable(arguments[0]) if arguments else None, final=final)
        if name == "MATCH_NUMBER":
            self._expect_arguments(name, arguments, 0, 0)
            return MatchNumber()
        if name in _AGGREGATES:
            return self._bind_aggregate(name, arguments, final)
        if final is not None:
            word = "FINAL" if final else "RUNNING"
            raise self._statement_error(
                f"{word} stands before FIRST, LAST or an aggregate, not before {name}", name=word
            )
        return None

    def _call(self, node: _Node) -> tuple[str, list[_Node]]:
        """Return the name and the arguments of a function that makes a leaf; ("", []) for anything else."""
        names: dict[type[_Node], str] = {
            exp.First: "FIRST",
            exp.Last: "LAST",
            exp.Count: "COUNT",
            exp.Sum: "SUM",
            exp.Avg: "AVG",
            exp.Min: "MIN",
            exp.Max: "MAX",
            exp.ArrayAgg: "ARRAY_AGG",
        }
        if isinstance(node, exp.Anonymous):
            return node.name.upper(), list(node.expressions)
        if type(node) in names:
            more = node.args.get("expression"), *node.expressions
            return names[type(node)], [each for each in (node.this, *more) if each is not None]
        return "", []

    def _expect_arguments(self, name: str, arguments: list[Any], n_min: int, n_max: int) -> None:
        if not n_min <= len(arguments) <= n_max:
            wanted = str(n_min) if n_min == n_max else f"{n_min} or {n_max}"
            raise self._statement_error(f"{name} takes {wanted} arguments, got {len(arguments)}", name=name)

    def _offset_of(self, name: str, arguments: list[_Node], default: int) -> int:
        if len(arguments) < 2:
            return default
        node = arguments[1]
        if not isinstance(node, exp.Literal) or node.is_string or not node.name.isdigit():
            raise self._statement_error(f"the second argument of {name} is a number of rows, 0 or more", name=name)
        if len(node.name) > 10 or int(node.name) > _MAX_ROWS:
            raise self._statement_error(f"{name} goes {_MAX_ROWS:,} rows at most", name=name)
        return int(node.name)

    def _physical(self, name: str, arguments: list[_Node], final: bool | None) -> RowValue:
        self._expect_arguments(name, arguments, 1, 2)
        n = self._offset_of(name, arguments, 1)
        inner = self._leaf(arguments[0], final)
        if not isinstance(inner, RowValue) or inner.offset:
            hint = f"{name}(x), {name}(A.x, 2) or {name}(LAST(A.x, 1), 2); arithmetic stands outside: {name}(x) + 1"
            raise self._statement_error(f"{name} takes a column, or FIRST or LAST of one", hint, name)
        return RowValue(inner.column, inner.variable, inner.first, inner.nth, -n if name == "PREV" else n, inner.final)

    def _logical(self, name: str, arguments: list[_Node], final: bool | None) -> RowLeaf:
        self._expect_arguments(name, arguments, 1, 2)
        n = self._offset_of(name, arguments, 0)
        inner = self._leaf(arguments[0], final)
        if isinstance(inner, Classifier):
            return Classifier(inner.variable, name == "FIRST", n, final)
        if not isinstance(inner, RowValue) or inner.offset or not isinstance(arguments[0], exp.Column):
            raise self._statement_error(f"{name} takes a column: {name}(A.x) or {name}(A.x, 1)", name=name)
        return RowValue(inner.column, inner.variable, name == "FIRST", n, 0, final)

    def _bind_aggregate(self, name: str, arguments: list[_Node], final: bool | None) -> RowAggregate:
        self._expect_arguments(name, arguments, 1, 1)
        argument = arguments[0]
        if isinstance(argument, exp.Star):
            column, variable = None, None
        elif isinstance(argument, exp.Column):
            is_star = isinstance(argument.this, exp.Star)
            column, variable = (None, self._variable_of(argument)) if is_star else self._resolve_column(argument)
        else:
            raise self._statement_error(f"{name} takes a column: {name}(A.x)", name=name)
        if column is None and name != "COUNT":
            raise self._statement_error(f"{name} takes a column: {name}(A.x)", name=name)
        return RowAggregate(name, column, variable, final)

    def _resolve_column(self, node: exp.Column) -> tuple[str, str | None]:
        if isinstance(node.this, exp.Star):
            raise self._statement_error("* stands in COUNT only")
        variable, *path = [part for part in node.parts if isinstance(part, exp.Identifier)]
        if not path:
            return node.name, None
        return ".".join(part.name for part in path), self._variable_name(
            variable
        )  # a field of a struct has several names

    def _variable_of(self, node: exp.Column) -> str | None:
        """Return the variable before the dot."""
        table = node.args.get("table")
        return None if table is None else self._variable_name(table)

    def _variable(self, node: _Node) -> str:
        if not isinstance(node, exp.Column) or node.args.get("table") is not None:
            raise self._statement_error("CLASSIFIER takes the name of a variable", name="CLASSIFIER")
        return self._variable_name(node.this)

    def _variable_name(self, identifier: exp.Identifier) -> str:
        name = identifier.name if identifier.args.get("quoted") else identifier.name.upper()
        if name not in self.variables:
            names = ", ".join(sorted(self.variables))
            raise self._statement_error(
                f"{identifier.name} is no variable of PATTERN", f"they are {names}", node=identifier
            )
        return name


def _unit_of(node: _Node) -> str:
    """Return the unit of a function that cuts times, in lower case."""
    unit = node.args.get("unit") or node.args.get("decimals")
    return "" if unit is None else str(unit.name).lower()


def _without_lengths(value: s.Expression) -> tuple[s.Expression | None, Fraction | None]:
    """Return a value without the lengths of time added to it, and their sum in seconds, or None if there is none."""
    match value:
        case s.Duration():
            return None, value.length
        case s.Negative():
            rest, length = _without_lengths(value.operand)
            return (None, -length) if rest is None and length is not None else (value, None)
        case s.Arithmetic(op="+" | "-"):
            x, before = _without_lengths(value.left)
            y, after = _without_lengths(value.right)
            if x is None or y is None:
                after = -after if after is not None and value.op == "-" else after
                total = None if before is None is after else (before or Fraction(0)) + (after or Fraction(0))
                if y is None or value.op == "+":
                    return (y if x is None else x), total
    return value, None


def _join_semantics(written: str, tokens: list[Any]) -> str:
    """Return an expression, of the same length, in which RUNNING and FINAL are part of the name of a function.

    No dialect of sqlglot reads them within an expression.
    """
    parts, at = [], 0
    for word, name, bracket in zip(tokens, tokens[1:], tokens[2:], strict=False):
        plain = written[word.start : word.end + 1]
        if plain.upper() in _SEMANTICS and bracket.text == "(":
            parts.append(written[at : word.start] + plain + "_" * (name.start - word.end - 1))
            at = name.start
    return "".join([*parts, written[at:]])


def _like(pattern: str, escape: str | None) -> str:
    """Return a pattern of SQL's LIKE as a regular expression for a whole string."""
    parts, i = [], 0
    while i < len(pattern):
        char = pattern[i]
        if escape and char == escape and i + 1 < len(pattern):
            i += 1
            parts.append(re.escape(pattern[i]))
        else:
            parts.append({"%": "(?s:.*)", "_": "(?s:.)"}.get(char) or re.escape(char))
        i += 1
    return "^" + "".join(parts) + r"\z"
