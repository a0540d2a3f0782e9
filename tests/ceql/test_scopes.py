"""Scopes of filters: the variable of each attribute, its definitions, and filters split and merged without a change."""

import itertools
import operator

import pytest
from hypothesis import strategies as st
from strategies import property_test

from cer_gpu.ceql import parser, scopes
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.parser import parse
from cer_gpu.ceql.paths import dotted, names_of, path_of
from cer_gpu.ceql.traversal import walk
from cer_gpu.explain.ceql_text import predicate_text


def formula(text):
    return parse(f"SELECT * FROM S WHERE {text}").formula


def filters(text):
    """Return the filters of a formula as text: x[p], or p with the names of the roles before it."""
    found = []
    for node in walk(formula(text)):
        if isinstance(node, s.VariableFilter):
            found.append(f"{node.variable.name}[{predicate_text(node.predicate)}]")
        elif isinstance(node, s.Relation):
            names = " ".join(role.variable.name for role in node.roles)
            found.append(f"{names}: {predicate_text(node.predicate)}")
    return found


def sites(text):
    """Return the numbered definitions of a formula, by their numbers, and the sites of each role by its name."""
    tree = formula(text)
    defined = {
        node.site: node.event.name if isinstance(node, s.EventType) else f"AS {node.variable.name}"
        for node in walk(tree)
        if isinstance(node, s.EventType | s.Assign) and node.site >= 0
    }
    roles = [(role.variable.name, role) for relation in s.relations(tree) for role in relation.roles]
    return defined, [(name, [defined[site] for site in sorted(role.sites)]) for name, role in roles]


# ---- attributes and variables --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        # one variable of the filtered formula: a filter on single events
        ("A AS x FILTER x.p > 1", ["x[p > 1]"]),
        ("A AS x FILTER x[x.p > 1 AND st.p > 2]", ["x[p > 1 AND st.p > 2]"]),
        ("A AS x ; B AS y FILTER y[x.p > 1]", ["x[p > 1]"]),
        ("A AS x FILTER NOT x.p BETWEEN 1 AND x.q", ["x[NOT (p >= 1 AND p <= q)]"]),
        # several
        ("A AS x ; B AS y FILTER y[p > x.p]", ["y x: y.p > x.p"]),
        ("A AS x ; B AS y FILTER y.p > x.p", ["y x: y.p > x.p"]),
        ("A ; B FILTER B.p > A.p", ["B A: B.p > A.p"]),
        ("A AS x ; B AS y FILTER y[y.p + x.st.p > st.p]", ["y x: y.p + x.st.p > y.st.p"]),
        ("A AS x FILTER x.p > A.q", ["x A: x.p > A.q"]),
        # the variable wins over a struct column of its name
        ("A AS st ; B AS y FILTER y[st.p > 1 AND p > st.p]", ["st[p > 1]", "y st: y.p > st.p"]),
        ("A AS st ; B AS y FILTER y[y.st.p > 1]", ["y[st.p > 1]"]),
        # the filter holds where its own variable is empty
        ("(A AS a OR C) ; B AS b FILTER a[b.p > 1]", ["a b: b.p > 1"]),
        # events of iterations
        ("A+ AS x FILTER x.p > PREV(x).p", ["x: x.p > PREV(x).p"]),
        ("A+ AS x FILTER x[p > PREV(x).st.p]", ["x: x.p > PREV(x).st.p"]),
        ("A+ AS x FILTER FIRST(x).p < LAST(x).p", ["x: FIRST(x).p < LAST(x).p"]),
        # the first and the last of one event are this event
        ("A AS x ; B+ AS y FILTER FIRST(y).p < last(x).p", ["y x: FIRST(y).p < x.p"]),
        ("A AS x FILTER first(x).p = 1", ["x[p = 1]"]),
        # variables to the left of the filtered formula
        ("A AS x ; (B FILTER x.p > 1)", ["x: x.p > 1"]),
        ("A AS x ; (B FILTER x[p > 1])", ["x: x.p > 1"]),
        ("A AS x : (B AS y FILTER y.p > x.p)+", ["y x: y.p > x.p"]),
        # both sides of ALL
        ("A AS x ALL B AS y FILTER y.p > x.p AND x.p > 1", ["y x: y.p > x.p", "x[p > 1]"]),
        ("(A AS x FILTER x.p > x.q) ALL B AS y", ["x[p > q]"]),
        ("A AS x ; ((B AS y FILTER y.p > x.p) ALL C)", ["y x: y.p > x.p"]),
        ("(A AS x ALL B) ; (C AS y FILTER y.p > x.p)", ["y x: y.p > x.p"]),
        # within NOT all names are of one event
        ("NOT(A AS x FILTER x.p > A.q AND FIRST(x).r = 1)", ["x[p > q]", "x[r = 1]"]),
        ("NOT(A AS x FILTER x[A.p > p])", ["x[p > p]"]),
    ],
)
def test_attributes_are_resolved_to_variables(text, resolved):
    assert filters(text) == resolved


