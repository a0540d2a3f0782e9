"""Fields of structs by their paths: behind variables, and where a variable and a struct have one name."""

import pyarrow as pa
import pytest

import cer_gpu

EVENTS = pa.table(
    {
        "type": ["A", "B", "A", "B"],
        "st": [{"p": 1, "q": {"r": "u"}}, {"p": 2, "q": {"r": "u"}}, {"p": 3, "q": None}, {"p": 4, "q": {"r": "v"}}],
        "x": [{"p": 10}, {"p": 20}, {"p": 30}, {"p": 40}],
        "p": [5, 6, 7, 8],
        "tags": [["u"], ["v"], [], None],
    }
)


def positions(formula, clauses=""):
    return cer_gpu.compile(f"SELECT * FROM S WHERE {formula} {clauses}").evaluate(EVENTS)["positions"].to_pylist()


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("A AS a ; B AS b FILTER b[st.p > a.st.p]", [[0, 1], [2, 3], [0, 3]]),
        ("A AS a ; B AS b FILTER b.st.p = a.st.p + 1 AND b.st.q.r = a.st.q.r", [[0, 1]]),
        ("A AS a ; B AS b FILTER b[lower(a.st.q.r) = st.q.r]", [[0, 1]]),
        ("A+ AS a ; B AS b FILTER FIRST(a).st.p < b.st.p AND LAST(a).st.q.r = b.st.q.r", [[0, 1]]),
        ("A+ AS a FILTER a.st.p < PREV(a).st.p", [[0], [2]]),
        ("A FILTER A[LAG(st.p) > 1]", [[2]]),
        ("A AS a ; !(B AS b FILTER b[st.p > a.st.p]) ; A", []),
        ("A AS a ; !(B AS b FILTER b[st.p < a.st.p]) ; A", [[0, 2]]),
        ("NOT(A AS a FILTER a.x.p < 20)", [[], [], []]),
        ("A ; B AS b FILTER b[ANY(A.tags) = st.q.r]", None),
    ],
)
def test_paths_stand_behind_variables(formula, expected):
    if expected is None:
        with pytest.raises(cer_gpu.QueryTypeError, match="ANY compares elements"):
            positions(formula)
    else:
        assert positions(formula) == expected


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("A FILTER A[x.p = 10]", [[0]]),
        ("A AS x FILTER x[x.p = 5]", [[0]]),
        ("A AS x FILTER x[x.x.p = 10]", [[0]]),
        ("A AS x FILTER x.x.p = 10", [[0]]),
        ("A AS x ; B AS b FILTER b[x.p = 7]", [[2, 3]]),
        ("A AS x ; B AS b FILTER b[x.p = 30]", []),
        ("A AS x ; B AS b FILTER b[b.x.p = 20]", [[0, 1]]),
        ("A AS x ; B AS b FILTER b[x.x.p = 10 AND b.x.p = 20]", [[0, 1]]),
        ("A AS x ; B AS b FILTER b[ANY(x.tags) = 'u']", [[0, 1], [0, 3]]),
        ("A AS st ; B AS b FILTER b[ANY(st.tags) = 'u' AND st.st.p < b.st.p]", [[0, 1], [0, 3]]),
    ],
)
def test_a_first_name_that_is_a_variable_is_the_variable(formula, expected):
    assert positions(formula) == expected


def test_a_variable_that_a_filter_does_not_see_is_told():
    with pytest.raises(cer_gpu.QueryError, match="FILTER names 'x'"):
        positions("(A FILTER A[x.p = 10]) ; B AS x")
    assert positions("(A FILTER A[A.x.p = 10]) ; B AS x") == [[0, 1], [0, 3]]


def test_measures_having_and_keys_have_paths():
    text = "SELECT b.st.p - x.st.p AS d, LIST(x.st.q.r) AS l FROM S WHERE A AS x ; B AS b HAVING b.st.p > 2"
    found = cer_gpu.compile(text).evaluate(EVENTS)
    assert (found["d"].to_pylist(), found["l"].to_pylist()) == ([1, 3], [[None], ["u"]])
    assert positions("A ; B", "PARTITION BY [st.q.r]") == [[0, 1]]
