"""Matches of row patterns against the backtracking reference."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cer_gpu.row_patterns import pattern as p
from cer_gpu.row_patterns import program as programs
from cer_gpu.row_patterns import row_matching
from cer_gpu.row_patterns.program import program_of
from cer_gpu.row_patterns.row_matching import PAST_LAST_ROW, TO_FIRST, TO_LAST, TO_NEXT_ROW, Skip, find_matches
from tests.row_patterns.reference import SkipError
from tests.row_patterns.reference import find_matches as expected_matches
from tests.strategies import property_settings

VARIABLES = "ABC"


def patterns():
    leaves = st.one_of(
        st.sampled_from([("var", v) for v in VARIABLES]),
        st.sampled_from([("var", v) for v in VARIABLES]),
        st.sampled_from([("empty",), ("start",), ("end",)]),
    )

    def larger(inner):
        lists = st.lists(inner, min_size=2, max_size=3)
        bounds = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (1, 3), (0, 2), (2, None)])
        return st.one_of(
            lists.map(lambda parts: ("seq", *parts)),
            lists.map(lambda parts: ("seq", *parts)),
            lists.map(lambda parts: ("alt", *parts)),
            lists.map(lambda parts: ("permute", *parts)),
            st.builds(lambda q, b, greedy: ("repeat", q, *b, greedy), inner, bounds, st.booleans()),
            inner.map(lambda q: ("exclude", q)),
        )

    return st.recursive(leaves, larger, max_leaves=7)


def chains():
    """Return repetitions of variables behind one another."""
    bounds = st.sampled_from([(0, None), (1, None), (0, 1), (0, 1), (2, 2), (1, 3), (0, 2), (2, 5), (1, 1)])
    each = st.builds(
        lambda v, b, greedy: ("repeat", ("var", v), *b, greedy), st.sampled_from("AAB"), bounds, st.booleans()
    )
    return st.lists(each, min_size=2, max_size=6).map(lambda parts: ("seq", *parts))


def parsed(tree):
    match tree[0]:
        case "var":
            return p.RowVariable(tree[1])
        case "empty":
            return p.Concatenation(())
        case "start" | "end":
            return p.Anchor(at_end=tree[0] == "end")
        case "exclude":
            return p.Exclusion(parsed(tree[1]))
        case "repeat":
            return p.Repetition(parsed(tree[1]), *tree[2:])
    kind = {"seq": p.Concatenation, "alt": p.Alternation, "permute": p.Permutation}[tree[0]]
    return kind(tuple(map(parsed, tree[1:])))


def written(tree):
    match tree[0]:
        case "var":
            return tree[1]
        case "empty":
            return "()"
        case "start" | "end":
            return "^" if tree[0] == "start" else "$"
        case "exclude":
            return f"{{- {written(tree[1])} -}}"
        case "repeat":
            _, part, least, most, greedy = tree
            short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
            count = short or (f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}")
            return f"({written(part)}){count}{'' if greedy else '?'}"
        case "alt":
            return "(" + " | ".join(map(written, tree[1:])) + ")"
        case "permute":
            return "PERMUTE(" + ", ".join(map(written, tree[1:])) + ")"
    return "(" + " ".join(map(written, tree[1:])) + ")"


SKIPS = [
    ("past last row", Skip(PAST_LAST_ROW)),
    ("to next row", Skip(TO_NEXT_ROW)),
    (("first", "B"), Skip(TO_FIRST, frozenset("B"), "B")),
    (("last", "C"), Skip(TO_LAST, frozenset("C"), "C")),
]


@given(
    patterns(),
    st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=7), min_size=1, max_size=3),
    st.sampled_from(SKIPS),
)
@property_settings
def test_matches_are_those_of_backtracking(tree, partitions, skips):
    text = written(tree)
    program = program_of(p.parse_pattern(text, (0, len(text))))
    assert program == program_of(parsed(tree))
    check(program, tree, partitions, *skips)


@given(
    st.one_of(patterns(), chains()),
    st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=9), min_size=1, max_size=4),
    st.sampled_from(SKIPS),
    st.sampled_from([1, 4, row_matching.COUNTED_ROWS]),
    st.sampled_from([1, row_matching.MATCHES]),
)
@property_settings
def test_matches_of_places_that_take_several_rows_are_those_of_backtracking(tree, partitions, skips, n_rows, n_matches):
    text = written(tree)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "MAX_WRITTEN_OUT", -1)
        patch.setattr(programs, "MUCH_SHORTER", 0)
        patch.setattr(row_matching, "COUNTED_ROWS", n_rows)
        patch.setattr(row_matching, "MATCHES", n_matches)
        program = program_of(p.parse_pattern(text, (0, len(text))), may_count=True)
        assert len(program.counts) == len(program.places)
        check(program, tree, partitions, *skips)


def check(program, tree, partitions, told, skip):
    """Hold the matches of a program to those of the reference."""
    define = {v: lambda m, bit=i: bool(m.last(None, "x") >> bit & 1) for i, v in enumerate(VARIABLES)}
    held = {v: np.array([bool(x >> i & 1) for x in range(8)]) for i, v in enumerate(VARIABLES)}
    wanted, first = [], 0
    fails = False
    for rows in partitions:
        try:
            for match in expected_matches([{"x": x} for x in rows], tree, define, skip=told):
                wanted.append((first + match.start, match.number, [(v, e) for _, v, e in match.steps]))
        except SkipError:
            fails = True
            break
        first += len(rows)
    symbols = np.array([x for rows in partitions for x in rows], np.uint16)
    ends = np.cumsum([len(rows) for rows in partitions])
    found = []
    try:
        for piece in find_matches(program, held, symbols, ends, skip):
            for i in range(len(piece)):
                taken = piece.places[piece.offsets[i] : piece.offsets[i] + piece.lengths[i]]
                steps = [(program.places[q].variable, program.places[q].excluded) for q in taken]
                found.append((int(piece.starts[i]), int(piece.numbers[i]), steps))
    except Exception as error:
        assert fails
        assert "SKIP" in str(error)  # noqa: PT017
        return
    assert not fails
    assert found == wanted
