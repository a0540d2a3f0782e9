"""Determinised tables: as worked out by hand, equal to the automaton, made on demand, bounded."""

import json
import random

import pyarrow as pa
import pytest
import rendering
import strategies
from hypothesis import given
from hypothesis import strategies as st

import cer_gpu
from cer_gpu.automaton import determinize
from cer_gpu.automaton.cea import ANY, FINAL, INITIAL, build_cea
from cer_gpu.automaton.determinize import Determinization
from cer_gpu.automaton.encoding import LAST_MOVE, OUTPUT_MOVE, QUIET, STAY, UNKNOWN
from cer_gpu.automaton.normal_form import normal_form
from cer_gpu.automaton.strategies import STRATEGIES
from cer_gpu.ceql.parser import parse
from cer_gpu.errors import QueryTooLargeError

FRESH = None
"""Stands for a run that begins, in place of a state."""


def automaton(text):
    syntax = parse(text if text.startswith("SELECT") else f"SELECT * FROM S WHERE {text}")
    items = syntax.select.items
    selected = None if items is None else frozenset(item.variable.name for item in items)
    return build_cea(normal_form(syntax.formula), selected)


def moves(table, state, symbol, control=0):
    """Moves of a state, or of a fresh run, on a symbol, as (mark, target, True if it ends); STAY: nothing changes."""
    table.resolve(symbol, [] if state is FRESH else [state], control)
    first = table.fresh[symbol, control, 0] if state is FRESH else table.steps[symbol, state]
    if first == STAY:
        return [] if state is FRESH else STAY
    found = []
    while True:
        mark, target, flags = map(int, table.moves[first])
        if mark or target >= 0 or flags & OUTPUT_MOVE:
            found.append((mark, target, bool(flags & OUTPUT_MOVE)))
        if flags & LAST_MOVE:
            return found
        first += 1


def steady(table, symbol):
    """Sources of a steady symbol, as (state, mark, target); None: the symbol is not steady."""
    n, *row = map(int, table.steady[symbol])
    return None if n < 0 else [tuple(row[3 * k : 3 * k + 3]) for k in range(n)]


# ---- by hand -----------------------------------------------------------------------------------------------


def test_symbols_that_only_add_runs_are_steady_once_resolved():
    table = Determinization(automaton("A ; B+ ; C"))
    a, b, c = (table.symbol(1 << g) for g in range(3))
    both = table.symbol(0b011)
    table.resolve(a, [], 0)
    assert steady(table, a) is None  # the step of state 0 is not known
    table.resolve(a, [0], 0)
    assert steady(table, a) == [(-1, 1, 0)]
    table.resolve(b, [0], 0)
    assert steady(table, a) is steady(table, b) is None  # nor is that of the new state 1
    for symbol in (a, b, c, both):
        table.resolve(symbol, [0, 1], 0)
    assert steady(table, a) == [(-1, 1, 0)]
    assert steady(table, b) == [(1, 1, 1), (0, 1, 1)]
    assert steady(table, c) is None  # it ends complex events
    assert steady(table, both) == [(1, 1, 1), (0, 1, 1), (-1, 1, 0)]


@pytest.mark.parametrize(("strategy", "text"), [("ALL", "A : B ; C"), ("NEXT", "A ; B ; C"), ("MAX", "A ; B ; C")])
def test_contiguity_and_strategies_that_compare_leave_symbols_not_steady(strategy, text):
    table = Determinization(automaton(text), STRATEGIES[strategy])
    symbols = [table.symbol(1 << g) for g in range(3)]
    for _ in range(4):
        for symbol in symbols:
            for control in range(len(table.snapshot()["controls"])):
                table.resolve(symbol, range(table.n_states), control)
    assert any(steady(table, symbol) is None for symbol in symbols[:2])


