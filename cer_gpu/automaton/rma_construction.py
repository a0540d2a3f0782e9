"""Construction of the register match automaton of a formula: union, concatenation, iteration and filters.

papers: RMA, section 5 and appendix, algorithms 1, 3 and 4.  We differ in four points.  A non-contiguous ``;`` or ``+``
has a waiting loop, which the paper draws (figure 1) and does not construct.  The end of the left operand of a sequence
is the start of the right one, without a silent transition between.  The test "x appears in every trail to δ" is made on
the formula, where it is the number of events that x holds.  And more than bounded expressions are accepted: a filter
may name variables bound to the left of the formula that it filters, and one variable of a filter may hold any number of
events if all others hold one event each, known before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from cer_gpu.automaton.normal_form import Atom, Either, NormalForm, Related, Repeat, Then, is_plain, variable_name
from cer_gpu.automaton.rma import CURRENT, RMA, RegisterCondition, RegisterFormula, RegisterTransition, silent_closure
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import fold
from cer_gpu.errors import QueryError

START, _FINAL = 0, 1
"""The start state and the one final state of a constructed automaton; no transition leaves the final state."""


class UnboundedFilterError(QueryError):
    """Join predicate that a bounded number of registers cannot test; the message says why."""


def build_rma(formula: NormalForm, selected: frozenset[str] | None = None, *, loop: bool = True) -> RMA:
    """Build the register match automaton of a formula (ConstructRMA).

    Parameters
    ----------
    formula
        The WHERE clause in LP-normal form.
    selected
        The selected variables, whose events are marked, or None for all.
    loop
        True: the start state has a loop that skips events, so that runs may begin anywhere in the stream.

    Raises
    ------
    UnboundedFilterError
        When registers cannot test a join predicate.
    """
    if not is_plain(formula):
        raise UnboundedFilterError("absences, options and counted repetitions have no register match automaton here")
    builder = _RmaBuilder(selected)
    fold(_RmaPart(formula, START, _FINAL), builder.leave, builder.enter)
    transitions = [RegisterTransition(START, (), START)] if loop else []
    transitions = sorted(transitions + builder.transitions, key=lambda t: t.source)
    names = tuple(builder.registers.values())
    return RMA(builder.n_states, START, frozenset({_FINAL}), names, tuple(transitions), tuple(builder.silent))


def without_silent(automaton: RMA) -> RMA:
    """Return an equivalent automaton without silent transitions (EliminateEpsilon), and without unreachable states."""
    numbers = {automaton.start: 0}
    finals, transitions = set(), []
    for state in (reached := [automaton.start]):  # the body appends to it
        closure = silent_closure(automaton, state)
        if not automaton.finals.isdisjoint(closure):
            finals.add(numbers[state])
        leaving = dict.fromkeys(replace(t, source=state) for inner in closure for t in automaton.outgoing(inner))
        for transition in leaving:
            if transition.target not in numbers:
                numbers[transition.target] = len(numbers)
                reached.append(transition.target)
            transitions.append(replace(transition, source=numbers[state], target=numbers[transition.target]))
    return RMA(len(numbers), 0, frozenset(finals), automaton.registers, tuple(transitions))


# ---- the tree of a formula with its states --------------------------------------------------------------------------


@dataclass(eq=False)
class _Left:
    """Left operands of the sequences around a part: the nearest, and those farther out."""

    part: _RmaPart
    farther: _Left | None


@dataclass(eq=False)
class _RmaPart:
    """A part of the formula.

    Attributes
    ----------
    formula
    start, end : int
        States between which it is built.
    left : _Left or None
        Left operands of the sequences around it, in whose right operands it is.
    below : list of _Part
        Its own parts.
    transition : int
        Index of the transition of an atom.
    """

    formula: NormalForm
    start: int
    end: int
    left: _Left | None = None
    below: list[_RmaPart] = field(default_factory=list)
    transition: int = -1


class _VariableAtoms:
    """Atoms of parts (all of them joined by ``;``) whose events a variable holds, and the least and greatest number."""

    def __init__(self, parts: list[_RmaPart], sites: frozenset[int]) -> None:
        self.atoms: dict[int, _RmaPart] = {}
        self._sites = sites
        counts = [fold(part, self._count_copies, lambda part: part.below) for part in parts]
        self.n_min = sum(count[0] for count in counts)
        self.n_max = sum(count[1] for count in counts)

    def _count_copies(self, part: _RmaPart, below: list[tuple[int, float]]) -> tuple[int, float]:
        match part.formula:
            case Atom() as atom:
                binds = not atom.sites.isdisjoint(self._sites)
                if binds:
                    self.atoms[part.transition] = part
                return int(binds), int(binds)
            case Either():
                return min(n_min for n_min, _ in below), max(n_max for _, n_max in below)
            case Repeat():
                return below[0][0], math.inf if below[0][1] else 0
            case _:
                return sum(n_min for n_min, _ in below), sum(n_max for _, n_max in below)

    @property
    def single(self) -> bool:
        """True if the variable holds exactly one event in every match."""
        return self.n_min == self.n_max == 1


class _RmaBuilder:
    """Thompson's construction: a part adds edges out of its start, edges into its end, and fresh states between."""

    def __init__(self, selected: frozenset[str] | None) -> None:
        self.selected = selected
        self.n_states = 2
        self.transitions: list[RegisterTransition] = []
        self.silent: list[tuple[int, int]] = []
        # rx: the name of the variable of each register, by the transitions that write it (δx⁻¹ of the variable)
        self.registers: dict[frozenset[int], str] = {}
        self._register_of: dict[frozenset[int], int] = {}

    def _new_state(self) -> int:
        self.n_states += 1
        return self.n_states - 1

    def _waiting_state(self) -> int:
        """Return a fresh state with a waiting loop: it skips any event."""
        state = self._new_state()
        self.transitions.append(RegisterTransition(state, (), state))
        return state

    def enter(self, part: _RmaPart) -> list[_RmaPart]:
        """Add the states and transitions of a part, and return the parts below it."""
        start, end = part.start, part.end
        match part.formula:
            case Atom() as atom:
                part.transition = len(self.transitions)
                self.transitions.append(self._read_transition(atom, start, end))
            case Either(left, right):
                for below in (left, right):
                    first, last = self._new_state(), self._new_state()
                    self.silent += [(start, first), (last, end)]
                    part.below.append(_RmaPart(below, first, last, part.left))
            case Then(left, right, contiguous):
                middle = self._new_state() if contiguous else self._waiting_state()
                before = _RmaPart(left, start, middle, part.left)
                part.below = [before, _RmaPart(right, middle, end, _Left(before, part.left))]
            case Repeat(body):
                first, last = self._new_state(), self._new_state()
                self.silent += [(start, first), (last, end)]
                part.below = [_RmaPart(body, first, last, part.left)]
            case Related(body):
                part.below = [_RmaPart(body, start, end, part.left)]
        return part.below

    def _read_transition(self, atom: Atom, start: int, end: int) -> RegisterTransition:
        """Return the transition of an atom (the base case)."""
        marked = bool(atom.labels if self.selected is None else atom.labels & self.selected)
        formula: RegisterFormula = (RegisterCondition(atom.guard, negated=atom.negated),)
        return RegisterTransition(start, ((formula, True),), end, marked=marked)

    def leave(self, part: _RmaPart, below: list[_RmaPart]) -> _RmaPart:
        """Close the loop of a repetition, or place a filter; return the part."""
        match part.formula:
            case Repeat(contiguous=contiguous):
                first, last = below[0].start, below[0].end
                wait = last if contiguous else self._waiting_state()
                self.silent += [(wait, first)] if contiguous else [(last, wait), (wait, first)]
            case Related(relation=relation):
                self._relate(part, relation)
        return part

    # ---- join predicates (algorithms 1 and 3) ----------------------------------------------------------------

    def _relate(self, part: _RmaPart, relation: s.Relation) -> None:
        """Test a filter on each transition at which the last of its variables becomes known."""
        _check_events(relation)
        inner: dict[int, _VariableAtoms] = {}
        outer: dict[int, _VariableAtoms] = {}
        for number, role in enumerate(relation.roles):
            binding = _VariableAtoms(part.below, role.sites)
            if binding.atoms:
                inner[number] = binding
            else:
                outer[number] = _VariableAtoms(list(_lefts(part.left, None)), role.sites)
                _check_bound(relation, role, outer[number])
        several = [number for number, binding in inner.items() if not binding.single]
        if len(several) > 1:
            raise _unbounded(relation, _several(relation.roles[several[0]], inner[several[0]]))
        if not inner:
            for transition in _first_atoms(part.below[0]):
                self._add_condition(relation, transition, {}, outer)
            return
        last = {several[0]: inner[several[0]]} if several else inner
        atoms = {number: atom for binding in last.values() for number, atom in binding.atoms.items()}
        for transition, atom in atoms.items():
            before = list(_lefts(atom.left, part.left))
            missing = [
                n
                for n, binding in inner.items()
                if transition not in binding.atoms and not _always_meets(binding, before)
            ]
            if not missing:
                self._add_condition(relation, transition, inner, outer)
            elif several:
                role = relation.roles[several[0]]
                raise _unbounded(relation, _several(role, inner[several[0]]))

    def _add_condition(
        self, relation: s.Relation, index: int, inner: dict[int, _VariableAtoms], outer: dict[int, _VariableAtoms]
    ) -> None:
        """Add the filter to the formula of a transition, with a register selection (CreateNewRs, algorithm 4)."""
        selection = []
        for number, role in enumerate(relation.roles):
            atoms = (inner.get(number) or outer[number]).atoms
            selection.append(CURRENT if index in atoms else self._register(frozenset(atoms), role))
        names = tuple(variable_name(role.variable) for role in relation.roles)
        condition = RegisterCondition(relation.predicate, tuple(selection), names)
        transition = self.transitions[index]
        ((formula, _),) = transition.guard
        self.transitions[index] = replace(transition, guard=(((*formula, condition), True),))

    def _register(self, atoms: frozenset[int], role: s.Role) -> int:
        """Return the register that the transitions of a variable write, adding it if necessary."""
        name = variable_name(role.variable)
        if atoms not in self._register_of:
            register = self._register_of[atoms] = len(self._register_of)
            self.registers[atoms] = name
            for index in atoms:
                transition = self.transitions[index]
                self.transitions[index] = replace(transition, writes=transition.writes | {register})
        elif name not in self.registers[atoms].split(", "):
            self.registers[atoms] += f", {name}"
        return self._register_of[atoms]


