"""Sets of patterns against a plain matcher: any patterns, any texts, any cut of the texts into dictionaries."""

import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import reference_predicates
from glob_strategies import globs, is_pattern, values
from hypothesis import strategies as st
from strategies import property_test

import cer_gpu
from cer_gpu.expressions import string_sets
from cer_gpu.expressions.globs import glob_sets
from cer_gpu.expressions.globs.compiling import Pattern
from cer_gpu.expressions.globs.folding import folds, letters
from cer_gpu.expressions.globs.glob_sets import GlobSet
from cer_gpu.expressions.inputs import CODES, Inputs
from cer_gpu.expressions.string_tests import OneOfPatterns

# few letters, so that pieces and texts meet often
short = st.lists(st.sampled_from(["a", "b", "B", "k", "\u212a", "é", "\0", "\n"]), max_size=9).map("".join)
star = st.lists(st.sampled_from(["a", "b", "k", "ab", "abk", "*", "*", "?", "[a-b]", "[!a]", "é"]), max_size=7).map(
    "".join
)
patterns = st.builds(Pattern, star | globs.filter(is_pattern)) | st.builds(Pattern, short | values, st.just(True))


def matches(pattern, text, nocase):
    glob = "".join(f"[{sign}]" if sign in "*?[" else sign for sign in pattern.text) if pattern.plain else pattern.text
    return reference_predicates.glob_matches(glob, text, nocase)


def found(of, texts, first=0):
    """Return the numbers of the texts that each pattern matches."""
    result = of.find(pa.array(texts, pa.string()), first)
    return [result.of(np.array([k], np.int32)).tolist() for k in range(of.n_patterns)]


@property_test()
def test_each_pattern_finds_the_texts_that_it_matches(data):
    drawn = data.draw(st.lists(patterns, max_size=12), label="patterns")
    texts = data.draw(st.lists(short | values | st.sampled_from([p.text for p in drawn] or [""]), max_size=12))
    nocase = data.draw(st.booleans(), label="nocase")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(glob_sets, "LAID_AT_ONCE", data.draw(st.sampled_from([1, 9, 1 << 20]), label="at once"))
        patch.setattr(glob_sets, "MAX_PAIRS", data.draw(st.sampled_from([1, 1 << 16]), label="room"))
        of = GlobSet(drawn, nocase)
        expected = [[i for i, text in enumerate(texts) if matches(p, text, nocase)] for p in drawn]
        assert found(of, texts) == expected
        assert found(of, texts, 5) == [[i + 5 for i in each] for each in expected]  # with the grams of the first texts


def test_ten_thousand_patterns_are_those_of_one_by_one():
    chosen = random.Random(1)
    words = ["".join(chosen.choices("abcdefgh\\.", k=chosen.randint(1, 9))) for _ in range(300)]
    sign = lambda: chosen.choice(["*", "*", "?", "", "[a-d]", "é"])  # noqa: E731
    drawn = [sign() + chosen.choice(words) + sign() + chosen.choice(words) + sign() for _ in range(10_000)]
    texts = ["".join(chosen.choices([*words, "É", "X"], k=chosen.randint(0, 6))) for _ in range(200)]
    for nocase in (False, True):
        of = GlobSet([Pattern(each) for each in drawn], nocase)
        result = of.find(pa.array(texts))
        assert len(result.strings) > 1_000
        for k in chosen.sample(range(len(drawn)), 300):
            one = OneOfPatterns((Pattern(drawn[k]),), nocase)(pa.array(texts))
            assert result.of(np.array([k], np.int32)).tolist() == np.flatnonzero(np.asarray(one)).tolist()


def test_letters_fold_as_they_do_for_re2():
    characters = pa.array([chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000])
    orbits = {first: [first] for first in letters().values()}
    for letter, first in letters().items():
        assert len(chr(letter).encode()) >= len(chr(first).encode())
        orbits[first].append(letter)
    for table in (letters(), dict(enumerate(folds().tolist()))):
        assert {a: b for a, b in table.items() if a != b} == letters()
    # some letter that differs by case alone, of all characters: those of the orbits and no others
    cased = "[" + "".join(f"\\x{{{letter:x}}}" for letter in [*letters(), *orbits]) + "]"
    hit = np.asarray(pc.match_substring_regex(characters, cased, ignore_case=True))
    members = pa.array(np.array(characters)[hit].tolist())
    assert sorted(map(ord, members.to_pylist())) == sorted({*letters(), *orbits})
    for orbit in orbits.values():
        same = pc.match_substring_regex(members, f"\\x{{{orbit[0]:x}}}", ignore_case=True)
        assert sorted(map(ord, members.filter(same).to_pylist())) == sorted(orbit)