@pytest.mark.parametrize(
    ("text", "defined"),
    [
        ("A AS x ; B AS y FILTER y.p > x.p", [("y", ["AS y"]), ("x", ["AS x"])]),
        ("(A ; B) AS x FILTER x.p > A.p", [("x", ["AS x"]), ("A", ["A"])]),
        ("A AS x ; B AS x FILTER x.p > PREV(x).p", [("x", ["AS x", "AS x"])]),
        ("A ; B ; A FILTER A.p > B.p", [("A", ["A", "A"]), ("B", ["B"])]),
        ("A AS x ALL B AS y FILTER y.p > x.p", [("y", ["AS y"]), ("x", ["AS x"])]),
        ("A AS x ALL B AS x ALL C FILTER x.p > C.p", [("x", ["AS x", "AS x"]), ("C", ["C"])]),
        # what the filtered formula defines hides what stands before it
        ("A AS x ; (B AS x ; C AS y FILTER x.p > y.p)", [("x", ["AS x"]), ("y", ["AS y"])]),
        # all levels to the left are one set
        ("A AS x ; (B AS x ; (C AS y FILTER x.p > y.p))", [("x", ["AS x", "AS x"]), ("y", ["AS y"])]),
        ("A AS x ; (B AS y ; C AS z FILTER z.k = y.k + x.k)+", [("z", ["AS z"]), ("y", ["AS y"]), ("x", ["AS x"])]),
    ],
)
def test_roles_know_the_definitions_of_their_variables(text, defined):
    assert sites(text)[1] == defined


def test_an_outer_definition_is_hidden_by_one_inside():
    tree = formula("A AS x ; (B AS x ; C AS y FILTER x.p > y.p)")
    assert tree.left.site == -1
    assert tree.right.formula.left.site >= 0


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("(A AS x FILTER x.p > y.p) ; B AS y", "y"),
        ("(A AS x FILTER x[p > y.p]) ; B AS y", "y"),
        ("(A ; B FILTER B.p > x.p) AS x", "x"),
        ("A AS x OR (B AS y FILTER y.p > x.p)", "x"),
        ("A AS x ALL (B AS y FILTER y.p > x.p)", "x"),
        ("(A AS x FILTER x.p > y.p) ALL B AS y", "y"),
        ("A AS x ALL (B AS y ; (C AS z FILTER z.p > y.p + x.p))", "x"),
        ("A AS x ; NOT(B FILTER B.p > x.p)", "x"),
        ("A AS x ; NOT(B FILTER B[p > x.p])", "x"),
        ("A AS x FILTER x.p > z.p", "z"),
        ("A AS x FILTER x.p > FIRST(z).p", "z"),
        ("(A AS x FILTER x.p > y.p ; B AS y)+", "y"),
    ],
)
def test_a_variable_out_of_scope_has_a_role_without_definitions(text, name):
    roles = [role for relation in s.relations(formula(text)) for role in relation.roles]
    assert [role.variable.name for role in roles if not role.sites] == [name]


def test_only_definitions_that_a_role_names_are_numbered():
    defined, _ = sites("A AS x ; B AS y ; C AS z FILTER z.p > x.p AND y.p > 1")
    assert defined == {0: "AS z", 1: "AS x"}
    assert sites("A AS x ; B FILTER x.p > 1")[0] == {}


def test_filters_share_the_numbers_of_their_definitions():
    tree = formula("A AS x ; B AS y ; C AS z FILTER z.p > x.p AND z.q > y.p FILTER y.q > x.q")
    roles = [(role.variable.name, role.sites) for relation in s.relations(tree) for role in relation.roles]
    assert len(set(roles)) == 3


