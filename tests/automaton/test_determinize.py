"""Determinised tables: checked by hand, against the automaton itself, made on demand, bounded."""

import itertools
import random

import numpy as np
import pyarrow as pa
import pytest
import rendering
import strategies
from hypothesis import given
from hypothesis import strategies as st

import cer_gpu
from cer_gpu.automaton import determinize
from cer_gpu.automaton.cea import ANY, FINAL, INITIAL, build_cea
from cer_gpu.automaton.determinize import MARK_OUTPUT, QUIET, UNKNOWN, UNMARK_OUTPUT, Determinization, Step
from cer_gpu.automaton.normal_form import normal_form
from cer_gpu.ceql.parser import parse
from cer_gpu.errors import QueryTooLargeError

NOTHING = Step(-1, False, -1, False)


def automaton(text):
    syntax = parse(text if text.startswith("SELECT") else f"SELECT * FROM S WHERE {text}")
    items = syntax.select.items
    selected = None if items is None else frozenset(item.variable.name for item in items)
    return build_cea(normal_form(syntax.formula), selected)


def actions(table, symbol):
    """The actions on a symbol as (state, mark target, unmark target, flags)."""
    return [tuple(map(int, row)) for row in table.actions[symbol, : table.n_actions[symbol]]]


def resolved(table, symbol):
    """The actions on a symbol once it is known what all states do."""
    n_states = 0
    while n_states < table.n_states:
        n_states = table.n_states
        table.resolve(symbol, np.arange(n_states, dtype=np.int32))
    return actions(table, symbol)


# ---- by hand -----------------------------------------------------------------------------------------------


def test_sequence_with_iteration():
    table = Determinization(automaton("A ; B+ ; C"))
    a, b, c = (table.symbol(1 << g) for g in range(3))
    # state 1 waits for the first B, state 2 for another B or for C
    assert table.step(0, a) == Step(1, False, -1, False)
    assert table.step(0, b) == table.step(0, c) == NOTHING
    assert table.step(1, a) == table.step(1, c) == Step(-1, False, 1, False)
    assert table.step(1, b) == Step(2, False, 1, False)
    assert table.step(2, a) == Step(-1, False, 2, False)
    assert table.step(2, b) == Step(2, False, 2, False)
    assert table.step(2, c) == Step(-1, True, 2, False)
    assert table.n_states == 3
    # in the order of the states; states that an event leaves as they are have no action
    assert resolved(table, a) == [(0, 1, -1, 0)]
    assert resolved(table, b) == [(1, 2, 1, 0), (2, 2, 2, 0)]
    assert resolved(table, c) == [(2, -1, 2, MARK_OUTPUT)]


def test_contiguous_sequence():
    table = Determinization(automaton("A : B"))
    neither, a, b, both = (table.symbol(word) for word in range(4))
    assert neither == QUIET
    assert table.step(0, a) == table.step(0, both) == Step(1, False, -1, False)
    assert table.step(1, a) == NOTHING  # the run ends
    assert table.step(1, b) == table.step(1, both) == Step(-1, True, -1, False)
    assert resolved(table, a) == [(0, 1, -1, 0), (1, -1, -1, 0)]
    assert resolved(table, b) == [(1, -1, -1, MARK_OUTPUT)]
    assert resolved(table, both) == [(0, 1, -1, 0), (1, -1, -1, MARK_OUTPUT)]


def test_a_single_event_is_an_output_of_the_initial_state():
    table = Determinization(automaton("A"))
    assert resolved(table, table.symbol(1)) == [(0, -1, -1, MARK_OUTPUT)]
    assert table.n_states == 1


def test_unselected_events_move_without_marks():
    table = Determinization(automaton("SELECT NONE FROM S WHERE A ; B"))
    a, b = table.symbol(1), table.symbol(2)
    assert resolved(table, a) == [(0, -1, 1, 0)]
    assert resolved(table, b) == [(1, -1, 1, UNMARK_OUTPUT)]


def test_one_event_may_be_kept_and_not():
    # with y alone kept, the event at x moves unmarked and the one at y marked
    table = Determinization(automaton("SELECT y FROM S WHERE (A AS x OR A AS y) ; B AS y"))
    assert table.step(0, table.symbol(1)) == Step(1, False, 1, False)


