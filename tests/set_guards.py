"""Random guards of sets: many tests of texts, joined to any depth."""

from __future__ import annotations

import random

import pyarrow as pa
from random_predicates import COLUMNS, predicate, tree

PIECES = ["", "a", "b", "K", "k", "\u212a", "é", "É", "ab", "aba", "*", "?", "[a-b]", "[!k]", "zz", "it's"]


def glob(rng: random.Random) -> str:
    return "".join(rng.choices(PIECES, k=rng.randint(0, 5))).replace("'", "''")


def of_strings(rng: random.Random) -> str:
    name, negated = rng.choice(COLUMNS["text"]), rng.choice(["", "NOT "])
    some = ", ".join(f"'{glob(rng)}'" for _ in range(rng.randint(1, 4)))
    return rng.choice(
        [
            f"{name} {negated}GLOB {{{some}}}{rng.choice(['', ' NOCASE'])}",
            f"{name} {negated}IN {{{some}}}",
            f"{name} = '{glob(rng)}'",
            f"{name} IS {negated}NULL",
            f"{rng.choice(COLUMNS['number'])} IS {negated}NULL",
        ]
    )


def any_test(rng: random.Random, depth: int) -> str:
    if not depth or rng.random() < 0.2:
        return of_strings(rng) if rng.random() < 0.7 else predicate(rng, 0)
    parts = [any_test(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    return rng.choice(["({})", "NOT ({})"]).format(rng.choice([" AND ", " OR "]).join(parts))


def texts_of_any_layout():
    """Long texts and short ones, folded letters of fewer bytes, bytes that are no UTF-8, and NULLs; tests of them."""
    rng = random.Random(5)
    texts = ["", "Kk\u212a\u212aé" * 40, "x" * 5000 + "ab", "aba", "É\U0001f600b", None, "\u212a"]
    broken = pa.array([b"a\xff\xc3", b"\xe2\x82ab", b"\xf0", b"ab\xff"], pa.binary()).view(pa.string())
    tests = [f"t GLOB '{glob(rng)}'{rng.choice(['', ' NOCASE'])}" for _ in range(200)]
    tests += ["t GLOB '*ab'", "t GLOB 'kk*' NOCASE", "t GLOB '??b'", "t GLOB '*\u212a*'", "t IS NULL", "t = ''"]
    tests += ["t GLOB '*k' NOCASE", "t GLOB '*é*é*' NOCASE", "NOT t GLOB '?*'", "t GLOB '*'"]
    drawn = pa.concat_arrays([pa.array(rng.choices(texts, k=90)), broken, pa.array([None] * 40, pa.string())])
    columns = [drawn, drawn.cast(pa.large_string()), drawn.slice(7), drawn.dictionary_encode()]
    return [(None, tree(text)) for text in tests], columns