def test_text_that_is_no_utf_8_is_read_to_its_end():
    broken = [b"a\xffb", b"\xe2\x82", b"\xf0\x9f\x94", b"ab\xc3", b"\xff", b"b"]
    texts = pa.array(broken).cast(pa.binary())
    texts = pa.Array.from_buffers(pa.string(), len(texts), texts.buffers())
    for nocase in (False, True):
        of = GlobSet([Pattern(each) for each in ("a", "b", "", "*b", "a*", "???????")], nocase)
        result = of.find(texts)
        assert [result.of(np.array([k], np.int32)).tolist() for k in range(6)] == [[], [5], [], [0, 5], [0, 3], []]


def table_of(inputs, slot, dictionary):
    table = inputs.tables[slot][1]
    rows = table(dictionary)
    assert not rows[-1]
    assert table.codes(dictionary).tolist() == np.flatnonzero(rows).tolist()
    return rows[:-1].tolist()


@property_test()
def test_tests_of_a_column_hold_for_any_cut_into_dictionaries(data):
    tests = data.draw(
        st.lists(
            st.tuples(
                st.builds(OneOfPatterns, st.lists(patterns, min_size=1, max_size=4).map(tuple), st.booleans()),
                st.booleans(),
            ),
            min_size=1,
            max_size=6,
        ),
        label="tests",
    )
    texts = data.draw(st.lists(short | values | st.none(), max_size=14), label="texts")
    inputs = Inputs(pa.schema([("s", pa.string())]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(string_sets, "TOGETHER_FROM", data.draw(st.sampled_from([0, 40, 1 << 26]), label="together from"))
        patch.setattr(string_sets, "MAX_DICTIONARY_PARTS", data.draw(st.sampled_from([1, 2, 8]), label="parts"))
        patch.setattr(string_sets, "FEW_PAIRS", data.draw(st.sampled_from([0, 1 << 10]), label="few pairs"))
        patch.setattr(string_sets, "CACHED_BYTES", data.draw(st.sampled_from([0, 1 << 26]), label="kept"))
        slots = [inputs.string_table(inputs.column("s", CODES), test, negated) for test, negated in tests]
        kind = data.draw(st.sampled_from([pa.string(), pa.large_string()]))
        begin = end = 0
        while True:
            dictionary = pa.array(["noise", *texts[begin:end]], kind)[1:]
            for slot, (test, negated) in zip(slots, tests, strict=True):
                expected = [
                    text is not None and any(matches(p, text, test.nocase) for p in test.patterns) != negated
                    for text in texts[begin:end]
                ]
                assert table_of(inputs, slot, dictionary) == expected
            if data.draw(st.booleans(), label="another evaluation"):
                inputs = inputs.fresh()
            if end == len(texts):
                break
            begin = data.draw(st.integers(begin, end) if data.draw(st.booleans()) else st.just(begin), label="begin")
            end = data.draw(st.integers(max(begin, end), len(texts)), label="end") if end < len(texts) else end
            if data.draw(st.integers(0, 3)) == 0:
                end = len(texts)


def test_a_test_that_is_added_later_is_answered(monkeypatch):
    monkeypatch.setattr(string_sets, "TOGETHER_FROM", 0)
    inputs = Inputs(pa.schema([("s", pa.string())]))
    codes, texts = inputs.column("s", CODES), pa.array(["ab", "b", "c"])
    first = inputs.string_table(codes, OneOfPatterns((Pattern("a*"),)), False)
    assert table_of(inputs, first, texts) == [True, False, False]
    second = inputs.string_table(codes, OneOfPatterns((Pattern("B"), Pattern("c")), True), False)
    assert table_of(inputs, second, texts) == [False, True, True]
    assert table_of(inputs, first, texts) == [True, False, False]


def test_a_text_is_read_once_for_all_tests():
    rules = {f"r{k}": f"SELECT * FROM S WHERE A AS a FILTER a[s GLOB {{'*x{k}y*', 'z?{k}'}} NOCASE]" for k in range(50)}
    batch = pa.record_batch({"type": ["A"] * 900, "s": [f"-x{k % 90}Y" for k in range(900)]})
    evaluator = cer_gpu.compile_all(rules).evaluator(device="cpu")
    result = evaluator.push(batch)
    assert [len(result[f"r{k}"]) for k in range(50)] == [10] * 50
    host = evaluator._group.shared._guards._host
    assert host._strings.n[0] == 91  # the type is a text, too