@pytest.mark.parametrize(
    ("text", "always"),
    [
        ("A AS x ; B AS y FILTER y.p > x.p", {"x": True, "y": True}),
        ("(A AS x OR C) ; B AS y FILTER y.p > x.p", {"x": False, "y": True}),
        ("(A AS x OR C) ALL B AS y FILTER y.p > x.p", {"x": False, "y": True}),
        ("NOT(A) AS x ALL B AS y FILTER y.p > x.p", {"x": False, "y": True}),
        ("(A AS x OR C) ; (B AS y FILTER y.p > x.p)", {"x": False, "y": True}),
        ("A AS x ; ((B AS x OR C) ; (B AS y FILTER y.p > x.p))", {"x": True, "y": True}),
        ("NOT(A) AS x ; B AS y FILTER y.p > x.p", {"x": False, "y": True}),
    ],
)
def test_roles_say_if_their_variables_are_always_bound(text, always):
    (relation,) = s.relations(formula(text))
    assert {role.variable.name: role.always for role in relation.roles} == always


def test_a_variable_of_one_stream_is_not_that_of_all():
    (relation,) = s.relations(formula("S>A AS x ; B AS x FILTER S>x[p > x.p + B.p]"))
    assert [(role.variable.stream, role.variable.name, role.always) for role in relation.roles] == [
        ("S", "x", False),
        (None, "B", True),
    ]
    assert predicate_text(relation.predicate) == "S>x.p > S>x.p + B.p"


def test_a_formula_without_filters_between_events_is_left_as_it_is():
    tree = formula("A AS x ; B FILTER x[p > 1] AND (B[p = 1] OR x[q = 2])")
    assert scopes.resolved(tree) is tree


# ---- filters split and merged ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        ("A AS a ; B AS b FILTER b[price > a.price AND qty > 3]", ["b a: b.price > a.price", "b[qty > 3]"]),
        ("A AS a ; B AS b FILTER b.p BETWEEN a.low AND a.high", ["b a: b.p >= a.low", "b a: b.p <= a.high"]),
        ("A AS a ; B+ AS b FILTER b[p > a.p AND p > 3 AND 1 < 2]", ["b a: b.p > a.p AND 1 < 2", "b[p > 3]"]),
        # where a is empty, nothing is asked of b
        ("(A AS a OR C) ; B AS b FILTER b[p > a.p AND q > 3]", ["b a: b.p > a.p AND b.q > 3"]),
        (
            "(A AS a OR C) ; B AS b FILTER b[p > a.p AND q > 3 AND q > a.q]",
            ["b a: b.p > a.p AND b.q > 3", "b a: b.q > a.q"],
        ),
        # of the first event of b, nothing is asked
        ("B+ AS b FILTER b[p > PREV(b).p AND q > 3]", ["b: b.p > PREV(b).p AND b.q > 3"]),
        ("B+ AS b FILTER b[p > PREV(b).p AND q = PREV(b).q]", ["b: b.p > PREV(b).p", "b: b.q = PREV(b).q"]),
    ],
)
def test_a_conjunction_is_split_where_that_means_the_same(text, resolved):
    assert filters(text) == resolved


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        ("A AS a ; B AS b FILTER a.x = b.x OR b.y > 3", ["a b: a.x = b.x OR b.y > 3"]),
        (
            "A AS a ; B AS b FILTER a.x = b.x AND a.y = 1 OR b[y > 3 AND z = a.z]",
            ["a b: a.x = b.x AND a.y = 1 OR b.y > 3 AND b.z = a.z"],
        ),
        # every event of b passes one test, or every event the other
        ("A AS a ; B+ AS b FILTER a.x = b.x OR b.y > 3", ["a b: a.x = b.x", "b[y > 3]"]),
        ("(A AS a OR C) ; B AS b FILTER a.x = b.x OR b.y > 3", ["a b: a.x = b.x", "b[y > 3]"]),
        ("A AS a ; B AS b FILTER a.x = b.x OR b.y > PREV(b).y", ["a b: a.x = b.x", "b: b.y > PREV(b).y"]),
        # filters on single events stay apart
        ("A AS a ; B AS b FILTER a.x = 1 OR b.y > 3", ["a[x = 1]", "b[y > 3]"]),
    ],
)
def test_a_disjunction_is_merged_where_that_means_the_same(text, resolved):
    assert filters(text) == resolved


