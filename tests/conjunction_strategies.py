"""Hypothesis strategies for ALL between formulas, with or without filters between events, and conjunctive queries."""

from __future__ import annotations

import functools
import itertools
import random
from dataclasses import replace

import join_strategies as j
import reference as ref
import reference_conjunctive as cq
import strategies as s
from hypothesis import strategies as st

# -------------------------------------------------------------------------------------------------- formulas


@st.composite
def operands(draw, variable, deep=True):
    """Draw an operand of ALL with events of the variable, or of their type's name if that is None."""
    event = ref.EventType(draw(j.types))
    named = event if variable is None else ref.As(event, variable)
    other = ref.EventType(draw(j.types))
    shapes = ["one"] * 7 + ["tested", "tested", "seq", "seq", "contig", "or", "either", "plus", "not"]
    shape = draw(st.sampled_from(shapes if deep else shapes[:9]))
    match shape:
        case "tested":
            name = event.name if variable is None else variable
            return ref.Filter(named, ref.Unary(name, draw(s.likely_conditions)))
        case "seq":
            return ref.Seq(*draw(st.permutations([named, other])))
        case "contig":
            return ref.Contig(*draw(st.permutations([named, draw(st.sampled_from([other, ref.Not(other.name)]))])))
        case "or":
            return ref.Or(named, other)
        case "either":
            return named if variable is None else ref.Or(named, ref.As(other, variable))
        case "plus":
            return draw(st.sampled_from([ref.Plus, ref.Plus, ref.ContigPlus]))(named)
        case "not":
            return ref.Contig(ref.Not(other.name), named)
    return named


@st.composite
def operand_names(draw, n):
    """Draw the variables of n operands: letters, at times the same one twice, or None for the types' own names."""
    kind = draw(st.sampled_from(["letters", "letters", "letters", "types", "again"]))
    return {"letters": list("xyzu"), "types": [None] * n, "again": list("xyxy")}[kind][:n]


def joined(parts, draw):
    """Return the parts joined by ALL: to the left mostly, as the text does without parentheses."""
    if len(parts) > 2 and draw(st.integers(0, 3)) == 3:
        return ref.All(parts[0], joined(parts[1:], draw))
    return functools.reduce(ref.All, parts)


@st.composite
def chains_of_all(draw, most=3):
    """Draw two operands of ALL or more."""
    n = draw(st.integers(2, most))
    names = draw(operand_names(n))
    deep = draw(st.integers(0, n - 1))  # one operand may be more than one event
    return joined([draw(operands(name, deep=k == deep)) for k, name in enumerate(names)], draw)


@st.composite
def nested_chains(draw):
    """Draw ALL inside a sequence, an iteration, an OR, an AS, or another ALL."""
    inside = draw(chains_of_all(most=2))
    event = ref.EventType(draw(j.types))
    outside = draw(st.sampled_from([event, ref.As(event, "z")]))
    shape = draw(st.sampled_from(["seq", "seq", "contig", "plus", "contigplus", "or", "as", "all", "not", "twice"]))
    match shape:
        case "seq":
            return ref.Seq(*draw(st.permutations([inside, outside])))
        case "contig":
            return ref.Contig(*draw(st.permutations([inside, outside])))
        case "plus":
            return ref.Plus(inside)
        case "contigplus":
            return ref.ContigPlus(inside)
        case "or":
            return ref.Or(*draw(st.permutations([inside, ref.Seq(outside, event)])))
        case "as":
            return ref.Seq(ref.As(inside, "u"), outside)
        case "not":
            return ref.Contig(ref.Not(event.name), inside)
        case "twice":
            return ref.Seq(inside, draw(chains_of_all(most=2)))
    return ref.All(inside, ref.Seq(outside, event))


@st.composite
def formulas(draw):
    """Draw a formula with ALL and without filters between events, at times with an `x[p]` around it."""
    formula = draw(chains_of_all() | chains_of_all() | nested_chains())
    variables = ref.defined_variables(formula)
    if variables and draw(st.integers(0, 3)) == 3:
        return ref.Filter(formula, draw(s.filters(variables, s.likely_conditions)))
    return formula


# ------------------------------------------------------------------------------------- filters between events


def equal(one, other, name):
    """Return the filter that an attribute is the same in two variables."""
    return ref.Relation(ref.Compare("=", j.at((one, "EACH"), name), j.at((other, "EACH"), name)))


