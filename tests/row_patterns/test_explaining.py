"""Explanations of statements with MATCH_RECOGNIZE."""

import cer_gpu
from cer_gpu.row_patterns.compiling import compile_row_pattern
from cer_gpu.row_patterns.explaining import explain_row_pattern

CLAUSES = "ORDER BY x DESC, y NULLS FIRST {} PATTERN ({}) SUBSET U = (A, B) DEFINE B AS x > 1, A AS y = 2"


def explained(rows, pattern, select="*"):
    return cer_gpu.compile(f"SELECT {select} FROM t MATCH_RECOGNIZE ({CLAUSES.format(rows, pattern)})").explain(
        detail="all"
    )


def test_every_clause_is_in_the_words():
    found = explained("ALL ROWS PER MATCH WITH UNMATCHED ROWS AFTER MATCH SKIP TO LAST U", "A* B*", "x, y AS z")
    assert found.words == [
        "Rows of t are taken in the order of x DESC, y NULLS FIRST.",
        "At each row, the preferred match of A* B* that begins there is found.",
        "The search goes on at the last row of U in a match.",
        "Each row of the result is a row of a match, or an empty match, or a row of no match, with x, z.",
    ]
    found = explained("ALL ROWS PER MATCH AFTER MATCH SKIP TO NEXT ROW", "A B")
    assert found.words[2:] == [
        "The search goes on at the second row of a match, so that matches may overlap.",
        "Each row of the result is a row of a match, with all columns and measures.",
    ]


def test_conditions_have_the_bits_that_they_are_evaluated_to():
    found = explained("ALL ROWS PER MATCH", "A B X").to_dict()["conditions"]
    assert [(each["variable"], each["bit"]) for each in found] == [("A", 1), ("B", 0), ("X", None)]


def test_conditions_on_other_rows_are_told_to_be_searched():
    query = compile_row_pattern(f"SELECT * FROM t MATCH_RECOGNIZE ({CLAUSES.format('ALL ROWS PER MATCH', 'A B')})")
    found = str(explain_row_pattern(query._statement, query._program, ["B"], ["A", "B"], "all"))
    assert "A   y = 2   by search, as it reads other rows of the match" in found
    assert "B   x > 1   bit 0 of a row, and by search" in found
    assert "by search with a budget of steps" in found


def test_a_long_pattern_is_cut_and_not_drawn():
    found = explained("ALL ROWS PER MATCH", "(A B){100}")
    assert "and 151 more" in str(found)
    assert "201 states: see to_svg()" in found._repr_html_()


def test_a_place_tells_how_many_rows_it_takes():
    found = explained("ALL ROWS PER MATCH", "A{20,600} (A? A?){100} B{3,} B X{30,900}? {- X{0,7} -} B A{2} A")
    assert [(each["place"], each["next"]) for each in found.to_dict()["places"]] == [
        ("start", ["A.1{20,800}"]),
        ("A.1{20,800}", ["B.2{4,}"]),
        ("B.2{4,}", ["X.3{30,900}?"]),
        ("X.3{30,900}?", ["X.4{1,7}", "B.5"]),
        ("X.4{1,7}", ["B.5"]),
        ("B.5", ["A.6{3}"]),
        ("A.6{3}", ["the end"]),
    ]
    assert "of which some take several rows" in str(found)
