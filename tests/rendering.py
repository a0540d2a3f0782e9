"""Write a reference query as CEQL text: plainly, or in one of the many ways a user might write it.

With a random generator the text varies in redundant parentheses, keyword letter case, spellings of operators,
white space, comments and backquotes, and never in meaning.
"""

from __future__ import annotations

import random
import re

import reference as ref

KEYWORDS = frozenset(
    "ALL AND ANY AS BY CONSUME EVENTS FALSE FILTER FROM HOUR HOURS IN LAST LIKE LIMIT MAX MINUTE MINUTES "  # noqa: SIM905
    "NEXT NONE NOT NULL NXT OR PARTITION RANGE SECOND SECONDS SELECT STRICT TRUE WHERE WITHIN".split()
)
STREAM = "S"
COMMENTS = (" /* a comment; 'of' [any] kind */ ", " -- to the line's end\n", "\n\t", " /**/ ")

# binding of formulas, loosest first
FILTER, OR, CONTIG, SEQ, POSTFIX, ATOM = range(6)
# of arithmetic
SUM, PRODUCT, UNARY, OPERAND = range(4)
# of predicates and of filters
EITHER, BOTH, NEGATED, SIMPLE = range(4)


def to_ceql(query: ref.Query, rng: random.Random | None = None, ticks_per_second: int = 1000) -> str:
    """CEQL text of the query: the plainest without `rng`, one of its many forms with it.

    `ticks_per_second` is the unit of a ``("time", n)`` window, which must come to whole seconds.
    """
    return _Writer(rng, ticks_per_second).query(query)


