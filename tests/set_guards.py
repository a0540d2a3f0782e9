"""Random guards of sets: many tests of texts, joined to any depth."""

from __future__ import annotations

import random

from random_predicates import COLUMNS, predicate

PIECES = ["", "a", "b", "K", "k", "\u212a", "é", "É", "ab", "aba", "*", "?", "[a-b]", "[!k]", "zz", "it's"]


def glob(rng: random.Random) -> str:
    return "".join(rng.choices(PIECES, k=rng.randint(0, 5))).replace("'", "''")


def of_texts(rng: random.Random) -> str:
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
        return of_texts(rng) if rng.random() < 0.7 else predicate(rng, 0)
    parts = [any_test(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    return rng.choice(["({})", "NOT ({})"]).format(rng.choice([" AND ", " OR "]).join(parts))
