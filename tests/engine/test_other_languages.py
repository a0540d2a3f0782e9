"""MATCH_RECOGNIZE and EQL by every way to evaluate: cuts, pushes, checkpoints, threads, encodings, and sets."""

import random

import pyarrow as pa
from hypothesis import given, note, settings
from hypothesis import strategies as st
from sizes import scaled
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.errors import EventsError
from tests.eql import reference as eql
from tests.eql import strategies as eql_draws
from tests.row_patterns.reference import SkipError
from tests.row_patterns.test_searching import OTHERS
from tests.row_patterns.test_statements import CONDITIONS, SCHEMA, expected, statements, tables, text_of

SEEDS = st.integers(0, 2**32)
TEXTS = (
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint16(), pa.large_string()),
)


# ---- ways to evaluate -----------------------------------------------------------------------------------------------


def is_string(kind):
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def encoded(rnd, table):
    """Return the table with each column of texts in a type of its own, and in chunks with dictionaries of their own."""
    kinds = {field.name: rnd.choice(TEXTS) for field in table.schema if is_string(field.type)}
    pieces = []
    for piece in cut(rnd, table):
        columns = [piece[name].cast(kinds[name]) if name in kinds else piece[name] for name in table.column_names]
        pieces.append(pa.table(columns, names=table.column_names))
    return pa.concat_tables(pieces) if pieces else table


def cut(rnd, table):
    """Return the table in pieces of random lengths, some of them empty."""
    pieces, begin = [], 0
    while begin < table.num_rows:
        n = rnd.choice([0, 1, 1, 2, 5, 9])
        pieces.append(table.slice(begin, n).combine_chunks())
        begin += n
    return pieces


def batches_of(pieces):
    return [batch for piece in pieces for batch in piece.to_batches()]


def pushed(rnd, query, pieces):
    """Return the rows of an evaluator, or of each query of a set, that goes on from checkpoints between pushes."""
    evaluator, found = query.evaluator(), {}

    def take(rows):
        for name, each in (rows if isinstance(rows, dict) else {"": rows}).items():
            found.setdefault(name, []).extend(each.to_pylist())

    for batch in batches_of(pieces):
        take(evaluator.push(batch))
        if rnd.random() < 0.4:
            evaluator = query.restore(evaluator.checkpoint())
    take(evaluator.finish())
    return found


def outcome(evaluate):
    """Return what a function returns, or the first line of the error in the events."""
    try:
        return evaluate()
    except EventsError as error:
        return type(error), str(error).partition("\n")[0]


def check_all_ways(rnd, query, table, others):
    """Hold all ways to evaluate a query to one evaluation of the whole table, and return its rows."""
    wanted = outcome(lambda: query.evaluate(table, threads=1))
    rows = wanted.to_pylist() if isinstance(wanted, pa.Table) else wanted
    together = cer_gpu.QuerySet({**others, "own": query} if rnd.random() < 0.5 else {"own": query, **others})

    def read(whole):
        reader = pa.RecordBatchReader.from_batches(whole.schema, batches_of(cut(rnd, whole)))
        return query.stream(reader).read_all().to_pylist()

    def of_set(whole):
        return pushed(rnd, together, cut(rnd, whole)).get("own", [])

    ways = {
        "threads": lambda whole: query.evaluate(whole, threads=2).to_pylist(),
        "batches": read,
        "pushes": lambda whole: pushed(rnd, query, cut(rnd, whole)).get("", []),
        "rows": lambda whole: pushed(rnd, query, [whole.slice(i, 1) for i in range(len(whole))]).get("", []),
        "set": lambda whole: together.evaluate(whole)["own"].to_pylist(),
        "set, threads": lambda whole: together.evaluate(whole, threads=2)["own"].to_pylist(),
        "set, pushes": of_set,
    }
    for name, way in ways.items():
        for whole in (table, encoded(rnd, table)):
            found = outcome(lambda way=way, whole=whole: way(whole))
            assert found == rows, (name, whole.schema)
    return rows


# ---- MATCH_RECOGNIZE ------------------------------------------------------------------------------------------------

CEQL = {
    "pairs": "SELECT * FROM S WHERE A AS a ; B AS b FILTER b[x > 1] WITHIN 4 EVENTS",
    "keyed": "SELECT * FROM S WHERE A ; B+ PARTITION BY [k] WITHIN 5 EVENTS",
    "texts": "SELECT * FROM S WHERE A AS a FILTER a[s LIKE 'a%']",
}
FALLING = (
    "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY s ORDER BY ts MEASURES LAST(x) AS low, FIRST(s) AS s1 "
    "PATTERN (A B+) DEFINE B AS x <= PREV(x))"
)


@settings(max_examples=scaled(80), deadline=None)
@given(statements([*OTHERS, *CONDITIONS]), tables(), SEEDS)
def test_statements_have_one_table_by_every_way(statement, rows, seed):
    rnd = random.Random(seed)
    plain = pa.Table.from_pylist(rows, SCHEMA)
    query = cer_gpu.compile(text_of(statement))
    note(query.text)
    others = dict(cer_gpu.compile_all(dict(rnd.sample(sorted(CEQL.items()), rnd.randint(1, 3)))))
    if rnd.random() < 0.5:
        others["falling"] = cer_gpu.compile(FALLING)
    table = plain.append_column("type", pa.array(rnd.choices("AB", k=len(rows)), pa.string()))
    try:
        wanted = expected(statement, rows)
    except SkipError:
        assert outcome(lambda: query.evaluate(plain))[0] is EventsError
    else:
        assert [list(row.values()) for row in query.evaluate(plain).to_pylist()] == wanted
    with small_sizes():
        check_all_ways(rnd, query, table, others)


# ---- EQL ------------------------------------------------------------------------------------------------------------

DROPS = (
    'SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY "host.id" ORDER BY ts MEASURES LAST(n) AS low, '
    'FIRST("process.name") AS name PATTERN (A B+) DEFINE B AS n < PREV(n))'
)
EQL = {
    "all": "any where true",
    "pairs": "sequence by `user.id` with maxspan=5s [process where true] [file where n > 0]",
    "texts": 'process where process.name : ("a*", "?b")',
}


def check_eql(seed, kind):
    """Hold a random query and random events to the reference, and all ways to one another."""
    rnd = random.Random(seed)
    draw = eql_draws.Draw(rnd)
    drawn = draw.sequence(absent=True) if kind == "absent" else getattr(draw, kind)()
    text = eql.text(drawn, eql_draws.spelling(rnd))
    note(text)
    rows = eql_draws.rows_of(rnd, 18)
    table = eql_draws.table_of(rows)
    query = cer_gpu.compile(text, language="eql", time_column=eql.TIME)
    chosen = dict(rnd.sample(sorted(EQL.items()), rnd.randint(1, 3)))
    others = dict(cer_gpu.compile_all(chosen, language="eql", time_column=eql.TIME))
    if rnd.random() < 0.5:
        others["drops"] = cer_gpu.compile(DROPS)
    with small_sizes():
        found = check_all_ways(rnd, query, table, others)
    if kind != "sample":  # of which the definition allows several
        assert [tuple(row["positions"]) for row in found] == eql.evaluate(drawn, rows, here=True)


@settings(max_examples=scaled(90), deadline=None)
@given(SEEDS, st.sampled_from(["event", "sequence", "absent", "sample"]))
def test_eql_has_one_table_by_every_way(seed, kind):
    check_eql(seed, kind)