@st.composite
def joins_by_key(draw, most=4):
    """Draw events joined by ALL, and equalities between them that make a hierarchical query, or any other."""
    n = draw(st.integers(2, most))
    names = list("xyzu")[:n]
    parts = [draw(operands(name, deep=False)) for name in names]
    columns = draw(st.permutations(["n", "m", "s", "st.n", "u", "d", "at"]))[:2]
    shape = draw(st.sampled_from(["one key", "one key", "two keys", "apart", "path", "cycle"]))
    pairs = [(names[0], name, columns[0]) for name in names[1:]]
    if shape == "two keys":
        pairs += [(names[1], name, columns[1]) for name in names[2:]] or [(*names[:2], columns[1])]
    elif shape == "apart":
        pairs = pairs[:-1] if n > 2 else []
    elif shape in ("path", "cycle"):
        pairs = [(one, other, columns[k % 2]) for k, (one, other) in enumerate(itertools.pairwise(names))]
        pairs += [(names[0], names[-1], columns[(n - 1) % 2])] if shape == "cycle" else []
    formula = joined(parts, draw)
    conditions = [equal(*pair) for pair in draw(st.permutations(pairs))]
    if draw(st.integers(0, 3)) == 3:
        conditions.append(ref.Unary(draw(st.sampled_from(names)), draw(s.likely_conditions)))
    if draw(st.booleans()):
        return functools.reduce(ref.Filter, conditions, formula)
    return ref.Filter(formula, functools.reduce(ref.FilterAnd, conditions)) if conditions else formula


@st.composite
def related_formulas(draw):
    """Draw a formula with ALL and with filters between events at any places of it."""
    formula = draw(formulas())
    names = sorted(ref.defined_variables(formula))
    if draw(st.booleans()):
        return draw(j.placed(formula))
    several = sorted(ref.variables_of_several(formula)[0])
    return ref.Filter(formula, draw(j.conditions(names, several, names))) if names else formula


@st.composite
def keyed_parts(draw):
    """Draw a conjunction by key inside a sequence or an iteration, which may join it with what stands before it."""
    inside = draw(joins_by_key(most=2))
    event = ref.As(ref.EventType(draw(j.types)), "z")
    shape = draw(st.sampled_from(["before", "behind", "plus", "inner"]))
    if shape == "plus":
        return draw(st.sampled_from([ref.Seq, ref.Contig]))(event, ref.Plus(inside))
    if shape == "behind":
        return ref.Filter(ref.Seq(inside, event), equal("y", "z", draw(st.sampled_from(["n", "s"]))))
    if shape == "inner":  # a filter in an operand reads what stands before the whole conjunction
        operand = ref.Filter(ref.As(ref.EventType(draw(j.types)), "u"), equal("u", "z", "n"))
        return ref.Seq(event, ref.All(*draw(st.permutations([inside, operand]))))
    return ref.Filter(ref.Seq(event, inside), equal("x", "z", draw(st.sampled_from(["n", "s"]))))


related = joins_by_key() | joins_by_key() | keyed_parts() | related_formulas()
any_formulas = formulas() | related
KINDS = {"formula": any_formulas, "stream_for": j.join_streams}


def cases(**kinds):
    """Return a strategy for queries with ALL, with streams for them (`strategies.cases`)."""
    return s.cases(**KINDS | kinds)


def full_cases(**kinds):
    """Return a strategy for such queries with any of the clauses (`strategies.full_cases`)."""
    return s.full_cases(**KINDS | kinds)


def cases_of_several_streams(**kinds):
    """Return a strategy for such queries over several streams (`strategies.cases_of_several_streams`)."""
    return s.cases_of_several_streams(**KINDS | kinds)


def long_full_cases(**kinds):
    """Return a strategy for such queries with long streams (`strategies.long_full_cases`), with every strategy."""
    kinds = {"strategies": s.STRATEGIES, "formula": any_formulas, **kinds}
    return s.long_full_cases(pool_of=j.join_values, **kinds)


# -------------------------------------------------------------------------------------------- conjunctive queries

COLUMNS = {"int": ("n", "m", "st.n", "odd name"), "string": ("s", "t", "st.q r.s"), "float": ("v", "w", "st.q r.v")}
VALUES = {"int": (0, 1, 2), "string": ("a", "b", "it's"), "float": (0.0, 1.0, -1.5)}


@st.composite
def trees(draw, atoms, names):
    """Draw the variables of a hierarchical query, as sets of atoms: any two are nested or disjoint."""
    found = [(draw(names), atoms)] if draw(st.integers(0, 3)) else []
    if len(atoms) > 1:
        cut = draw(st.integers(1, len(atoms) - 1))
        for part in (atoms[:cut], atoms[cut:]):
            found += draw(trees(part, names))
    return found


