"""Draw queries from the whole language, and count the refused ones by message.

    python benchmarks/refused.py [--queries N] [--seed K] [--examples M] [--wild]

`Questions` draws queries that a person could mean.  Strategies, quantifiers, joints and clauses come about as often as
in the 702 queries of docs/ and of the test suites of CORE and FlinkCEP that were counted (a strategy in 5% of them, a
quantifier in 36%, `OR` in 30%, `CONSUME BY` in 11%, `LIMIT` in 7%), and every other part of the language comes, too.
Parts are drawn independently of each other, and nothing is left out because it is refused, except where the clauses
have no common meaning:

- a pattern asks for one event at least, and an absence that ends it is given a time, by FOR or by WITHIN;
- a funnel is asked for of steps one after another, without what chooses among matches or measures them, and HAVING of
  an output with measures;
- CONSUME BY and THEN WITHIN are not combined with an absence at the end, nor THEN WITHIN with what is tested between
  events (join predicates, ALL, windows of parts, EACH STEP): docs/reference/ceql_refused.md has the reasons.

With `--wild`, the patterns, filters, clauses and outputs of the tests are put together without regard to any meaning.
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import sys
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

import cer_gpu

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import conjunction_strategies
import join_strategies
import past_strategies
import reference as ref
import rendering
import rest_strategies as rest
import step_strategies
import strategies

SCHEMA = pa.schema(
    {
        "type": pa.string(),
        "ts": pa.timestamp("ms"),
        **dict.fromkeys(["n", "m", "odd name"], pa.int64()),
        **dict.fromkeys(["v", "w"], pa.float64()),
        **dict.fromkeys(["s", "t"], pa.string()),
        **dict.fromkeys(["flag", "open"], pa.bool_()),
        **dict.fromkeys(["day", "hour", "at", "since"], pa.timestamp("ms")),
        "u": pa.uint64(),
        "d": pa.decimal128(18, 2),
        "e": pa.decimal128(18, 2),
        "took": pa.duration("ms"),
        "seq": pa.int64(),
        "st": pa.struct({"n": pa.int64(), "q r": pa.struct({"v": pa.float64(), "s": pa.string()})}),
    }
)
OUTPUTS = ("positions", "bindings", "events", "rows", "count", "ends", "funnel")

patterns = st.one_of(
    rest.plain,
    rest.related,
    rest.chains(),
    join_strategies.join_formulas(),
    conjunction_strategies.formulas(),
    step_strategies.windowed_formulas(),
    step_strategies.iterations(),
    rest.lag_formulas(),
    *past_strategies.KINDS.values(),
)
lengths = step_strategies.lengths(6)
absences = rest.absences(rest.Scope(), False)


@st.composite
def combined(draw: Any) -> ref.Formula:
    """Draw a pattern, or two joined in any way, or one with something around it."""
    formula = draw(patterns)
    shape = draw(st.sampled_from(["one"] * 6 + ["two"] * 3 + ["absent", "repeat", "window", "silence", "silence"]))
    if shape == "two":
        join = draw(st.sampled_from([ref.Seq, ref.Seq, ref.Contig, ref.Next, ref.Or, ref.All]))
        return join(formula, draw(patterns))
    if shape == "absent":
        return ref.Seq(formula, draw(patterns), draw(absences))
    if shape == "repeat":
        least, most = draw(st.sampled_from([(0, 1), (1, None), (2, 2), (1, 3), (0, None)]))
        return ref.Times(formula, least, most, draw(st.sampled_from([";", ";", ":", "->"])))
    if shape == "window":
        return ref.Windowed(formula, draw(lengths))
    if shape == "silence":
        return ref.Trailing(formula, draw(absences), draw(st.none() | lengths))
    return formula


@st.composite
def queries(draw: Any) -> tuple[ref.Query, str]:
    """Draw a query with any clauses, and an output."""
    formula = draw(combined())
    variables = sorted(ref.defined_variables(formula))
    measures: tuple[Any, ...] = ()
    select: Any = "*"
    if variables and draw(st.integers(0, 3)) == 0:
        several = ref.variables_of_several(formula)[0]
        measure = rest.measures(variables, several)
        leaves = st.one_of(measure, measure, measure, past_strategies.aggregates())
        measures = tuple((f"m{k}", draw(leaves)) for k in range(draw(st.integers(1, 2))))
        select = (draw(st.sampled_from(variables)),)
    having = None
    if measures and draw(st.booleans()):
        having = ref.Compare(">", ref.Attr("m0"), ref.Const(1))
    within = draw(st.none() | lengths)
    limit = draw(st.sampled_from([None, None, None, 1, 3]))
    query = ref.Query(
        formula,
        select=select,
        within=within,
        limit=limit,
        every=None if limit is None else draw(st.none() | lengths),
        partition_by=draw(st.just(()) | strategies.partition_keys()),
        strategy=draw(st.sampled_from(["ALL"] * 5 + ["NEXT", "LAST", "MAX", "STRICT", "ANY"])),
        consume=draw(st.sampled_from(["NONE"] * 6 + ["ANY", "PARTITION"])),
        chooses_first=within is not None and draw(st.integers(0, 9)) == 0,
        measures=measures,
        having=having,
        each_step=draw(st.one_of(*[st.none()] * 6, lengths)),
    )
    query = replace(query, partition_by=tuple(names for names in query.partition_by if names[0] not in variables))
    return query, draw(st.sampled_from(OUTPUTS))


@dataclass
class Step:
    """A step of a pattern: the variable that names it, its types, and whether it may hold several events."""

    name: str
    types: str
    several: bool = False


class Questions:
    """Queries that a person could mean, as text.

    Parameters
    ----------
    rnd
        Source of the draws.
    """

    def __init__(self, rnd: random.Random) -> None:
        self._rnd = rnd
        self._steps: list[Step] = []
        self._between = False
        self._first = 0  # step of the sequence that is being drawn

    def draw(self) -> tuple[str, str | None]:
        """Draw a query and an output; None: the default of `evaluate`."""
        chance, pick = self._chance, self._pick
        self._steps, self._between = [], False
        funnel = chance(6)
        pattern = self._sequence(funnel)
        if not funnel and chance(6):
            other = self._sequence(False)
            pattern = f"({pattern}) {pick(ALL=50, OR=50)} ({other})"
            self._between |= " ALL " in pattern
        filters = self._joins() if chance(35) else []
        lasting = chance(50)
        end = f" ; !{self._absent()}" + (f" FOR {self._length()}" if lasting else "") if chance(8) else ""
        if end:
            pattern = f"({pattern}){end}"
        within = self._length() if (end and not lasting) or chance(70) else None
        keyed = chance(35)
        strategy = None if funnel or chance(90) else pick(MAX=5, NEXT=4, LAST=4, STRICT=2, ANY=2, RECENT=3)
        consume = None if funnel or end or chance(90) else pick(ANY=6, PARTITION=4)
        limit = not funnel and chance(8)
        items, having, measured = self._items(funnel)
        gap = chance(4)
        then = within is not None and strategy is not None and not (self._between or filters or gap) and chance(8)
        then &= not end and strategy != "RECENT"
        parts = [f"SELECT {strategy or ''} {items}", "FROM S" if chance(80) else ""]
        if chance(5):
            parts.append(
                "LET " + pick(**{"on = date(ts)": 1, "burst = COUNT(*) OVER 5 MINUTES": 1, "total = n + m": 1})
            )
        parts.append(f"WHERE {pattern}")
        if filters:
            parts.append("FILTER " + " AND ".join(filters))
        if keyed:
            parts.append("PARTITION BY " + pick(**{"[s]": 6, "[n]": 2, "[s], [n]": 1, "[s, t]": 1}))
        if within is not None:
            parts.append(f"{'THEN ' if then else ''}WITHIN {within}" + (f", {self._length()} EACH STEP" if gap else ""))
        elif gap:
            parts.append(f"WITHIN {self._length()} EACH STEP")
        parts += [having, "" if consume is None else f"CONSUME BY {consume}"]
        if limit:
            parts.append(f"LIMIT {pick(**{'1': 3, '10': 1})}" + (f" EVERY {self._length()}" if chance(50) else ""))
        output = pick(default=45, positions=16, events=13, rows=11, count=8, ends=4)
        if having or measured:
            output = pick(default=70, rows=15, bindings=15)
        text = " ".join(part for part in parts if part)
        return text, "funnel" if funnel else None if output == "default" else output

    # ---- patterns -------------------------------------------------------------------------------------------------

    def _sequence(self, funnel: bool) -> str:
        """Draw one to six steps, one after another."""
        pick, chance = self._pick, self._chance
        n_steps = int(pick(**{"1": 15, "2": 38, "3": 25, "4": 12, "5": 6, "6": 4}))
        n_steps = max(n_steps, 2) if funnel else n_steps
        certain = self._rnd.randrange(n_steps)
        text, whole = "", self._pick(later=60, mixed=40)
        self._first = len(self._steps)
        for number in range(n_steps):
            absent = self._absent()
            step = self._step(may_lack=number != certain)
            lacks = step.endswith(("?", "*", "{0,3}"))
            if not number:
                text = f"!{self._absent()} FOR {self._length()} ; {step}" if chance(1.5) and not lacks else step
                before_lacks = lacks
                continue
            joint = ";" if whole == "later" else pick(**{";": 40, ":": 32, "->": 28})
            free = joint != ":" and not lacks and not before_lacks
            gap = f" ; !{absent}" if free and chance(6) else ""
            text, before_lacks = f"{text}{gap} {joint} {step}", lacks
            if chance(1.5) and not funnel:
                text, self._between = f"({text} WITHIN {self._length()})", True
        return text

    def _step(self, *, may_lack: bool) -> str:
        """Draw one event, or a part in parentheses, maybe repeated."""
        pick, chance = self._pick, self._chance
        several = chance(16)
        kind = pick(type=84, either=7, other=3, any=4, part=2)
        if kind == "other":
            return f"NOT({self._type()})"
        if kind == "part":
            first, second = self._event(True), self._event(True)
            return f"({first} {pick(**{';': 3, ':': 1})} {second})" + pick(**{"+": 2, "{2}": 1, "{1,3}": 1})
        text = self._event(several, either=kind == "either", any_type=kind == "any")
        if not several:
            return text
        some = {"+": 46, ":+": 14, " ->+": 6, "{3}": 12, "{2,4}": 6, "{5,}": 4}
        times = pick(**some, **({"?": 8, "*": 4, "{0,3}": 1} if may_lack else {}))
        until = f" UNTIL ({self._type()})" if times in ("+", "{2,4}") and chance(4) else ""
        return text + times + until

    def _event(self, several: bool, *, either: bool = False, any_type: bool = False) -> str:
        """Draw one event with its name and its filter, and remember the name."""
        kind = f"({self._type()} OR {self._type()})" if either else "*" if any_type else self._type()
        alias = either or any_type or self._chance(65)
        name = "abcdefghijklmnop"[len(self._steps) % 16] if alias else kind
        self._steps.append(Step(name, kind, several))
        text = f"{kind} AS {name}" if alias else kind
        if not self._chance(45):
            return f"({text})" if alias and several else text
        return f"({text} FILTER {name}[{self._predicate()}])"

    def _absent(self) -> str:
        if self._chance(60):
            return self._type()
        own = [f"r[{self._predicate()}]"]
        names = [step.name for step in self._steps[self._first :] if not step.several and step.name not in "ABCDE"]
        if names and self._chance(60):
            own = [f"r.s = {self._rnd.choice(names)}.s"]
        return f"({self._type()} AS r FILTER {' AND '.join(own)})"

    # ---- predicates -----------------------------------------------------------------------------------------------

    def _predicate(self) -> str:
        pick, rnd = self._pick, self._rnd
        one = pick(
            **{
                f"n {rnd.choice(['>', '<', '>=', '=', '<>'])} {rnd.randrange(9)}": 30,
                f"v > {rnd.randrange(90)}.5": 14,
                "s = 'a'": 18,
                "s IN {'a', 'b'}": 8,
                "s LIKE '^a'": 5,
                "t GLOB '*.exe'": 2,
                "n BETWEEN 2 AND 5": 3,
                "n IS NOT NULL": 2,
                "flag = TRUE": 3,
                "lower(t) = 'x'": 2,
                "hour(ts) >= 22": 2,
                "n > LAG(n)": 3,
                "COUNT(A) OVER 5 MINUTES >= 3": 3,
                "v > 3 * AVG(A.v) OVER 1 HOURS": 2,
                "st.n = 3": 2,
                "NOT s = 'b'": 2,
            }
        )
        return f"{one} AND {self._predicate()}" if self._chance(18) else one

    def _joins(self) -> list[str]:
        """Draw join predicates between the events of variables."""
        single = list(dict.fromkeys(step.name for step in self._steps if not self._may_hold_several(step.name)))
        several = list(dict.fromkeys(step.name for step in self._steps if step.name not in single))
        found = []
        if len(single) > 1:
            alike = self._pick(key=50, greater=25, time=10, sum=10, text=5)
            pairs = list(itertools.pairwise(single))
            if alike == "key":
                column = self._rnd.choice(["s", "n", "s"])
                found += [f"{b}.{column} = {a}.{column}" for a, b in pairs]
            else:
                a, b = self._rnd.choice(pairs)
                found.append(
                    {
                        "greater": f"{b}.v > {a}.v",
                        "time": f"{b}.ts - {a}.ts <= 5 MINUTES",
                        "sum": f"{b}.n >= 1.1 * {a}.n + 2",
                        "text": f"contains({b}.t, {a}.s)",
                    }[alike]
                )
        if several and self._chance(50):
            x = self._rnd.choice(several)
            kinds = {f"{x}.n > PREV({x}).n": 4, f"LAST({x}).v > FIRST({x}).v": 2}
            if single:
                kinds |= {f"{x}.s = {single[0]}.s": 3, f"{single[-1]}.v > LAST({x}).v": 2}
            found.append(self._pick(**kinds))
        return found

    # ---- clauses --------------------------------------------------------------------------------------------------

    def _items(self, funnel: bool) -> tuple[str, str, bool]:
        """Draw what SELECT lists, HAVING, and whether there are measures."""
        pick, rnd = self._pick, self._rnd
        names = list(dict.fromkeys(step.name for step in self._steps if step.name != "*"))
        kind = pick(all=60, names=12, measures=22, attributes=5, none=1)
        if funnel or kind == "all" or not names:
            return "*", "", False
        if kind == "none":
            return "NONE", "", False
        chosen = rnd.sample(names, rnd.randint(1, min(3, len(names))))
        if kind == "names":
            return ", ".join(chosen), "", False
        if kind == "attributes":
            return ", ".join(f"{name}[s, n]" for name in chosen), "", False
        items = []
        for name in chosen:
            of_one = not self._may_hold_several(name)
            aggregates = {f"LAST({name}).v": 1, f"COUNT({name})": 2, f"SUM({name}.n)": 2, f"MAX({name}.v)": 1}
            aggregates |= {f"AVG({name}.v)": 1, f"LIST({name}.s)": 1, f"FIRST({name}).ts": 1}
            items.append(pick(**({f"{name}.n": 4, f"{name}.ts": 2, f"upper({name}.s)": 1} if of_one else aggregates)))
        items = [f"{item} AS m{k}" for k, item in enumerate(items)]
        first = items[0].split(" AS ")[0]
        numeric = not first.startswith(("LIST", "upper")) and not first.endswith(".ts")
        return ", ".join(items), "HAVING m0 > 1" if numeric and self._chance(30) else "", True

    def _may_hold_several(self, name: str) -> bool:
        """Return True for a variable of repeated or of several steps; a type is a variable of all its steps."""
        own = [step for step in self._steps if step.name == name or name in step.types]
        return len(own) > 1 or own[0].several

    def _length(self) -> str:
        return self._pick(**{"10 EVENTS": 20, "5 MINUTES": 35, "1 HOURS": 22, "30 SECONDS": 10, "20 [seq]": 13})

    def _type(self) -> str:
        return self._rnd.choice("ABCDE")

    def _chance(self, percent: float) -> bool:
        return self._rnd.random() * 100 < percent

    def _pick(self, **weights: float) -> str:
        return self._rnd.choices(list(weights), list(weights.values()))[0]


def kind_of_message(message: str) -> str:
    """Return the first line of a message without the names, numbers and types in it."""
    line = message.splitlines()[0]
    line = re.sub(r"^output='funnel' .* the query is none:", "funnel:", line)
    line = re.sub(r"'[^']*'|`[^`]*`", "'…'", line)
    line = re.sub(r"(?<= )(a string|string|bool|u?int\d+|double|timestamp.*|decimal.*|duration.*)$", "…", line)
    return re.sub(r"\d+", "n", line)


def refusal_of(text: str, output: str | None) -> str | None:
    """Return the message that refuses a query, or None if it is answered."""
    try:
        query = cer_gpu.compile(text, schema=SCHEMA, time_column="ts")
        query.evaluator() if output is None else query.evaluator(output=output)
    except (cer_gpu.QueryError, cer_gpu.errors.OptionError) as error:
        return str(error)
    return None


def wild_queries(n: int, seed_: int) -> list[tuple[str, str | None]]:
    """Return queries whose parts are combined without regard to any meaning, with their outputs."""
    drawn: list[tuple[str, str | None]] = []

    @seed(seed_)
    @settings(
        max_examples=n,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(queries())
    def note(query: tuple[ref.Query, str]) -> None:
        drawn.append((rendering.to_ceql(query[0]), query[1]))

    random.seed(seed_)
    note()
    return drawn


def main() -> None:
    """Draw the queries and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000, metavar="N", help="number of queries")
    parser.add_argument("--seed", type=int, default=1, metavar="K")
    parser.add_argument("--examples", type=int, default=0, metavar="M", help="print so many queries of each message")
    parser.add_argument("--wild", action="store_true", help="combine parts without regard to any meaning")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    kinds: Counter[str] = Counter()
    shown: dict[str, list[str]] = defaultdict(list)
    if options.wild:
        drawn = wild_queries(options.queries, options.seed)
    else:
        questions = Questions(random.Random(options.seed))
        drawn = [questions.draw() for _ in range(options.queries)]
    n_queries, n_refused = len(drawn), 0
    for text, output in drawn:
        message = refusal_of(text, output)
        if message is not None:
            n_refused += 1
            kind = kind_of_message(message)
            kinds[kind] += 1
            if len(shown[kind]) < options.examples:
                shown[kind].append(f"{text}  [{output or 'default'}]")
    table = Table("share", "queries", "refused because", title=f"{n_refused:,} of {n_queries:,} queries are refused")
    for kind, n in kinds.most_common():
        table.add_row(f"{n / n_queries:.2%}", f"{n:,}", "\n  ".join([kind, *shown[kind]]))
    Console(width=180).print(table, markup=False)


if __name__ == "__main__":
    main()
