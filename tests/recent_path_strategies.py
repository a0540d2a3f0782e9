"""Random patterns of SELECT RECENT with quantifiers, and their text."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import recent_strategies as drawn
import reference_recent as ref
from reference_recent_paths import Some

COUNTS = [(1, None), (1, None), (0, 1), (0, None), (1, 2), (2, 3), (1, 3), (2, None), (0, 2), (3, None)]


class DrawnPaths(drawn.Drawn):
    """A random query with quantifiers: a tree for the reference, and its text."""

    def __init__(self, rnd: random.Random, *, lengths: bool = True) -> None:
        super().__init__(rnd, lengths=lengths)
        if may_be_empty(self.query.formula):
            self.query = replace(self.query, formula=never_empty(self.query.formula))

    def chain(self, n: int, outer: list[str], depth: int) -> Any:
        return mended(super().chain(n, outer, depth), self.rnd)

    def part(self, outer: list[str], depth: int) -> Any:
        rnd = self.rnd
        if rnd.random() > 0.45:
            return super().part(outer, depth)
        single = depth == 2 or rnd.random() < 0.8
        body = self.step(outer) if single else self.chain(2, outer, depth + 1)
        if may_be_empty(body):
            body = never_empty(body)
        n_min, n_max = rnd.choice(COUNTS)
        joint = rnd.choice([";", ";", ";", ":", "->"]) if single and n_max != 1 else ";"
        name = self.name()
        named = (isinstance(body, ref.Event) and body.variable is None) or rnd.random() < 0.3
        body = body if named else ref.Named(body, name)
        inner = body.body if isinstance(body, ref.Named) else body
        if joint == "->" and not isinstance(inner, ref.Event | ref.Choice):
            joint = ";"
        until = ()
        if joint != ":" and n_max != 1 and rnd.random() < 0.25:
            until = (self.absent([*outer, *ref.variables_in(body)], None),)
        made: Any = Some(body, n_min, n_max, until, joint)
        if not named and rnd.random() < 0.4:
            column = self.key[0] if self.key is not None and rnd.random() < 0.7 else "m"
            op = "=" if column != "m" else rnd.choice(["<=", ">", "<>"])
            made = ref.Filtered(made, (ref.Filter(ref.Ref(name, column), op, ref.Ref(name, column, "PREV")),))
        return made


def may_be_empty(node: Any) -> bool:
    """Return whether a part may have no event."""
    match node:
        case ref.Event() | ref.Choice():
            return False
        case ref.Chain():
            return all(map(may_be_empty, node.parts))
        case Some():
            return node.n_min == 0 or may_be_empty(node.body)
        case _:
            return may_be_empty(node.body)


def never_empty(node: Any) -> Any:
    """Return a part that may have no event with one that it always has."""
    match node:
        case ref.Event() | ref.Choice():
            return node
        case ref.Chain():
            return mended(replace(node, parts=(never_empty(node.parts[0]), *node.parts[1:])), random.Random(0))
        case Some():
            return replace(node, body=never_empty(node.body), n_min=max(node.n_min, 1))
        case _:
            return replace(node, body=never_empty(node.body))


def mended(node: Any, rnd: random.Random) -> Any:
    """Return a chain without absences beside parts that may be empty, and without ``->`` before longer parts."""
    match node:
        case ref.Filtered() | ref.Local():
            return replace(node, body=mended(node.body, rnd))
        case ref.Chain():
            absent, joints = [], []
            empty = False
            for number, part in enumerate(node.parts):
                lacks = may_be_empty(part)
                absent.append(() if lacks or empty else node.absent[number])
                joint = node.joints[number]
                joints.append(";" if joint != ";" and (lacks or empty or (joint == ":" and absent[-1])) else joint)
                empty = lacks if number == 0 else empty and lacks
            return replace(node, absent=tuple(absent), joints=tuple(joints))
        case _:
            return node


def text_of(query: ref.Query) -> str:
    """Return the text of a query."""
    return drawn.text_of(query, {Some: _text_of_some})


def _text_of_some(node: Some, text: Any, absent: Any) -> str:
    counts = {(1, None): "+", (0, None): "*", (0, 1): "?"}
    written = counts.get((node.n_min, node.n_max), f"{{{node.n_min},{'' if node.n_max is None else node.n_max}}}")
    joint = {";": "", ":": ":", "->": " ->"}[node.joint]
    until = "".join(f" UNTIL {absent(each)}" for each in node.until)
    return f"(({text(node.body)}){joint}{written}{until})"