@st.composite
def variables_of_atoms(draw, n):
    """Draw the variables of each of n atoms: hierarchical, or acyclic (a path), a cycle, or any."""
    kinds = ["hierarchical"] * 4 + (["path", "path", "cycle", "cycle", "any"] if n > 2 else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "hierarchical":
        names = iter("xyzuabcdefg")
        nodes = draw(trees(draw(st.permutations(range(n))), st.builds(lambda: next(names))))
        return [[x for x, atoms in nodes if k in atoms][-3:] for k in range(n)]
    if kind == "any":
        return [draw(st.lists(st.sampled_from("xyz"), max_size=2, unique=True)) for _ in range(n)]
    ring = list("xyzu"[:n])
    pairs = [[ring[k], ring[(k + 1) % n]] for k in range(n)]
    return pairs if kind == "cycle" else [[ring[0]], *pairs[: n - 2], [ring[n - 2]]]


@st.composite
def terms(draw, variables, kind_of):
    """Draw the attributes of an atom's variables, at times one of them twice, and a constant."""
    free = {kind: list(draw(st.permutations(columns[:3]))) for kind, columns in COLUMNS.items()}
    free["int"].append("odd name")
    twice = [draw(st.sampled_from(variables))] if variables and draw(st.integers(0, 7)) == 7 else []
    found = [(free[kind_of[x]].pop(0), cq.Var(x)) for x in [*variables, *twice] if free[kind_of[x]]]
    if draw(st.integers(0, 5)) == 5:
        kind = draw(st.sampled_from(["int", "int", "string", "float"]))
        found += [(name, ref.Const(draw(st.sampled_from(VALUES[kind])))) for name in free[kind][:1]]
    return tuple(draw(st.permutations(found)))


window_lengths = st.sampled_from([6, 5, 8, 4, 3, 7, 2, 0])


@st.composite
def conjunctive_queries(draw, limits=False, most=4):
    """Draw conjunctive queries with one atom to `most` of them, with self joins; more than half are hierarchical."""
    n = draw(st.sampled_from([k for k in (3, 2, 2, 3, 4, 1) if k <= most]))
    variables = draw(variables_of_atoms(n))
    kinds = st.sampled_from(["int"] * 5 + ["string", "float"])
    kind_of = {x: draw(kinds) for own in variables for x in own}
    types = draw(st.sampled_from([("A", "B"), ("A", "B", "C"), ("A", "B", "C"), ("A",), ("A", ref.ANY)]))
    if draw(st.booleans()):  # as few self joins as there can be
        atoms_types = [types[k % len(types)] for k in range(n)]
    else:
        atoms_types = [draw(st.sampled_from(types)) for _ in range(n)]
    aliases = draw(st.permutations(["t", "A_2", "an atom", "e1"]))
    atoms = tuple(
        cq.Atom(type_, draw(terms(own, kind_of)), alias if draw(st.integers(0, 3)) == 3 else None)
        for type_, own, alias in zip(atoms_types, variables, aliases, strict=False)
    )
    known = sorted(set().union(*(atom.variables for atom in atoms)))
    # 0.0 and -0.0 are equal: with self joins they could be two heads of one row
    alone = len({*atoms_types}) == n and ref.ANY not in atoms_types
    known = [x for x in known if kind_of[x] != "float" or alone]
    head = draw(st.permutations(known))[: draw(st.integers(min(1, len(known)), len(known)))]
    window = draw(st.sampled_from([None, "events", "events", "time"]))
    within = {
        None: None,
        "events": ("events", draw(window_lengths)),
        "time": ("time", 1000 * draw(window_lengths | st.sampled_from([30, 3600, 180_000]))),
    }[window]
    keys = draw(st.just(()) | st.just(()) | s.partition_keys())
    return cq.ConjunctiveQuery(
        tuple(head),
        atoms,
        # columns of "bindings" have different names, as have those of the head
        partition_by=tuple(names for names in keys if names[0] not in {*head, *(atom.alias for atom in atoms)}),
        within=within,
        limit=draw(st.sampled_from([1, 2, 3, 0])) if limits else None,
        name=draw(st.sampled_from(["Q", "Q", "answers", "B", "of two"])),
    )


@st.composite
def key_values(draw, name, length):
    """Draw the values of one column: two or three, so that joins of several events hit, at times NULL."""
    kind = next((kind for kind, columns in COLUMNS.items() if name in columns), None)
    if kind is None:
        return draw(j.join_columns(name, length))
    pool = VALUES[kind][: draw(st.sampled_from([2, 1, 2, 3, 1]))] * 2
    pool += ((-0.0,) if kind == "float" else ()) + (None,) * draw(st.sampled_from([0, 0, 1, 2]))
    return draw(st.lists(st.sampled_from(pool), min_size=length, max_size=length))


@st.composite
def conjunctive_cases(draw, **kinds):
    """Draw a conjunctive query and a stream for it."""
    conjunctive = draw(conjunctive_queries(**kinds))
    query = cq.query(conjunctive)
    longest = (14, 12, 10, 8)[len(conjunctive.atoms) - 1]
    shortest = draw(st.sampled_from([longest - 2, longest - 3, longest * 2 // 3, 0]))
    stream = draw(s.streams(query, longest, key_values, shortest))
    return conjunctive, [{**event, ref.STREAM: "S"} for event in stream]


@st.composite
def long_conjunctive_cases(draw, longest=250, **kinds):
    """Draw a conjunctive query with a narrow window, and a long stream for it in which partitions come and go."""
    n = draw(st.sampled_from([3, 2, 4, 1, 0]))
    within = draw(st.sampled_from([("events", n), ("time", 1000 * n)]))
    conjunctive = replace(draw(conjunctive_queries(**kinds)), within=within)
    stream = s.long_stream(cq.query(conjunctive), random.Random(draw(st.integers(0, 2**32 - 1))), longest, _long_values)
    return conjunctive, stream


def _long_values(name):
    """Return the usual values of a column: few."""
    return next((VALUES[kind][:2] for kind, columns in COLUMNS.items() if name in columns), j.join_values(name))
