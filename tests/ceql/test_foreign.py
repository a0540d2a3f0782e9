"""Words and signs of other languages get the CEQL for them."""

import pytest

from cer_gpu.ceql import foreign
from cer_gpu.resolution.ceql import analyse

A = "SELECT * WHERE A AS a FILTER "
ASKED = {
    # statements of others
    "PATTERN SEQ(A a, B b) WHERE a.id = b.id": "a query is SELECT * FROM S WHERE",
    "PATTERN (A+ B)": "a query is SELECT * FROM S WHERE",
    "from every e1=A -> e2=B select e1": "a query is SELECT * FROM S WHERE",
    "SELECT * FROM S PATTERN A B+ DEFINE B AS B.price > 3": "a query is SELECT * FROM S WHERE",
    "SELECT * FROM S JOIN T WHERE A": "FROM S, T WHERE S>A AS a ; T>B AS b",
    "SELECT * FROM S AS s WHERE A": "A AS a",
    "SELECT * FROM trades.parquet WHERE A": "its file stands outside the query",
    "SELECT * FROM 'trades' WHERE A": "its file stands outside the query",
    "SELECT DISTINCT * WHERE A": "leave DISTINCT out",
    "SELECT COUNT(DISTINCT a.x) WHERE A AS a": "COUNT(x) counts events",
    "SELECT * WHERE A UNTIL (B) ; C": "A+ UNTIL (B)",
    "SELECT * WHERE A ; B FOR 5 MINUTES": "behind an absence",
    "SELECT * WHERE A FILTER A[COUNT(B) OVER (PARTITION BY k) > 1]": "OVER 1 HOUR",
    "SELECT * WHERE A ; !B FOR -5 MINUTES": "a length is 5 MINUTES",
    "SELECT * WHERE A ; B EACH STEP": "WITHIN 5 MINUTES EACH STEP",
    "SELECT * WHERE A ; B EVERY 5 EVENTS": "LIMIT 1 EVERY 5 MINUTES",
    # clauses
    "SELECT * WHERE A ; B GROUP BY name": "PARTITION BY [key]",
    "SELECT * WHERE A ; B ORDER BY ts": "sort=True (--sort)",
    "SELECT * WHERE 'view' ; B": "without quotes",
    "SELECT * WHERE A OR 'view'": "without quotes",
    "SELECT * WHERE A ; B AFTER MATCH SKIP PAST LAST ROW": "CONSUME BY ANY",
    "SELECT * WHERE A ; B SKIP TO NEXT ROW": "CONSUME BY ANY",
    "SELECT * WHERE A ; B DEFINE A AS price > 3": "MATCH_RECOGNIZE",
    "SELECT * WHERE A ; B MEASURES x": "MATCH_RECOGNIZE",
    "SELECT * WHERE A ; B LIMIT 10 OFFSET 3": "limit=10 (--limit 10)",
    "SELECT * WHERE A ; B FETCH FIRST 3 ROWS": "limit=10 (--limit 10)",
    "SELECT * WHERE A JOIN B ON a.id = b.id": "FILTER b.id = a.id",
    "SELECT * WHERE A ; B WHERE B.price > 3": "tests stand behind FILTER",
    "SELECT * WHERE A ; B PARTITION BY name": "PARTITION BY [name]",
    "SELECT * WHERE A ; B PARTITION [name]": "PARTITION BY [key]",
    "SELECT * WHERE A ; B within(5 minutes)": "WITHIN 5 MINUTES",
    "SELECT * WHERE A ; B WITHIN INTERVAL '5' MINUTE": "WITHIN 5 MINUTES",
    "SELECT * WHERE A ; B WITHIN '5 minutes'": "WITHIN 5 MINUTES",
    "SELECT * WHERE A ; B WITHIN 7m": "write WITHIN 7 MINUTES",
    "SELECT * WHERE A ; B WITHIN 1.5 secs": "write WITHIN 1.5 SECONDS",
    "SELECT * WHERE A ; B WITHIN 2h": "write WITHIN 2 HOURS",
    "SELECT * WHERE A ; B WITHIN 2d": "write WITHIN 2 DAYS",
    "SELECT * WHERE A ; B WITHIN 20 ROWS": "write WITHIN 20 EVENTS",
    # tests
    A + 'a[name = "x"]': "single quotes",
    "SELECT * WHERE (A -> B) WITHIN 1 MINUTE -> C": "(A ; B WITHIN 5 MINUTES) ; C",
    "SELECT * WHERE A ; B WITHIN (5 MINUTES)": "without quotes: WITHIN 5 MINUTES",
    A + "a[name IS NOT 'x']": "write <>",
    A + "a[name IS 'x']": "write =",
    A + "a[name has 'x']": "startswith(name, 'x')",
    A + "a[name CONTAINS 'x']": "contains(name, 'x') are tests",
    A + "a.name ILIKE 'x'": "LIKE 'x' searches",
    A + "a[name RLIKE 'x']": "LIKE 'x' searches",
    A + "a[name =~ 'x']": "LIKE 'x' searches",
    A + "a[name IN ('x', 'y')]": "IN {1, 2}",
    A + "a[name IN ['x', 'y']]": "IN {1, 2}",
    A + "a[price > 1 && price < 3]": "write AND",
    A + "a[price > 1 || price < 3]": "write OR",
    A + "a[!(price > 1)]": "write NOT",
    A + "a.name = 'x' OR 'y'": "a.name IN {'x', 'y'}",
    A + "a[price BETWEEN 1, 3]": "BETWEEN 1 AND 3",
    A + "a[price === 2]": "write =",
    A + "a[price ** 2 > 3]": "price * price",
    A + "a[price ^ 2 > 3]": "price * price",
    A + "a[EXTRACT(hour FROM ts) > 3]": "hour(ts)",
    A + "a[CAST(price AS INT) = 1]": "without CAST",
    A + "a[price::int = 1]": "without ::",
    A + "a[CASE WHEN price > 1 THEN 1 ELSE 0 END = 1]": "there is no CASE",
    A + "a[NOT EXISTS b]": "A ; !B ; C",
    A + "a[ts > TIMESTAMP '2024-01-01']": "ts > '2024-01-31 12:00'",
    A + "a[ts > INTERVAL '3' DAY]": "b.ts - a.ts <= 5 MINUTES",
    A + "a[now() - ts < 3]": "no current time",
    A + "a[PREV(price) < price]": "LAG(price)",
    A + "a[avg(price) > 3]": "SELECT and HAVING",
    A + "count(*) > 3": "SELECT and HAVING",
    A + "a[LEAD(price) > 3]": "a later event is one of the pattern",
    A + "a[NEXT(price) > 3]": "a later event is one of the pattern",
    A + "a[regexp_like(name, 'x')]": "LIKE 'x' searches",
    A + "a[substr(name, 1) = 'x']": "substring(name, 0, 3)",
    A + "a[starts_with(name, 'x')]": "startswith(name, 'ab')",
    A + "a[instr(name, 'x') > 3]": "indexof(name, 'ab')",
    A + "a[len(name) > 3]": "length(name)",
    A + "a[datediff(ts, ts) > 3]": "b.ts - a.ts <= 5 MINUTES",
    A + "a[second(ts) = 3]": "minute, hour, day",
    A + "a[coalesce(price, 0) = 3]": "IS NULL",
    A + "a[power(price, 2) > 3]": "price * price",
    A + "a[sqrt(price) > 3]": "price * price > 9",
    A + "a[floor(price) >= 3]": "round(price)",
    A + "a[ceil(price) >= 3]": "price > 2",
    # patterns
    "SELECT * WHERE NOT A": "A ; !B ; C",
    "SELECT * WHERE A ; NOT B ; C": "A ; !B ; C",
    "SELECT * WHERE A AND NOT B": "A ; !B ; C",
    "SELECT * WHERE A AND B": "write ALL",
    "SELECT * WHERE A FOLLOWED BY B": "joined by ; (later)",
    "SELECT * WHERE A THEN B": "joined by ; (later)",
    "SELECT * WHERE A => B": "joined by ; (later)",
    "SELECT * WHERE A >> B": "A -> B (the next B)",
    "SELECT * WHERE A ~> B": "A -> B (the next B)",
    "SELECT * WHERE every A -> B": "write no EVERY",
    "SELECT * WHERE every (A -> B)": "write no EVERY",
    "SELECT * WHERE A B": "a name stands behind AS",
    "SELECT * WHERE A a ; B b": "a name stands behind AS",
    "SELECT * WHERE A, B": "joined by ; (later)",
    "SELECT * WHERE A | B": "A OR B",
    "SELECT * WHERE A && B": "A ALL B",
    "SELECT * WHERE SEQ(A, B)": "a sequence is A ; B",
    "SELECT * WHERE A+?": "no quantifier is reluctant",
    "SELECT * WHERE A<2:5>": "A{2,5}",
    "SELECT * WHERE A[2] ; B": "A{2,5}",
    "SELECT * WHERE A times 3": "A{2,5}",
    "SELECT * WHERE ^A": "no anchors",
    "SELECT * WHERE A ; B$": "no anchors",
    "SELECT * WHERE A[price > 3] ; B": "a[price > 100]",
    "SELECT * WHERE A(price > 3) ; B": "a[price > 100]",
    "SELECT * WHERE A.price > 3": "tests stand behind FILTER",
    "SELECT * WHERE price > 3": "tests stand behind FILTER",
    "SELECT * WHERE price = 3 ; B": "tests stand behind FILTER",
    "SELECT * WHERE type = 'A'": "tests stand behind FILTER",
    "SELECT * WHERE e1=A -> e2=B": "A AS e1",
}