def test_a_sequence_with_iteration_has_two_states():
    table = Determinization(automaton("A ; B+ ; C"))
    a, b, c = (table.symbol(1 << g) for g in range(3))
    # state 0 waits for the first B, state 1 for another B or for C
    assert moves(table, FRESH, a) == [(1, 0, False)]
    assert moves(table, FRESH, b) == moves(table, FRESH, c) == []
    assert moves(table, 0, a) == moves(table, 0, c) == STAY
    assert moves(table, 0, b) == [(0, 0, False), (1, 1, False)]
    assert moves(table, 1, a) == STAY
    assert moves(table, 1, b) == [(0, 1, False), (1, 1, False)]
    assert moves(table, 1, c) == [(0, 1, False), (1, -1, True)]
    assert table.n_states == 2
    assert not table.has_gaps


def test_runs_of_a_contiguous_sequence_end_at_a_gap():
    table = Determinization(automaton("A : B"))
    neither, a, b, both = (table.symbol(word) for word in range(4))
    assert neither == QUIET
    assert moves(table, FRESH, a) == moves(table, FRESH, both) == [(1, 0, False)]
    assert moves(table, 0, a) == []  # the run ends
    assert moves(table, 0, b) == moves(table, 0, both) == [(1, -1, True)]
    assert moves(table, 0, QUIET) == []
    assert table.has_gaps


def test_a_single_event_is_an_output_of_a_fresh_run():
    table = Determinization(automaton("A"))
    assert moves(table, FRESH, table.symbol(1)) == [(1, -1, True)]
    assert table.n_states == 0


def test_unselected_events_move_without_marks():
    table = Determinization(automaton("SELECT NONE FROM S WHERE A ; B"))
    a, b = table.symbol(1), table.symbol(2)
    assert moves(table, FRESH, a) == [(0, 0, False)]
    assert moves(table, 0, b) == [(0, 0, True)]


def test_one_event_moves_both_marked_and_unmarked():
    # SELECT keeps y alone: the event moves unmarked as x, and marked as y
    table = Determinization(automaton("SELECT y FROM S WHERE (A AS x OR A AS y) ; B AS y"))
    assert moves(table, FRESH, table.symbol(1)) == [(0, 0, False), (1, 0, False)]


def test_variables_that_are_not_kept_make_no_moves_or_states_of_their_own():
    apart = Determinization(automaton("SELECT z FROM S WHERE (A AS x OR A AS y) ; B AS z"), labelled=True)
    alike = Determinization(automaton("SELECT z FROM S WHERE A ; B AS z"), labelled=True)
    for word in (1, 2, 3, 0):
        assert moves(apart, FRESH, apart.symbol(word)) == moves(alike, FRESH, alike.symbol(word))
        assert moves(apart, 0, apart.symbol(word)) == moves(alike, 0, alike.symbol(word))
    assert (apart.n_states, apart.n_symbols, apart.max_moves) == (alike.n_states, alike.n_symbols, alike.max_moves)


def test_not_is_satisfied_by_every_other_event():
    table = Determinization(automaton("A : NOT(B)"))
    other, a, b = (table.symbol(word) for word in range(3))
    assert other != QUIET
    assert moves(table, FRESH, a) == [(1, 0, False)]
    assert moves(table, 0, other) == moves(table, 0, a) == [(0, -1, True)]
    assert moves(table, 0, b) == []


def test_each_set_of_transitions_that_fire_is_one_symbol():
    table = Determinization(automaton("A ; B"))
    assert table.symbol(0) == QUIET
    assert len({table.symbol(word) for word in range(4)}) == 4 == table.n_symbols
    assert table.symbol(1) == table.symbol(1)


def test_labelled_marks_tell_the_variables_apart():
    table = Determinization(automaton("(A AS x OR A AS y) ; B"), labelled=True)
    assert table.labels[1:] == [{"A", "x"}, {"A", "y"}, {"B"}]
    # one move for each set of variables that holds the event
    assert moves(table, FRESH, table.symbol(1)) == [(1, 0, False), (2, 0, False)]
    assert table.max_moves == 4


# ---- selection strategies ------------------------------------------------------------------------------------