class _Writer:
    """Turns trees into lists of tokens, and tokens into text."""

    def __init__(self, rng: random.Random | None, ticks_per_second: int) -> None:
        self.rng = rng
        self.ticks_per_second = ticks_per_second
        self.named_stream = False

    def chance(self, probability: float) -> bool:
        return self.rng is not None and self.rng.random() < probability

    def choice(self, *options: str) -> str:
        return options[0] if self.rng is None else self.rng.choice(options)

    # ------------------------------------------------------------------------------------------ tokens

    def keyword(self, word: str) -> str:
        if self.rng is None:
            return word
        how = self.rng.randrange(4)
        if how == 3:
            return "".join(self.rng.choice((c.lower(), c.upper())) for c in word)
        return (word, word.lower(), word.capitalize())[how]

    def name(self, name: str) -> str:
        plain = re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", name) and name.upper() not in KEYWORDS
        return name if plain and not self.chance(0.1) else f"`{name}`"

    def string(self, text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    def wrapped(self, tokens: list[str], needed: bool) -> list[str]:
        if needed or self.chance(0.1):
            tokens = ["(", *tokens, ")"]
            if self.chance(0.1):
                tokens = ["(", *tokens, ")"]
        return tokens

    def text(self, tokens: list[str]) -> str:
        parts = []
        for token in tokens:
            if parts:
                parts.append(self.gap(parts[-1], token))
            parts.append(token)
        return "".join(parts).strip()

    def gap(self, before: str, after: str) -> str:
        """White space between two tokens: none only where they cannot grow together."""
        if self.rng is None:
            return "" if before in {"(", "[", "{"} or after in {",", ")", "]", "}", "["} else " "
        if self.chance(0.04):
            return self.rng.choice(COMMENTS)
        words = _wordlike(before[-1]) and _wordlike(after[0])
        same = before[-1] == after[0] and after[0] in "'`-"
        return " " if words or same else self.rng.choice(["", " ", " ", "  "])

    # ----------------------------------------------------------------------------------------- clauses

    def query(self, query: ref.Query) -> str:
        out = [self.keyword("SELECT")]
        if query.strategy != "ALL" or self.chance(0.1):
            spelling = self.choice("NEXT", "NXT") if query.strategy == "NEXT" else query.strategy
            out.append(self.keyword(spelling))
        from_clause = self.rng is None or not self.chance(0.2)
        self.named_stream = from_clause and self.chance(0.2)
        if query.select == "*":
            out.append("*")
        elif query.select == "NONE":
            out.append(self.keyword("NONE"))
        else:
            for k, variable in enumerate(query.select):
                out += [","] if k else []
                out += self.item(variable)
        if from_clause:
            out += [self.keyword("FROM"), STREAM]
        out += [self.keyword("WHERE"), *self.formula(query.formula, FILTER)]
        if query.partition_by:
            out += [self.keyword("PARTITION"), self.keyword("BY")]
            for k, names in enumerate(query.partition_by):
                out += [","] if k else []
                out.append("[")
                for m, name in enumerate(names):
                    out += [","] if m else []
                    out.append(self.name(name))
                out.append("]")
        out += self.within(query.within)
        if query.consume != "NONE" or self.chance(0.05):
            out += [self.keyword("CONSUME"), self.keyword("BY"), self.keyword(query.consume)]
        if query.limit is not None:
            out += [self.keyword("LIMIT"), str(query.limit)]
        return self.text(out)

    def item(self, variable: str) -> list[str]:
        """One selected variable."""
        prefix = [STREAM, ">"] if self.named_stream and self.chance(0.3) else []
        return [*prefix, self.name(variable)]

    def within(self, within: ref.Within) -> list[str]:
        match within:
            case None:
                return []
            case ("events", n):
                return [self.keyword("WITHIN"), str(n), self.keyword("EVENTS")]
            case ("attribute", n, name):
                return [self.keyword("WITHIN"), str(n), "[", self.name(name), "]"]
            case ("time", n):
                return [self.keyword("WITHIN"), *self.duration(n)]
        raise TypeError(within)

    def duration(self, n: int) -> list[str]:
        seconds, rest = divmod(n, self.ticks_per_second)
        if rest:
            raise ValueError(f"{n} ticks are not whole seconds")
        parts = [(0, "HOURS"), (0, "MINUTES"), (seconds, "SECONDS")]
        if self.rng is None or self.chance(0.5):
            hours, left = divmod(seconds, 3600)
            parts = [(hours, "HOURS"), (left // 60, "MINUTES"), (left % 60, "SECONDS")]
        written = [part for part in parts if part[0]] or [(0, "SECONDS")]
        return [token for amount, unit in written for token in (str(amount), self.keyword(unit))]

    # ---------------------------------------------------------------------------------------- formulas

    def formula(self, formula: ref.Formula, least: int) -> list[str]:
        """Tokens of the formula, in parentheses where it binds less tightly than `least`."""
        tokens, binding = self.bare_formula(formula)
        return self.wrapped(tokens, binding < least)

    def bare_formula(self, formula: ref.Formula) -> tuple[list[str], int]:
        match formula:
            case ref.EventType(name):
                prefix = [STREAM, ">"] if self.named_stream and self.chance(0.5) else []
                return [*prefix, self.name(name)], ATOM
            case ref.Not(name, predicate):
                inside = [self.name(name)]
                if predicate is not None:
                    inside += [self.keyword("FILTER"), *self.unary(name, predicate)]
                return [self.keyword("NOT"), "(", *inside, ")"], ATOM
            case ref.As(body, name):
                return [*self.formula(body, POSTFIX), self.keyword("AS"), self.name(name)], POSTFIX
            case ref.Plus(body):
                return [*self.formula(body, POSTFIX), "+"], POSTFIX
            case ref.ContigPlus(body):
                return [*self.formula(body, POSTFIX), ":+"], POSTFIX
            case ref.Seq(left, right):
                return [*self.formula(left, SEQ), ";", *self.formula(right, SEQ + 1)], SEQ
            case ref.Contig(left, right):
                return [*self.formula(left, CONTIG), ":", *self.formula(right, CONTIG + 1)], CONTIG
            case ref.Or(left, right):
                return [*self.formula(left, OR), self.keyword("OR"), *self.formula(right, OR + 1)], OR
            case ref.Filter(body, condition):
                # a second FILTER may follow a condition bare; an AND or an OR would belong to the condition
                tokens = self.formula(body, FILTER)
                return [*tokens, self.keyword("FILTER"), *self.filter(condition, EITHER)], FILTER
        raise TypeError(formula)

    def filter(self, condition: ref.FilterExpr, least: int) -> list[str]:
        match condition:
            case ref.Unary(variable, predicate):
                return self.wrapped(self.unary(variable, predicate), needed=False)
            case ref.FilterAnd(left, right):
                tokens = [*self.filter(left, BOTH), self.keyword("AND"), *self.filter(right, BOTH + 1)]
                return self.wrapped(tokens, least > BOTH)
            case ref.FilterOr(left, right):
                tokens = [*self.filter(left, EITHER), self.keyword("OR"), *self.filter(right, EITHER + 1)]
                return self.wrapped(tokens, least > EITHER)
        raise TypeError(condition)

    def unary(self, variable: str, predicate: ref.Predicate) -> list[str]:
        return [self.name(variable), "[", *self.predicate(predicate, EITHER), "]"]

    # -------------------------------------------------------------------------------------- predicates

    def predicate(self, predicate: ref.Predicate, least: int) -> list[str]:
        tokens, binding = self.bare_predicate(predicate)
        return self.wrapped(tokens, binding < least)

    def bare_predicate(self, predicate: ref.Predicate) -> tuple[list[str], int]:
        match predicate:
            case ref.PredOr(left, right):
                tokens = self.predicate(left, EITHER)
                return [*tokens, self.keyword("OR"), *self.predicate(right, EITHER + 1)], EITHER
            case ref.PredAnd(left, right):
                tokens = self.predicate(left, BOTH)
                return [*tokens, self.keyword("AND"), *self.predicate(right, BOTH + 1)], BOTH
            case ref.PredNot(operand):
                return [self.keyword("NOT"), *self.predicate(operand, NEGATED)], NEGATED
            case ref.Compare(op, left, right):
                spelling = {"=": self.choice("=", "=="), "<>": self.choice("<>", "!=")}.get(op, op)
                return [*self.expression(left, SUM), spelling, *self.expression(right, SUM)], SIMPLE
            case ref.Like(attribute, pattern):
                return [self.name(attribute.name), self.keyword("LIKE"), self.string(pattern)], SIMPLE
            case ref.In(attribute, values, negated):
                tokens = [self.name(attribute.name), *([self.keyword("NOT")] if negated else [])]
                tokens += [self.keyword("IN"), "{"]
                for k, value in enumerate(values):
                    tokens += [","] if k else []
                    tokens += self.literal(value)
                return [*tokens, "}"], SIMPLE
            case ref.InRange(operand, low, high, True):
                tokens = [*self.expression(operand, SUM), self.keyword("IN"), self.keyword("RANGE"), "("]
                return [*tokens, *self.literal(low), ",", *self.literal(high), ")"], SIMPLE
            case ref.InRange(operand, low, high):
                tokens = [*self.expression(operand, OPERAND), self.keyword("IN"), "{"]
                tokens += self.literal(low) if low is not None else []
                tokens.append("..")
                tokens += self.literal(high) if high is not None else []
                return [*tokens, "}"], SIMPLE
        raise TypeError(predicate)

    def literal(self, constant: ref.Const) -> list[str]:
        """Tokens of a literal as it stands in a set or a range, sign included and no parentheses."""
        if constant.text is not None:
            return [constant.text]
        value = constant.value
        if isinstance(value, bool):
            return [self.keyword(str(value).upper())]
        if isinstance(value, str):
            return [self.string(value)]
        digits = repr(abs(value))
        if not re.fullmatch(r"\d+(\.\d+)?", digits):
            raise ValueError(f"no plain literal for {value!r}")
        return ["-", digits] if value < 0 or str(value) == "-0.0" else [digits]

    def expression(self, expression: ref.Expression, least: int) -> list[str]:
        match expression:
            case ref.Attr(name):
                tokens, binding = [self.name(name)], OPERAND
            case ref.Const():
                tokens = self.literal(expression)
                binding = UNARY if len(tokens) > 1 else OPERAND
            case ref.Neg(operand):
                tokens, binding = ["-", *self.expression(operand, UNARY)], UNARY
            case ref.Arith(op, left, right):
                binding = SUM if op in "+-" else PRODUCT
                tokens = [*self.expression(left, binding), op, *self.expression(right, binding + 1)]
            case _:
                raise TypeError(expression)
        return self.wrapped(tokens, binding < least)


def _wordlike(text: str) -> bool:
    return text.isalnum() or text == "_"