def _lefts(left: _Left | None, end: _Left | None) -> Iterator[_RmaPart]:
    """Yield left operands, the nearest first, up to those around an outer part (`end`)."""
    while left is not end:
        assert left is not None
        yield left.part
        left = left.farther


def _always_meets(binding: _VariableAtoms, preceding: list[_RmaPart]) -> bool:
    """Return True if every path passes an atom of this single-event variable."""
    return any(not _transitions(part).isdisjoint(binding.atoms) for part in preceding)


def _transitions(part: _RmaPart) -> set[int]:
    transitions, todo = set(), [part]
    while todo:
        part = todo.pop()
        transitions.add(part.transition)
        todo += part.below
    return transitions


def _first_atoms(part: _RmaPart) -> list[int]:
    """Return the transitions of the atoms with which a part can begin."""
    transitions, todo = [], [part]
    while todo:
        part = todo.pop()
        if isinstance(part.formula, Atom):
            transitions.append(part.transition)
        todo += part.below[:1] if isinstance(part.formula, Then) else part.below
    return transitions


# ---- filters that registers cannot test -----------------------------------------------------------------------------


def _check_events(relation: s.Relation) -> None:
    for attribute in s.attributes(relation.predicate):
        if attribute.event != "EACH" and attribute.variable is not None:
            name = variable_name(attribute.variable)
            raise _unbounded(relation, f"{attribute.event}({name}) is chosen among all events of {name!r}")


def _check_bound(relation: s.Relation, role: s.Role, binding: _VariableAtoms) -> None:
    """Check that a variable from outside the filtered formula holds one event wherever the filter is tested."""
    name = variable_name(role.variable)
    if not binding.atoms:
        raise _unbounded(relation, f"no event of {name!r} comes before the filter is tested")
    if not binding.single:
        raise _unbounded(relation, _several(role, binding))


def _several(role: s.Role, binding: _VariableAtoms) -> str:
    name = variable_name(role.variable)
    if binding.n_max > 1:
        return f"{name!r} can hold several events there, and each of them would need a register of its own"
    if not binding.n_min:
        return f"{name!r} can be empty there, so that its register may hold no event"
    return f"events of {name!r} can come before other events of the filter are known"


def _unbounded(relation: s.Relation, reason: str) -> UnboundedFilterError:
    start, end = relation.span
    return UnboundedFilterError(f"registers cannot test a join predicate: {reason}", None, start, end)
