"""Draw queries from the whole language, its parts combined freely, and count the refused ones by message.

    python benchmarks/refused.py [--queries N] [--seed K] [--examples M]

The tests draw queries that have an answer.  Here their patterns, filters, clauses and outputs are put together without
regard to what is allowed, so that the table shows which combinations a user may write in vain.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import warnings
from collections import Counter, defaultdict
from dataclasses import replace
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


def kind_of_message(message: str) -> str:
    """Return the first line of a message without the names, numbers and types in it."""
    line = message.splitlines()[0]
    line = re.sub(r"^output='funnel' .* the query is none:", "funnel:", line)
    line = re.sub(r"'[^']*'|`[^`]*`", "'…'", line)
    line = re.sub(r"(?<= )(a string|string|bool|u?int\d+|double|timestamp.*|decimal.*|duration.*)$", "…", line)
    return re.sub(r"\d+", "n", line)


def refusal_of(query: ref.Query, output: str) -> tuple[str, str] | None:
    """Return the text of a query and the message that refuses it, or None if it is answered."""
    text = rendering.to_ceql(query)
    try:
        cer_gpu.compile(text, schema=SCHEMA, time_column="ts").evaluator(output=output)
    except (cer_gpu.QueryError, cer_gpu.errors.OptionError) as error:
        return text, str(error)
    return None


def main() -> None:
    """Draw the queries and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=20_000, metavar="N", help="number of queries")
    parser.add_argument("--seed", type=int, default=1, metavar="K")
    parser.add_argument("--examples", type=int, default=0, metavar="M", help="print so many queries of each message")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    kinds: Counter[str] = Counter()
    shown: dict[str, list[str]] = defaultdict(list)
    n_queries = n_refused = 0

    @seed(options.seed)
    @settings(
        max_examples=options.queries,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(queries())
    def count(drawn: tuple[ref.Query, str]) -> None:
        nonlocal n_queries, n_refused
        n_queries += 1
        refusal = refusal_of(*drawn)
        if refusal is not None:
            text, message = refusal
            n_refused += 1
            kind = kind_of_message(message)
            kinds[kind] += 1
            if len(shown[kind]) < options.examples:
                shown[kind].append(f"{text}  [{drawn[1]}]")

    random.seed(options.seed)
    count()
    table = Table("share", "queries", "refused because", title=f"{n_refused:,} of {n_queries:,} queries are refused")
    for kind, n in kinds.most_common():
        table.add_row(f"{n / n_queries:.2%}", f"{n:,}", "\n  ".join([kind, *shown[kind]]))
    Console(width=180).print(table, markup=False)


if __name__ == "__main__":
    main()