def test_negation():
    table = Determinization(automaton("A : NOT(B)"))
    other, a, b = (table.symbol(word) for word in range(3))
    assert other != QUIET
    assert table.step(0, a) == Step(1, False, -1, False)
    assert table.step(1, other) == table.step(1, a) == Step(-1, False, -1, True)
    assert table.step(1, b) == NOTHING


def test_words_that_satisfy_the_same_transitions_are_one_symbol():
    table = Determinization(automaton("A ; B"))
    assert table.symbol(0) == QUIET
    assert len({table.symbol(word) for word in range(4)}) == 4 == table.n_symbols
    assert table.symbol(1) == table.symbol(1)


# ---- the initial state -------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["A+", "A:+", "(A ; B)+", "(A : B):+", "(A OR B):+", "A OR A:+"])
def test_the_initial_state_is_never_entered_again(text):
    table = explored(Determinization(automaton(text)))
    for (_, symbol), step in table._steps.items():
        assert 0 not in (step.mark_target, step.unmark_target), symbol


def test_a_state_that_reads_what_the_initial_one_does_is_another():
    table = Determinization(automaton("A:+"))
    a = table.symbol(1)
    assert table.step(0, a) == Step(1, True, -1, False)
    assert table.step(1, a) == Step(1, True, -1, False)
    assert table._sets[0] == table._sets[1]


# ---- quiet symbols -----------------------------------------------------------------------------------------


def explored(table, rounds=6, most=200):
    """The table after all its symbols from all the states that are met."""
    symbols = {table.symbol(word) for word in range(1 << min(len(table.cea.guards), 6))}
    for _ in range(rounds):
        n = table.n_states
        for state, symbol in itertools.product(range(min(n, most)), symbols):
            table.step(state, symbol)
        if table.n_states == n:
            break
    return table


@pytest.mark.parametrize("text", ["A ; B+ ; C", "(A OR B) ; C", "A+ ; B", "SELECT NONE FROM S WHERE A ; (B OR C)+"])
def test_quiet_symbols_have_no_actions(text):
    table = explored(Determinization(automaton(text)))
    assert resolved(table, QUIET) == []


def test_what_is_contiguous_acts_on_quiet_symbols():
    # the loop need not see a quiet event: it compares positions
    table = explored(Determinization(automaton("A : B ; C")))
    assert all(mark == unmark == -1 for _, mark, unmark, _ in resolved(table, QUIET))


# ---- on demand ---------------------------------------------------------------------------------------------


def test_only_states_that_are_met_are_built():
    # 2**12 subsets can be reached; a stream that holds one A meets a dozen of them
    table = Determinization(automaton("(A OR B):+ : A" + " : (A OR B)" * 12))
    a, b = table.symbol(1), table.symbol(2)
    states = {0}
    for symbol in [b, a, *[b] * 20]:
        steps = [table.step(state, symbol) for state in states | {0}]
        states = {step.mark_target for step in steps} - {-1}
    assert table.n_states < 40
    assert table.n_symbols == 3


def test_an_action_is_unknown_until_it_is_resolved():
    table = Determinization(automaton("A ; B"))
    a, b = table.symbol(1), table.symbol(2)
    assert actions(table, a) == [(0, -1, -1, UNKNOWN)]
    table.resolve(a, np.array([], np.int32))
    assert actions(table, a) == [(0, 1, -1, 0), (1, -1, -1, UNKNOWN)]  # state 1 is new
    assert actions(table, b) == [(0, -1, -1, UNKNOWN), (1, -1, -1, UNKNOWN)]
    table.resolve(b, np.array([1], np.int32))
    assert actions(table, b) == [(1, -1, 1, MARK_OUTPUT)]


def test_a_query_meets_only_the_symbols_of_its_events():
    query = cer_gpu.compile("SELECT * FROM S WHERE " + " OR ".join(f"(T{i} FILTER T{i}[a > {i}])" for i in range(40)))
    evaluator = query.evaluator()
    evaluator.push(pa.record_batch({"type": ["T0", "T0", "U", "T7"], "a": [1, -1, 1, 9]}))
    assert evaluator._table.n_symbols == 2  # the quiet one, and one for all types that do the same


# ---- bounds ------------------------------------------------------------------------------------------------

WIDE = "(A OR B):+ : A" + " : (A OR B)" * 14


def walk(table, n, seed=0):
    """Read random events."""
    symbols = [table.symbol(1), table.symbol(2)]
    pick = random.Random(seed)
    states = set()
    for _ in range(n):
        symbol = pick.choice(symbols)
        steps = [table.step(state, symbol) for state in states | {0}]
        states = {target for step in steps for target in (step.mark_target, step.unmark_target)} - {-1, 0}