def test_of_a_disjunction_the_filters_on_one_event_each_are_merged():
    tree = formula("A AS a ; B AS b ; C+ AS c FILTER c.z = 1 OR a.x = b.x OR a.y = 2")
    assert [predicate_text(operand.predicate) for operand in tree.filter.operands] == ["z = 1", "a.x = b.x OR a.y = 2"]


COMPARE = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, ">=": operator.ge}
FORMULAS = {  # a formula, and the least and greatest number of events of each variable
    "A AS x ; B AS y ; C AS z": {"x": (1, 1), "y": (1, 1), "z": (1, 1)},
    "A AS x ; (B AS y OR D) ; C+ AS z": {"x": (1, 1), "y": (0, 1), "z": (1, 3)},
    "A+ AS x ; (B AS y)+ ; (C AS z OR D)": {"x": (1, 3), "y": (1, 3), "z": (0, 1)},
}


def choices(held, names, previous):
    """Yield every choice of an event (its index) of each variable, the first not where PREV reads one before it."""
    ranges = [range(name in previous, len(held[name])) for name in names]
    for chosen in itertools.product(*ranges):
        yield dict(zip(names, chosen, strict=True))


def value(attribute, held, chosen):
    variable, name = attribute.variable, attribute.name
    if variable is None:
        first, name = names_of(attribute.name)
    else:
        first = variable.name
    index = {"EACH": chosen.get(first), "FIRST": 0, "LAST": -1, "PREV": chosen.get(first, 0) - 1}[attribute.event]
    return held[first][index][dotted(name)]


def truth(predicate, held, chosen):
    match predicate:
        case s.Comparison():
            sides = [
                value(side, held, chosen) if isinstance(side, s.Attribute) else side.value
                for side in (predicate.left, predicate.right)
            ]
            return None if None in sides else COMPARE[predicate.op](*sides)
        case s.Not():
            inner = truth(predicate.operand, held, chosen)
            return None if inner is None else not inner
        case s.And() | s.Or():
            strong = isinstance(predicate, s.Or)
            parts = [truth(operand, held, chosen) for operand in predicate.operands]
            return strong if strong in parts else None if None in parts else not strong


def holds(filter_, held):
    """Return True if a filter, resolved or as parsed, holds: for every choice of the events that it names."""
    match filter_:
        case s.FilterAnd():
            return all(holds(operand, held) for operand in filter_.operands)
        case s.FilterOr():
            return any(holds(operand, held) for operand in filter_.operands)
        case s.Relation():
            names = {role.variable.name for role in filter_.roles}
            read = list(s.attributes(filter_.predicate))
        case s.VariableFilter():
            names, read = {filter_.variable.name}, list(s.attributes(filter_.predicate))
    predicate = filter_.predicate
    firsts = [(a, a.variable.name if a.variable else names_of(a.name)[0]) for a in read if a.variable or "." in a.name]
    if isinstance(filter_, s.VariableFilter) and len(firsts) < len(read):  # resolved: attributes without a variable
        predicate = scopes._with_variables(predicate, filter_.variable, lambda name: False)
    names |= {name for _, name in firsts}
    if any(not held[name] for name in names):
        return True
    chosen = sorted(names - {n for _, n in firsts} | {n for a, n in firsts if a.event in ("EACH", "PREV")})
    previous = {name for attribute, name in firsts if attribute.event == "PREV"}
    return all(truth(predicate, held, choice) for choice in choices(held, chosen, previous))


@st.composite
def written_tests(draw):
    def side():
        name = draw(st.sampled_from("xyz"))
        event = draw(st.sampled_from(["{}", "{}", "{}", "FIRST({})", "LAST({})", "PREV({})"]))
        return f"{event.format(name)}.{draw(st.sampled_from('pq'))}"

    right = side() if draw(st.booleans()) else str(draw(st.integers(0, 2)))
    return f"{side()} {draw(st.sampled_from(list(COMPARE)))} {right}"