def run_strategy(strategy, text, words):
    """Keys of the determinised states, and of the control, after the words; a run begins at each word."""
    table = Determinization(automaton(text), STRATEGIES[strategy])
    control, active = 0, set()
    for word in words:
        symbol = table.symbol(word)
        after = set()
        for state in [*active, FRESH]:
            found = moves(table, state, symbol, control)
            after |= {state} if found == STAY else {target for _, target, _ in found} - {-1}
        active, control = after, int(table.fresh[symbol, control, 1])
    snapshot = table.snapshot()
    return sorted(snapshot["states"][s] for s in active), snapshot["controls"][control]


def test_next_keeps_the_order_of_the_groups():
    # A ; B: the run that began first is better, and reaches all states of the later ones
    states, control = run_strategy("NEXT", "A ; B", [1, 1, 1])
    assert len(states) == 1
    assert len(control) == 2  # its group, and the group of the runs that marked nothing
    assert control[-1] == ()


def test_last_keeps_the_latest_run():
    assert run_strategy("LAST", "A ; B", [1, 1, 1]) == run_strategy("LAST", "A ; B", [1])


def test_strict_tells_runs_that_go_on_marking_from_those_past_it():
    states, _ = run_strategy("STRICT", "A ; B", [1, 1])
    assert [phase for _, phase in states] == [1, 2]  # during and after marking
    assert Determinization(automaton("A ; B"), STRATEGIES["STRICT"]).has_gaps


def test_max_separates_states_by_the_runs_that_marked_more():
    states, _ = run_strategy("MAX", "A ; B+", [1, 2, 2])
    beaten = [more for _, _, more, _ in states]
    assert len(set(beaten)) > 1


# ---- states that read like a fresh run -----------------------------------------------------------------------


def test_a_state_may_have_the_moves_of_a_fresh_run():
    table = Determinization(automaton("A:+"))
    a = table.symbol(1)
    assert moves(table, FRESH, a) == [(1, 0, True)]
    assert moves(table, 0, a) == [(1, 0, True)]


# ---- quiet symbols -----------------------------------------------------------------------------------------


def explored(table, n_guards, rounds=6, most=200):
    """Return the table with all its symbols resolved from all the states met."""
    symbols = {table.symbol(word) for word in range(1 << min(n_guards, 6))}
    for symbol in symbols:
        moves(table, FRESH, symbol)
    for _ in range(rounds):
        n = table.n_states
        for symbol in symbols:
            table.resolve(symbol, range(min(n, most)), 0)
        if table.n_states == n:
            break
    return table


@pytest.mark.parametrize("text", ["A ; B+ ; C", "(A OR B) ; C", "A+ ; B", "SELECT NONE FROM S WHERE A ; (B OR C)+"])
def test_quiet_symbols_change_nothing(text):
    cea = automaton(text)
    table = explored(Determinization(cea), len(cea.guards))
    assert not table.has_gaps
    assert all(moves(table, state, QUIET) == STAY for state in range(table.n_states))


@pytest.mark.parametrize("text", ["A : B ; C", "A ; (B : C)+", "A:+ ; B", "A ; (B OR C : D)"])
def test_quiet_symbols_end_contiguous_runs(text):
    cea = automaton(text)
    table = explored(Determinization(cea), len(cea.guards))
    assert table.has_gaps
    assert any(moves(table, state, QUIET) != STAY for state in range(table.n_states))


# ---- on demand ---------------------------------------------------------------------------------------------


def test_only_states_that_the_stream_meets_are_made():
    # 2**12 sets of states are reachable; a stream with one A meets a dozen of them
    table = Determinization(automaton("(A OR B):+ : A" + " : (A OR B)" * 12))
    a, b = table.symbol(1), table.symbol(2)
    states = set()
    for symbol in [b, a, *[b] * 20]:
        found = [move for state in [*states, FRESH] for move in moves(table, state, symbol)]
        states = {target for _, target, _ in found} - {-1}
    assert table.n_states < 40
    assert table.n_symbols == 3