@pytest.mark.parametrize("query", ASKED)
def test_other_languages_get_the_ceql_for_it(query):
    _, errors = analyse(query)
    assert ASKED[query] in (errors[0].hint or "")


NOTED = {
    A + "a[name LIKE 'LA%']": "% means itself: write '^LA'",
    A + "a[name LIKE '%LA_']": "% means itself: write 'LA.$'",
    A + "a[name LIKE '_A']": "_ means itself: write '^.A$'",
    "SELECT * WHERE A ; B+? ; C": "no quantifier is reluctant",
}


@pytest.mark.parametrize("query", NOTED)
def test_what_has_another_meaning_is_noted(query):
    compiled, _ = analyse(query)
    assert any(NOTED[query] in note for note in compiled.notes)


@pytest.mark.parametrize(
    "query",
    [A + "a[name LIKE 'user_1']", A + "a[name LIKE '^LA']", A + "a[name LIKE 'a.*%']", "SELECT * WHERE (A+)? ; C"],
)
def test_what_means_what_it_says_is_not_noted(query):
    compiled, _ = analyse(query)
    assert not [note for note in compiled.notes if "means itself" in note or "reluctant" in note]


def test_every_line_of_the_table_gives_its_hint():
    given = set()
    for query in ASKED:
        _, errors = analyse(query)
        if errors[0].start is not None:
            given.add(foreign.line_of(query, errors[0].start))
    hidden = [word for word in foreign._WORDS if word not in given]
    assert hidden == []
