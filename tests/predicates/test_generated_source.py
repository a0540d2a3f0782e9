"""Generated code holds no text of a query or of the data: its tokens are fixed, and names do not change it."""

from __future__ import annotations

import io
import re
import tokenize

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from random_predicates import guard_words

from cer_gpu.automaton.cea import build_cea
from cer_gpu.automaton.normal_form import normal_form
from cer_gpu.ceql.parser import parse
from cer_gpu.expressions.targets.numba import HEADER
from cer_gpu.predicates.cuda.selection import select_source_of, struct_of
from cer_gpu.predicates.generated import source_of

WORDS = re.compile(
    r"def|run|for|in|range|while|if|else|return|min|[BFHIU]|fmod|prefetch|quotient|remainder|shape|n_rows|bits|integers"
    r"|widened|widened_natural|wide_(?:sum|difference|times|quotient|remainder|negative|absolute|float|equal|less)|not|wides|naturals|floats|types|streams|table|start|symbols|positions|n_selected|allowed|words|symbol|word|kept|begin|m|r|i"
    r"|last_types|last_streams|(?:[bcgptvx]|integers_|naturals_|floats_|wides_|last_t)[0-9]+"
)
NUMBER = re.compile(r"[0-9]+")
SIGNS = re.compile(r"[()\[\],.:=+*/&|^<>-]|<<|>>|<=|>=|==|!=|\+=")
LAYOUT = {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


CUDA_HEAD = """struct cer_query {
  typedef cer_u8 word;
  enum { n_parts = 1 };
  CER_DEVICE static void words(const cer_u64* __restrict__ in, cer_i64 row, word* w) {
    (void)in, (void)row;
"""
CUDA_TOKEN = re.compile(
    r"const|bool|true|false|static_cast|word|in|row|w|x[0-9]+|[0-9]+(U?LL)?|cer_([iuf](8|16|32|64)|wide)"
    r"|cer_(load|bit|is_valid|entry|f64_of_bits|to_f64|add|sub|mul|div|mod|neg|abs|widened|wide_of|eq|ne|lt|le|gt|ge)"
    r"|<<|&&|\|\||!=|[][()<>&|*+!=,;]"
)


def assert_harmless_on_a_gpu(struct: str) -> None:
    """Check that a struct has its frame, and only tokens of a fixed grammar."""
    assert struct.isascii()
    lines = struct.splitlines(keepends=True)
    assert re.sub("cer_u(16|64)", "cer_u8", lines[1]) == CUDA_HEAD.splitlines(keepends=True)[1]
    assert re.fullmatch(r"  enum \{ n_parts = [0-9]+ \};\n", lines[2])
    assert "".join([lines[0], *lines[3:5]]) == "".join(CUDA_HEAD.splitlines(keepends=True)[k] for k in (0, 3, 4))
    assert lines[-2:] == ["  }\n", "};\n"]
    for line in lines[5:-2]:
        assert line.startswith("    ")
        assert line.endswith(";\n")
        assert line.count(";") == 1
        for token in re.findall(r"\w+|<<|&&|\|\||!=|\S", line):
            assert CUDA_TOKEN.fullmatch(token), line


def assert_harmless(source: str) -> None:
    assert source.isascii()
    assert source.startswith(HEADER)
    for token in tokenize.generate_tokens(io.StringIO(source.removeprefix(HEADER)).readline):
        if token.type == tokenize.NAME:
            assert WORDS.fullmatch(token.string), token
        elif token.type == tokenize.NUMBER:
            assert NUMBER.fullmatch(token.string), token
        elif token.type == tokenize.OP:
            assert SIGNS.fullmatch(token.string), token
        else:
            assert token.type in LAYOUT, token


# ---- queries with placeholders for names, texts and patterns ---------------------------------------------------------

TYPES = [pa.int64(), pa.uint64(), pa.float32(), pa.string(), pa.dictionary(pa.int8(), pa.string()), pa.bool_()]
TESTS = [
    "{0} > 1 AND {2} < 0.5",
    "NOT {0} = {1} OR {5} = TRUE",
    "{0} / {0} % 3 >= -{1}",
    "{2} % 2 <> {0}",
    "{3} = '{t}'",
    "{4} IN {{'{t}', 'b'}}",
    "{4} LIKE '{p}' AND {0} IN {{1, 2, 300}}",
    "{3} < {4}",
    "{1} = 18446744073709551615",
]


def sources_of(tests, names, texts, n_copies, types, typed):
    """Return the sources for a query with these tests, and with the given names of columns, texts and types."""
    quoted = [f"`{name}`" for name in names]
    pattern = "".join(c if c.isalnum() and c.isascii() else "\\" + c if c.isascii() else c for c in texts[1])
    text, pattern = (t.replace("'", "''") for t in (texts[0], pattern))
    filled = [test.format(*quoted, t=text, p=pattern) for test in tests]
    events = [(f"`{types[i % 2]}`", filled[i % len(filled)]) for i in range(n_copies)]
    formula = " ; ".join(
        f"({kind} AS x FILTER x[{test} AND `{names[0]}` > {i}])" for i, (kind, test) in enumerate(events)
    )
    query = f"SELECT * FROM S WHERE {formula}"
    cea = build_cea(normal_form(parse(query).formula), selected=None)
    schema = pa.schema([("type", pa.string()), *zip(names, TYPES, strict=True)])
    program = guard_words(cea.guards, schema, "type" if typed else None, query).bound.program
    return [struct_of(program), *(source_of(program, nullable) for nullable in (False, True))]


CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="`\x00")
NAMES = st.lists(
    st.text(CHARACTERS, min_size=1, max_size=30).filter(lambda name: name != "type"),
    min_size=8,
    max_size=8,
    unique=True,
)
HOSTILE = ["x); import os; (", "__import__('os')", '"""', "\\", "{0}", "# ", "\n    import os", "c0"]


@given(
    st.lists(st.sampled_from(TESTS), min_size=1, max_size=4),
    NAMES,
    st.tuples(st.text(CHARACTERS, max_size=30), st.text(CHARACTERS, max_size=30)),
    st.sampled_from([1, 5, 12, 18]),
    st.booleans(),
)
@example(TESTS[:4], HOSTILE, (HOSTILE[0], HOSTILE[1]), 5, True)
@example(TESTS, HOSTILE[::-1], (HOSTILE[2], HOSTILE[6]), 20, True)
@settings(deadline=None, max_examples=25)
def test_names_and_texts_are_not_in_the_source(tests, names, texts, n_copies, typed):
    hostile = sources_of(tests, names[:6], texts, n_copies, names[6:], typed)
    assert_harmless_on_a_gpu(hostile[0])
    for source in hostile[1:]:
        assert_harmless(source)
    plain = sources_of(tests, list("abcdef"), ("some", "other"), n_copies, ["A", "B"], typed)
    assert hostile == plain


def test_constants_are_not_in_the_source():
    program = [
        guard_words(
            build_cea(normal_form(parse(f"SELECT * FROM S WHERE A FILTER A[{test}]").formula), selected=None).guards,
            pa.schema({"type": pa.string(), "n": pa.int64()}),
            "type",
            "",
        ).bound.program
        for test in ("n + 12345 > 678", "n + 2 > 1")
    ]
    assert program[0] == program[1]
    assert "12345" not in source_of(program[0], True)
    assert "12345" not in select_source_of(program[0])