def test_states_are_bounded(monkeypatch):
    monkeypatch.setattr(determinize, "MAX_STATES", 100)
    with pytest.raises(QueryTooLargeError, match=r"101 states and 3 symbols met \(at most 100 states"):
        walk(Determinization(automaton(WIDE)), 10_000)


def test_table_entries_are_bounded(monkeypatch):
    monkeypatch.setattr(determinize, "MAX_TABLE", 1 << 8)
    with pytest.raises(QueryTooLargeError, match="256 of both together"):
        walk(Determinization(automaton(WIDE)), 10_000)
    table = Determinization(automaton(" ; ".join(f"T{i}" for i in range(10))))
    with pytest.raises(QueryTooLargeError, match="passes its bound"):
        list(map(table.symbol, range(1 << 10)))


def test_the_bound_reaches_the_user_of_a_query(monkeypatch):
    monkeypatch.setattr(determinize, "MAX_STATES", 100)
    query = cer_gpu.compile(f"SELECT * FROM S WHERE {WIDE} WITHIN 20 EVENTS LIMIT 1")
    pick = random.Random(0)
    events = pa.table({"type": [pick.choice("AB") for _ in range(5_000)]})
    with pytest.raises(QueryTooLargeError, match="hint: fewer overlapping predicates"):
        query.evaluate(events)


# ---- the determinised automaton says what the automaton says -----------------------------------------------


def outputs_of_cea(cea, words):
    """For each position the sets of marked positions of the runs that end there, each run from any start."""
    onward = {state: {state} for state in range(cea.n_states)}
    changed = True
    while changed:
        changed = False
        for source, target in cea.silent:
            for reached in onward.values():
                if source in reached and not onward[target] <= reached:
                    reached |= onward[target]
                    changed = True
    runs, outputs = set(), []
    for position, word in enumerate(words):
        runs |= {(state, position, frozenset()) for state in onward[INITIAL]}
        after = set()
        for transition in cea.transitions:
            if transition.guard == ANY or bool(word >> transition.guard & 1) != transition.negated:
                for state, start, marks in runs:
                    if state == transition.source:
                        kept = marks | {position} if transition.marked else marks
                        after |= {(t, start, kept) for t in onward[transition.target]}
        outputs.append({(start, marks) for state, start, marks in after if state == FINAL})
        runs = after
    return outputs


def outputs_of_table(table, words):
    """The same by the table; each pair of a start and marks must be found once."""
    runs, outputs = [], []
    for position, word in enumerate(words):
        symbol = table.symbol(word)
        after, found = [], []
        for state, start, marks in [*runs, (0, position, frozenset())]:
            step = table.step(state, symbol)
            marked = marks | {position}
            found += [(start, marked)] * step.mark_output + [(start, marks)] * step.unmark_output
            after += [(t, start, m) for t, m in ((step.mark_target, marked), (step.unmark_target, marks)) if t >= 0]
        assert len(set(found)) == len(found)
        outputs.append(set(found))
        runs = after
    return outputs


@strategies.property_settings
@given(st.data())
def test_determinised_is_not_determinised(data):
    drawn = data.draw(strategies.queries(windows=None, depth=3))
    cea = automaton(rendering.to_ceql(drawn))
    n_guards = len(cea.guards)
    words = data.draw(st.lists(st.integers(0, (1 << n_guards) - 1), max_size=5))
    assert outputs_of_table(Determinization(cea), words) == outputs_of_cea(cea, words)


def test_guards_that_do_the_same_need_one_symbol():
    """2**24 bit vectors are possible, and three things that an event can do."""
    either = " OR ".join(f"(A AS x{i} FILTER x{i}[a{i} > 0])" for i in range(24))
    table = Determinization(automaton(f"({either}) ; B"))
    rng = random.Random(1)
    symbols = {table.symbol(rng.getrandbits(24)) for _ in range(1000)} | {table.symbol(0), table.symbol(1 << 24)}
    assert symbols == {0, 1, 2}
    assert table.n_symbols == 3


def test_symbols_are_bounded(monkeypatch):
    monkeypatch.setattr(determinize, "MAX_SYMBOLS", 8)
    table = Determinization(automaton(" ; ".join("ABCDEF")))
    with pytest.raises(QueryTooLargeError, match="8 symbols"):
        list(map(table.symbol, range(64)))