def test_a_step_is_unknown_until_it_is_resolved():
    table = Determinization(automaton("A ; B"))
    a, b = table.symbol(1), table.symbol(2)
    assert table.fresh[a, 0, 0] == UNKNOWN
    table.resolve(a, [], 0)
    assert table.n_states == 1
    assert table.steps[b, 0] == UNKNOWN
    table.resolve(b, [0], 0)
    assert moves(table, 0, b) == [(0, 0, False), (1, -1, True)]


@pytest.mark.parametrize("strategy", ["ALL", "NEXT", "LAST", "MAX", "STRICT"])
def test_a_snapshot_numbers_states_as_before(strategy):
    cea = automaton("A ; (B OR A)+ : C")
    table = Determinization(cea, STRATEGIES[strategy])
    words = [1, 2, 3, 1, 4, 2, 1, 5]
    for word in words:
        table.resolve(table.symbol(word), range(table.n_states), 0)
    again = Determinization(cea, STRATEGIES[strategy])
    again.restore(json.loads(json.dumps(table.snapshot())))
    assert again.snapshot() == table.snapshot()
    assert [again.symbol(word) for word in words] == [table.symbol(word) for word in words]


def test_a_query_meets_only_the_symbols_of_its_events():
    query = cer_gpu.compile("SELECT * FROM S WHERE " + " OR ".join(f"(T{i} FILTER T{i}[a > {i}])" for i in range(40)))
    evaluator = query.evaluator()
    evaluator.push(pa.record_batch({"type": ["T0", "T0", "U", "T7"], "a": [1, -1, 1, 9]}))
    assert evaluator.pipeline.table.n_symbols == 2  # the quiet one, and one for all types with the same effect


# ---- bounds ------------------------------------------------------------------------------------------------

WIDE = "(A OR B):+ : A" + " : (A OR B)" * 14


def walk(table, n, seed=0):
    """Read random events."""
    symbols = [table.symbol(1), table.symbol(2)]
    pick = random.Random(seed)
    states = set()
    for _ in range(n):
        symbol = pick.choice(symbols)
        found = [move for state in [*states, FRESH] for move in moves(table, state, symbol)]
        states = {target for _, target, _ in found} - {-1}


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


# ---- equivalence with the automaton ------------------------------------------------------------------------


def outputs_of_cea(cea, words):
    """For each position, the runs that end there, from any start, as (start, marked positions)."""
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
                        kept = marks | {position} if transition.selected else marks
                        after |= {(t, start, kept) for t in onward[transition.target]}
        outputs.append({(start, marks) for state, start, marks in after if state == FINAL})
        runs = after
    return outputs


def outputs_of_table(table, words):
    """The same by the table, which must find each pair of a start and marked positions once."""
    runs, outputs = [], []
    for position, word in enumerate(words):
        symbol = table.symbol(word)
        after, found = [], []
        for state, start, marks in [*runs, (FRESH, position, frozenset())]:
            onward = moves(table, state, symbol)
            for mark, target, output in [(0, state, False)] if onward == STAY else onward:
                kept = marks | {position} if mark else marks
                found += [(start, kept)] * output
                after += [(target, start, kept)] * (target >= 0)
        assert len(set(found)) == len(found)
        outputs.append(set(found))
        runs = after
    return outputs


@strategies.property_settings
@given(st.data())
def test_the_table_has_the_outputs_of_the_automaton(data):
    drawn = data.draw(strategies.queries(windows=None, depth=3))
    cea = automaton(rendering.to_ceql(drawn))
    n_guards = len(cea.guards)
    words = data.draw(st.lists(st.integers(0, (1 << n_guards) - 1), max_size=5))
    assert outputs_of_table(Determinization(cea), words) == outputs_of_cea(cea, words)


def test_guards_with_the_same_effect_share_a_symbol():
    """2**24 bit vectors are possible, with three different effects."""
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