def joined(parts):
    signs = st.sampled_from([" AND ", " OR "])
    return st.recursive(
        parts, lambda inner: st.builds(lambda a, sign, b: f"({a}{sign}{b})", inner, signs, inner), max_leaves=4
    )


BRACKETS = st.builds(lambda name, text: f"{name}[{text}]", st.sampled_from("xyz"), joined(written_tests()))
FILTERS = joined(BRACKETS | written_tests())


@property_test(1.0)
def test_resolved_filters_hold_where_the_written_ones_do(data):
    text = data.draw(st.sampled_from(sorted(FORMULAS)))
    written_text = f"SELECT * FROM S WHERE ({text}) FILTER {data.draw(FILTERS)}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "resolved", lambda formula: formula)
        written = parse(written_text).formula.filter
    resolved = parse(written_text).formula.filter
    values = st.none() | st.integers(0, 2)
    event = st.fixed_dictionaries({"p": values, "q": values})
    for _ in range(4):
        held = {
            name: data.draw(st.lists(event, min_size=low, max_size=high))
            for name, (low, high) in FORMULAS[text].items()
        }
        assert holds(resolved, held) == holds(written, held)


def test_a_field_of_a_struct_named_like_its_variable_is_read_once():
    """In brackets of `st`, `st.st.n` is the field n of the column st, also where the filter is merged with another."""
    text = "SELECT * FROM S WHERE A AS x ; B AS st FILTER st[st.st.n > 1] OR st.m > x.m"
    (relation,) = s.relations(parse(text).formula)
    assert [(a.variable.name, a.name) for a in s.attributes(relation.predicate)] == [
        ("st", path_of(["st", "n"])),
        ("st", "m"),
        ("x", "m"),
    ]


# ---- absences --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        # the event that must not be there
        ("A ; !(B AS b FILTER b.p > 1) ; C", ["b[p > 1]"]),
        ("A ; !(B AS b FILTER B[p > b.q]) ; C", ["b[p > q]"]),
        # what stands before it, in this sequence and around
        ("A AS a ; !(B AS b FILTER b.p > a.p) ; C", ["b a: b.p > a.p"]),
        ("A AS a ; !(B AS b FILTER b[p > a.p AND q > 1]) ; C", ["b a: b.p > a.p", "b[q > 1]"]),
        ("A AS a ; (C ; !(B FILTER B.p > a.p AND a[q > 1]) ; D)", ["B a: B.p > a.p", "a: a.q > 1"]),
        ("A AS a ; !(B AS b FILTER b.p > a.p)", ["b a: b.p > a.p"]),
        ("A AS a ; !(B AS b FILTER b.p > FIRST(a).p) ; C", ["b a: b.p > a.p"]),
        ("A+ AS a ; !(B AS b FILTER b.p > FIRST(a).p) ; C", ["b a: b.p > FIRST(a).p"]),
        # an event of the same type as one that stands before it is the one that must not be there
        ("A ; !(A FILTER A.p > 1) ; C", ["A[p > 1]"]),
        # neither what follows nor what an absence names is in scope elsewhere
        ("A AS a ; !(B AS b FILTER b.p > c.p) ; C AS c", ["b c: b.p > c.p"]),
        ("A ; !(B AS b) ; (C FILTER C.p > b.p)", ["C b: C.p > b.p"]),
        ("A AS a -> (B AS b FILTER b.p > a.p)", ["b a: b.p > a.p"]),
    ],
)
def test_filters_of_absences_see_what_stands_before_them(text, resolved):
    assert filters(text) == resolved


def test_the_event_of_an_absence_has_a_site_of_its_own():
    tree = formula("A AS b ; !(B AS b FILTER b.p > A.p) ; C")
    (absence,) = tree.absent
    (of_b, of_a) = absence.filter.roles
    assert of_b.sites == {absence.site}
    assert of_a.sites == {tree.left.formula.site}
    assert len({absence.site, tree.left.formula.site}) == 2


@pytest.mark.parametrize("text", ["!(B AS b FILTER b.p > c.p) ; C AS c", "!(B AS b) ; (C FILTER C.p > b.p)"])
def test_what_stands_elsewhere_has_no_site(text):
    (relation,) = s.relations(formula(f"A ; {text}"))
    assert [bool(role.sites) for role in relation.roles] == [True, False]
