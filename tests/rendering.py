"""Reference queries written as CEQL text: plainly, or in one of the many ways in which a user might write them.

With a random generator the text varies in redundant parentheses, keyword letter case, spellings of operators,
white space, comments and backquotes, and never in meaning.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace

import reference as ref

KEYWORDS = frozenset(
    "ALL AND ANY AS BETWEEN BY CONSUME DAY DAYS EACH EVENTS FALSE FILTER FOR FROM GLOB HAVING HOUR HOURS IN IS LAST "  # noqa: SIM905
    "LET LIKE LIMIT MAX MINUTE MINUTES NEXT NOCASE NONE NOT NULL NXT OR PARTITION RANGE SECOND SECONDS SELECT STEP "
    "STRICT THEN TRUE UNTIL WHERE WITHIN".split()
)
COMMENTS = (" /* a comment; 'of' [any] kind */ ", " -- to the line's end\n", "\n\t", " /**/ ")

AGGREGATES = frozenset({"COUNT", "SUM", "AVG", "MIN", "MAX", "LIST"})
SCALAR = frozenset(
    "ABS BETWEEN CONCAT CONTAINS DAY ENDSWITH HOUR INDEXOF LENGTH LOWER NUMBER ROUND STARTSWITH STRING SUBSTRING UPPER "  # noqa: SIM905
    "WEEKDAY".split()
)
FUNCTIONS = frozenset({"FIRST", "LAST", "PREV", "LAG", "ANY", "CIDR"}) | AGGREGATES | SCALAR  # may be names too
QUANTIFIERS = {
    (0, 1, ";"): "?",
    (0, None, ";"): "*",
    (0, None, ":"): ":*",
    (0, None, "->"): "->*",
    (1, None, "->"): "->+",
}
UNITS = {"DAYS": 86_400, "HOURS": 3600, "MINUTES": 60, "SECONDS": 1}
BoundPredicate = (
    ref.Compare | ref.Like | ref.Glob | ref.Cidr | ref.In | ref.InRange | ref.Between | ref.IsNull | ref.AnyOf
)

# precedence of formulas, rising
FILTER, OR, ALL, CONTIG, SEQ, POSTFIX, ATOM = range(7)
# precedence of arithmetic, rising
SUM, PRODUCT, UNARY, OPERAND = range(4)
# precedence of predicates and of filters, rising
EITHER, BOTH, NEGATED, SIMPLE = range(4)


def to_ceql(
    query: ref.Query, rng: random.Random | None = None, ticks_per_second: int = 1000, needs_from: bool = False
) -> str:
    """Return the query as CEQL text: the plainest without `rng`, one of its many forms with it.

    `ticks_per_second` is the unit of a ``("time", n)`` window, which must come to whole seconds; `needs_from`: FROM
    has a meaning even if the query names no stream.
    """
    return _Writer(rng, ticks_per_second).query(query, needs_from)


class _Writer:
    """Writer of trees as lists of tokens, and of tokens as text."""

    def __init__(self, rng: random.Random | None, ticks_per_second: int) -> None:
        self.rng = rng
        self.ticks_per_second = ticks_per_second
        self.filtered: str | None = None  # the variable whose filter is being written
        self.of_list: ref.Attr | ref.VarAttr | None = None  # the list whose element is being tested
        self.outside = False  # True: that filter has no brackets, and the variable stands before each attribute
        self.variables: set[str] = set()  # of the query: `st.p` is an attribute of `st` if that is one of them
        self.only_stream: str | None = None  # its name may stand before a type without effect

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

    def attribute(self, name: str, variable: str | None = None) -> list[str]:
        """Return the tokens of an attribute, at times behind the variable in whose brackets it stands."""
        names = name.split(".")
        if variable is not None and (self.outside or self.chance(0.1) or self.is_of_variable(names)):
            names = [variable.rpartition(">")[2], *names]
        return self.path(names)

    def is_of_variable(self, names: list[str]) -> bool:
        """Return True if the path would be read as a variable with its attribute."""
        return len(names) > 1 and names[0] in self.variables

    def variable_attribute(self, attribute: ref.VarAttr) -> list[str]:
        """Return the tokens of an attribute of a variable, without the variable if that stands before the brackets."""
        if attribute.lag:
            return self.lagged(self.variable_attribute(replace(attribute, lag=0)), attribute.lag)
        names = attribute.name.split(".")
        if attribute.event != "EACH":
            before = [self.keyword(attribute.event), "(", *self.variable(attribute.variable), ")", "."]
            return [*before, *self.path(names)]
        if attribute.variable != self.filtered or self.is_of_variable(names) or self.chance(0.2):
            names = [attribute.variable.rpartition(">")[2], *names]
        return self.path(names)

    def lagged(self, attribute: list[str], lag: int) -> list[str]:
        """Return the tokens of LAG(a, n), or of LAG(a) if n is 1."""
        distance = [] if lag == 1 and not self.chance(0.3) else [",", str(lag)]
        return [self.keyword("LAG"), "(", *attribute, *distance, ")"]

    def path(self, names: list[str]) -> list[str]:
        return [token for k, part in enumerate(names) for token in ([".", self.name(part)] if k else [self.name(part)])]

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
        """Return white space between two tokens: none only if they stay apart without it."""
        if self.rng is None:
            call = before in FUNCTIONS and after == "("
            after_open = before in {"(", "[", "{", "->{", ":{", ".", "!"}
            return "" if call or after_open or after in {",", ")", "]", "}", "[", "."} else " "
        if self.chance(0.04):
            return self.rng.choice(COMMENTS)
        words = _wordlike(before[-1]) and _wordlike(after[0])
        same = before[-1] == after[0] and after[0] in "'`-"
        same |= after == "*" and before in (":", "->")  # else the quantifiers :* and ->*
        return " " if words or same else self.rng.choice(["", " ", " ", "  "])

    # ----------------------------------------------------------------------------------------- clauses

    def query(self, query: ref.Query, needs_from: bool) -> str:
        self.variables = ref.defined_variables(query.formula)
        out = [self.keyword("SELECT")]
        if query.strategy != "ALL" or self.chance(0.1):
            spelling = self.choice("NEXT", "NXT") if query.strategy == "NEXT" else query.strategy
            out.append(self.keyword(spelling))
        needs_from = needs_from or len(query.streams) > 1 or _names_a_stream(query)
        from_clause = needs_from or not self.chance(0.2)
        self.only_stream = query.streams[0] if from_clause and len(query.streams) == 1 and self.chance(0.2) else None
        if query.select == "*":
            out.append("*")
        elif query.select == "NONE":
            out.append(self.keyword("NONE"))
        else:
            brackets = query.brackets or (None,) * len(query.select)
            for k, (variable, names) in enumerate(zip(query.select, brackets, strict=True)):
                out += [","] if k else []
                out += self.variable(variable)
                out += [] if names is None else self.bracket(names)
            for k, (name, measure) in enumerate(query.measures):
                out += [","] if k or query.select else []
                out += [*self.expression(measure, SUM), self.keyword("AS"), self.name(name)]
        if from_clause:
            out.append(self.keyword("FROM"))
            for k, stream in enumerate(query.streams):
                out += [","] if k else []
                out.append(self.name(stream))
        for k, (name, expression) in enumerate(query.let):
            out += [",", self.name(name)] if k else [self.keyword("LET"), self.name(name)]
            out += [self.choice("=", "=="), *self.expression(expression, SUM)]
        out += [self.keyword("WHERE"), *self.formula(query.formula, FILTER)]
        if query.partition_by:
            out += [self.keyword("PARTITION"), self.keyword("BY")]
            for k, names in enumerate(query.partition_by):
                out += [","] if k else []
                out += self.bracket(names)
        out += [self.keyword("THEN")] if query.chooses_first else []
        out += self.windows(query)
        self.filtered = None  # HAVING reads measures
        out += [self.keyword("HAVING"), *self.predicate(query.having, EITHER)] if query.having is not None else []
        if query.consume != "NONE" or self.chance(0.05):
            out += [self.keyword("CONSUME"), self.keyword("BY"), self.keyword(query.consume)]
        if query.limit is not None:
            out += [self.keyword("LIMIT"), str(query.limit)]
            if query.every is not None:
                out += [self.keyword("EVERY"), *self.extent(query.every)]
        closable = query.partition_by or query.within is not None or query.limit is not None or query.having is not None
        out += [";"] if closable and self.chance(0.1) else []
        return self.text(out)

    def variable(self, variable: str) -> list[str]:
        """Return the tokens of a variable in SELECT or FILTER: `x`, or `S>x`."""
        stream, _, name = variable.rpartition(">")
        return [self.name(stream), ">", self.name(name)] if stream else [self.name(name)]

    def type(self, name: str, stream: str | None) -> list[str]:
        """Return the tokens of a type in the formula: `R`, or `S>R`."""
        if stream is None and self.only_stream is not None and self.chance(0.5):
            stream = self.only_stream
        own = self.type_name(name)
        return [own] if stream is None else [self.name(stream), ">", own]

    def type_name(self, name: str) -> str:
        return self.name(name) if name != ref.ANY or self.chance(0.2) else name

    def bracket(self, names: tuple[str, ...]) -> list[str]:
        out = ["["]
        for k, name in enumerate(names):
            out += [","] if k else []
            out += self.attribute(name)
        return [*out, "]"]

    def windows(self, query: ref.Query) -> list[str]:
        """Return the tokens of the clause with the window and the longest gap at each step."""
        lengths = [self.extent(length) for length in (query.within, query.each_step) if length is not None]
        if not lengths:
            return []
        tokens = [self.keyword("WITHIN"), *lengths[0]]
        if len(lengths) > 1:
            tokens += [",", *lengths[1]]
        return tokens if query.each_step is None else [*tokens, self.keyword("EACH"), self.keyword("STEP")]

    def extent(self, within: ref.Within) -> list[str]:
        match within:
            case ("events", n):
                return [str(n), self.plural("EVENTS")]
            case ("attribute", n, name):
                return [str(n), "[", *self.attribute(name), "]"]
            case ("time", n):
                return self.duration(n)
        raise TypeError(within)

    def duration(self, n: int) -> list[str]:
        seconds, rest = divmod(n, self.ticks_per_second)
        if rest:
            raise ValueError(f"{n} ticks are not whole seconds")
        parts = [(0, "HOURS"), (0, "MINUTES"), (seconds, "SECONDS")]
        if self.rng is None or self.chance(0.5):
            hours, left = divmod(seconds, 3600)
            parts = [(hours, "HOURS"), (left // 60, "MINUTES"), (left % 60, "SECONDS")]
        elif seconds % 30 == 0 and self.chance(0.5):
            parts = [(0, "HOURS"), (seconds // 60 + (0.5 if seconds % 60 else 0), "MINUTES"), (0, "SECONDS")]
        written = [part for part in parts if part[0]] or [(0, "SECONDS")]
        return [token for amount, unit in written for token in (str(amount), self.plural(unit))]

    def duration_literal(self, milliseconds: int) -> list[str]:
        """Return the tokens of a length of time that is not negative, in some of the units."""
        out: list[str] = []
        left = milliseconds
        for unit, seconds in UNITS.items():
            if self.chance(0.3) and unit != "SECONDS":
                continue
            amount, rest = divmod(left, 1000 * seconds)
            if unit == "SECONDS" and rest:
                out += [repr(left / 1000), self.plural(unit)]
            elif amount:
                out += [str(amount), self.plural(unit)]
            left = rest
        return out or ["0", self.plural("SECONDS")]

    def plural(self, unit: str) -> str:
        """Return a unit, or its singular, after any number."""
        return self.keyword(self.choice(unit, unit.removesuffix("S")))

    # ---------------------------------------------------------------------------------------- formulas

    def formula(self, formula: ref.Formula, least: int, first: bool = True) -> list[str]:
        """Return the tokens of the formula, in parentheses if its precedence is lower than `least`.

        `first`: nothing stands before it in its parentheses. There a formula may go on after a filter, and all that
        stands before is then the left operand of what follows.
        """
        needed = _binding(formula) < least
        if needed and first and isinstance(formula, ref.Filter) and self.chance(0.4):
            tokens = self.bare_formula(formula, first)
            return self.wrapped(tokens, tokens[-1] != "]")  # a + would continue the comparison
        return self.wrapped(self.bare_formula(formula, first or needed), needed)

    def bare_formula(self, formula: ref.Formula, first: bool) -> list[str]:
        match formula:
            case ref.EventType(name, stream):
                return self.type(name, stream)
            case ref.Not(name, predicate, stream):
                return [self.keyword("NOT"), "(", *self.excluded(name, predicate, stream), ")"]
            case ref.As(body, name):
                return [*self.formula(body, POSTFIX, first), self.keyword("AS"), self.name(name)]
            case ref.Plus(body, until):
                return [*self.formula(body, POSTFIX, first), "+", *self.until(until)]
            case ref.ContigPlus(body):
                return [*self.formula(body, POSTFIX, first), ":+"]
            case ref.Times(body):
                return [*self.formula(body, POSTFIX, first), *self.quantifier(formula), *self.until(formula.until)]
            case ref.Windowed(body, within):
                return ["(", *self.formula(body, FILTER), self.keyword("WITHIN"), *self.extent(within), ")"]
            case ref.Seq(left, right, absent):
                gap = self.absences(absent)
                return [*self.formula(left, SEQ, first), *gap, ";", *self.formula(right, SEQ + 1, False)]
            case ref.Next(left, right, absent):
                return [
                    *self.formula(left, SEQ, first),
                    *self.absences(absent),
                    "->",
                    *self.formula(right, SEQ + 1, False),
                ]
            case ref.Preceded(absent, body):
                before = [[*self.absences((e.event,)), self.keyword("FOR"), *self.extent(e.within)] for e in absent]
                leading = [token for tokens in before for token in tokens][1:]
                return [*leading, ";", *self.formula(body, SEQ + 1, False)]
            case ref.Trailing(body, absent, length):
                lasts = [] if length is None else [self.keyword("FOR"), *self.extent(length)]
                gaps = (token for event in absent for token in (*self.absences((event,)), *lasts))
                return [*self.formula(body, SEQ, first), *gaps]
            case ref.Contig(left, right):
                return [*self.formula(left, CONTIG, first), ":", *self.formula(right, CONTIG + 1, False)]
            case ref.All(left, right):
                return [*self.formula(left, ALL, first), self.keyword("ALL"), *self.formula(right, ALL + 1, False)]
            case ref.Or(left, right):
                return [*self.formula(left, OR, first), self.keyword("OR"), *self.formula(right, OR + 1, False)]
            case ref.Filter(body, condition):
                # a second FILTER needs no parentheses after a condition; an AND or an OR would belong to the condition
                tokens = self.formula(body, FILTER, first)
                return [*tokens, self.keyword("FILTER"), *self.filter(condition, EITHER)]
        raise TypeError(formula)

    def quantifier(self, formula: ref.Times) -> list[str]:
        """Return the tokens behind the body of an iteration."""
        least, most, joint = formula.least, formula.most, formula.joint
        short = QUANTIFIERS.get((least, most, joint))
        if short is not None and not self.chance(0.2):
            return [short]
        counts = [str(least)] if most == least and not self.chance(0.3) else [str(least), ","]
        if len(counts) > 1 and most is not None:
            counts.append(str(most))
        return [("" if joint == ";" else joint) + "{", *counts, "}"]

    def until(self, events: tuple[ref.Formula, ...]) -> list[str]:
        """Return the tokens of UNTIL (R), if there is one."""
        return [token for event in events for token in (self.keyword("UNTIL"), *self.absent(event))]

    def absences(self, events: tuple[ref.Formula, ...]) -> list[str]:
        """Return the tokens of `; !R` for each event that must be absent."""
        return [token for event in events for token in (";", "!", *self.absent(event))]

    def absent(self, event: ref.Formula) -> list[str]:
        match event:
            case ref.EventType(name, stream):
                tokens = self.type(name, stream)
                return ["(", *tokens, ")"] if self.chance(0.2) else tokens
            case ref.As(ref.EventType(name, stream), variable):
                return ["(", *self.type(name, stream), self.keyword("AS"), self.name(variable), ")"]
            case ref.Filter(ref.EventType(name, stream), condition):
                return ["(", *self.type(name, stream), self.keyword("FILTER"), *self.filter(condition, EITHER), ")"]
            case ref.Filter(ref.As() as body, condition):
                return [*self.absent(body)[:-1], self.keyword("FILTER"), *self.filter(condition, EITHER), ")"]
        raise TypeError(event)

    def excluded(self, name: str, predicate: ref.Predicate | None, stream: str | None) -> list[str]:
        """Return the tokens inside NOT( )."""
        tokens, variable = self.type(name, stream), name
        if predicate is None:
            return tokens
        if self.chance(0.2):
            variable = "one"
            tokens += [self.keyword("AS"), self.name(variable)]
        condition: ref.FilterExpr = ref.Unary(variable, predicate)
        if isinstance(predicate, ref.PredAnd | ref.PredOr) and self.chance(0.3):  # the same filter for a single event
            joined = ref.FilterAnd if isinstance(predicate, ref.PredAnd) else ref.FilterOr
            condition = joined(ref.Unary(variable, predicate.left), ref.Unary(variable, predicate.right))
        return [*tokens, self.keyword("FILTER"), *self.filter(condition, EITHER)]

    def filter(self, condition: ref.FilterExpr, least: int) -> list[str]:
        match condition:
            case ref.Unary(variable, predicate):
                return self.wrapped(self.unary(variable, predicate), needed=False)
            case ref.Relation(predicate):
                return self.wrapped(self.relation(predicate), needed=False)
            case ref.FilterAnd(left, right):
                tokens = [*self.filter(left, BOTH), self.keyword("AND"), *self.filter(right, BOTH + 1)]
                return self.wrapped(tokens, least > BOTH)
            case ref.FilterOr(left, right):
                tokens = [*self.filter(left, EITHER), self.keyword("OR"), *self.filter(right, EITHER + 1)]
                return self.wrapped(tokens, least > EITHER)
        raise TypeError(condition)

    def unary(self, variable: str, predicate: ref.Predicate) -> list[str]:
        self.filtered = variable
        reads = any(isinstance(node, ref.Attr) for node in ref.descendants(predicate))
        if ">" not in variable and reads and isinstance(predicate, BoundPredicate) and not _looks_over(predicate):
            self.outside = self.chance(0.2)
            if self.outside:
                tokens, _ = self.bare_predicate(predicate)
                self.outside = False
                return tokens
        return [*self.variable(variable), "[", *self.predicate(predicate, EITHER), "]"]

    def relation(self, predicate: ref.Predicate) -> list[str]:
        """Return the tokens of a filter between events: in the brackets of one of its variables, or in none."""
        read = [node for node in ref.descendants(predicate) if isinstance(node, ref.VarAttr)]
        of_stream = [node.variable for node in read if ">" in node.variable]
        chosen = [node.variable for node in read if node.event == "EACH"]
        over = [node.variable for node in ref.descendants(predicate) if isinstance(node, ref.Over) and node.variable]
        if over:
            of_stream, chosen = [], over
        elif not of_stream and isinstance(predicate, BoundPredicate) and not self.chance(0.6):
            self.filtered = None
            return self.bare_predicate(predicate)[0]
        self.filtered = self.choice(*dict.fromkeys(of_stream or chosen or [node.variable for node in read]))
        return [*self.variable(self.filtered), "[", *self.predicate(predicate, EITHER), "]"]

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
            case ref.AnyOf(column, test):
                self.of_list = column
                negated = isinstance(test, ref.PredNot)  # before the test: NOT at the front is of the whole
                return (self.test(test.operand, True) if negated else self.bare_predicate(test)[0]), SIMPLE
            case ref.PredNot(ref.Like() | ref.Glob() | ref.InRange() as test) if self.chance(0.5):
                return self.test(test, negated=True), SIMPLE
            case ref.PredNot(ref.Between() | ref.IsNull() as test) if self.chance(0.5):
                return self.test(test, not test.negated), SIMPLE
            case ref.PredNot(operand):
                return [self.keyword("NOT"), *self.predicate(operand, NEGATED)], NEGATED
            case ref.Compare(op, left, right):
                spelling = {"=": self.choice("=", "=="), "<>": self.choice("<>", "!=")}.get(op, op)
                return [*self.expression(left, SUM), spelling, *self.expression(right, SUM)], SIMPLE
            case ref.In() | ref.Between() | ref.IsNull():
                return self.test(predicate, predicate.negated), SIMPLE
            case ref.Rises(condition, chosen):
                around, self.filtered, self.outside = (self.filtered, self.outside), None, False
                inside = [*self.predicate(condition, EITHER), ",", *self.predicate(chosen, EITHER)]
                self.filtered, self.outside = around
                return [self.keyword("RISES"), "(", *inside, ")"], SIMPLE
        return self.test(predicate, negated=False), SIMPLE

    def test(self, test: BoundPredicate, negated: bool) -> list[str]:
        """Return the tokens of a test, or of one with NOT: LIKE, GLOB, IN, BETWEEN or IS NULL."""
        not_ = [self.keyword("NOT")] if negated else []
        match test:
            case ref.Like(attribute, pattern):
                return [*self.operand(attribute), *not_, self.keyword("LIKE"), self.string(pattern)]
            case ref.Glob(attribute, patterns, nocase):
                tokens = [*self.operand(attribute), *not_, self.keyword("GLOB")]
                if len(patterns) == 1 and self.chance(0.5):
                    tokens.append(self.string(patterns[0]))
                else:
                    tokens += ["{", *self.strings(patterns), "}"]
                return [*tokens, self.keyword("NOCASE")] if nocase else tokens
            case ref.Cidr(attribute, networks):
                return [self.keyword("CIDR"), "(", *self.operand(attribute), ",", *self.strings(networks), ")"]
            case ref.Between(operand, low, high):
                tokens = [*self.expression(operand, SUM), *not_, self.keyword("BETWEEN"), *self.expression(low, SUM)]
                return [*tokens, self.keyword("AND"), *self.expression(high, SUM)]
            case ref.IsNull(operand):
                return [*self.expression(operand, SUM), self.keyword("IS"), *not_, self.keyword("NULL")]
            case ref.In(operand, values):
                tokens = [*self.expression(operand, SUM), *not_, self.keyword("IN"), "{"]
                for k, value in enumerate(values):
                    tokens += [","] if k else []
                    tokens += self.bound(value)
                return [*tokens, "}"]
            case ref.InRange(operand, low, high, True):
                tokens = [*self.expression(operand, SUM), *not_, self.keyword("IN"), self.keyword("RANGE"), "("]
                return [*tokens, *self.bound(low), ",", *self.bound(high), ")"]
            case ref.InRange(operand, low, high):
                tokens = [*self.expression(operand, OPERAND), *not_, self.keyword("IN"), "{"]
                tokens += self.bound(low) if low is not None else []
                tokens.append("..")
                tokens += self.bound(high) if high is not None else []
                return [*tokens, "}"]
        raise TypeError(test)

    def strings(self, texts: tuple[str, ...]) -> list[str]:
        """Return the tokens of texts with commas between them."""
        tokens: list[str] = []
        for text in texts:
            tokens += [",", self.string(text)] if tokens else [self.string(text)]
        return tokens

    def bound(self, expression: ref.Expression) -> list[str]:
        """Return the tokens of an element of a set or range: a literal without parentheses, or arithmetic."""
        return self.literal(expression) if isinstance(expression, ref.Const) else self.expression(expression, SUM)

    def literal(self, constant: ref.Const) -> list[str]:
        """Return the tokens of a literal, with its sign and without parentheses."""
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

    def operand(self, attribute: ref.Attr | ref.VarAttr | ref.Element) -> list[str]:
        """Return the tokens of an attribute, of the filtered event or of a variable, or of an element of a list."""
        if isinstance(attribute, ref.Element):
            assert self.of_list is not None
            return [self.keyword("ANY"), "(", *self.operand(self.of_list), ")"]
        if isinstance(attribute, ref.VarAttr):
            return self.variable_attribute(attribute)
        tokens = self.attribute(attribute.name, self.filtered)
        return self.lagged(tokens, attribute.lag) if attribute.lag else tokens

    def aggregate(self, aggregate: ref.Aggregate) -> list[str]:
        if aggregate.variable is None:
            return [self.keyword("COUNT"), "(", "*", ")"]
        names = [] if aggregate.name is None else [".", *self.path(aggregate.name.split("."))]
        return [self.keyword(aggregate.function), "(", *self.variable(aggregate.variable), *names, ")"]

    def over(self, aggregate: ref.Over) -> list[str]:
        """Return the tokens of an OVER aggregate."""
        function, *distinct = aggregate.function.split()
        kind = self.type_name(aggregate.type or ref.ANY)
        of = [kind] if aggregate.of is None else [kind, ".", *self.path(aggregate.of.name.split("."))]
        around, self.filtered, self.outside = (self.filtered, self.outside), None, False
        test = [] if aggregate.condition is None else self.predicate(aggregate.condition, EITHER)
        self.filtered, self.outside = around
        test = [self.keyword("FILTER"), *test] if test else []
        before = [self.keyword(word) for word in distinct]
        inside, over = [*before, *of, *test], [self.keyword("OVER"), *self.extent(aggregate.within)]
        return [self.keyword(function), "(", *inside, ")", *over]

    def expression(self, expression: ref.Expression, least: int) -> list[str]:
        match expression:
            case ref.Over():
                tokens, binding = self.over(expression), OPERAND
            case ref.Attr() | ref.VarAttr() | ref.Element():
                tokens, binding = self.operand(expression), OPERAND
            case ref.DurationConst(ticks):
                tokens, binding = self.duration_literal(ticks), OPERAND
            case ref.Aggregate():
                tokens, binding = self.aggregate(expression), OPERAND
            case ref.Call(function, operand, digits):
                more = [",", str(digits)] if digits else []
                name = self.keyword(function.upper())
                tokens, binding = [name, "(", *self.expression(operand, SUM), *more, ")"], OPERAND
            case ref.Strings(function, operands):
                inside = [token for operand in operands for token in (",", *self.expression(operand, SUM))]
                tokens, binding = [self.keyword(function.upper()), "(", *inside[1:], ")"], OPERAND
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


def _binding(formula: ref.Formula) -> int:
    """Return the precedence of the formula's outermost operator."""
    match formula:
        case ref.EventType() | ref.Not() | ref.Windowed():
            return ATOM
        case ref.As() | ref.Plus() | ref.ContigPlus() | ref.Times():
            return POSTFIX
        case ref.Seq() | ref.Next() | ref.Trailing() | ref.Preceded():
            return SEQ
        case ref.Contig():
            return CONTIG
        case ref.All():
            return ALL
        case ref.Or():
            return OR
    return FILTER


def _looks_over(predicate: ref.Predicate) -> bool:
    """Return True if a predicate reads an OVER aggregate, which stands in brackets."""
    return any(isinstance(node, ref.Over | ref.Rises) for node in ref.descendants(predicate))


def _names_a_stream(query: ref.Query) -> bool:
    """Return True if `S>` stands anywhere in the query, which then needs its FROM."""
    variables = query.select if isinstance(query.select, tuple) else ()
    for node in ref.descendants(query.formula):
        if isinstance(node, ref.EventType | ref.Not) and node.stream is not None:
            return True
        if isinstance(node, ref.Unary | ref.VarAttr):
            variables = (*variables, node.variable)
    return any(">" in variable for variable in variables)


def _wordlike(text: str) -> bool:
    return text.isalnum() or text == "_"
