"""Windows within a chain, and gaps at each step, as bounds that its stacks test, in place of join predicates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cer_gpu.automaton.chain import MAX_STEPS, ChainStep, Rejection, are_spaced
from cer_gpu.automaton.normal_form import NormalForm, Related, Then, absences
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import children, fold
from cer_gpu.planning.pattern_spans import same_clock

_OTHER = "the query has join predicates"


@dataclass(frozen=True)
class _Part:
    """A part of a pattern: how many steps it has, and windows, each with its first and last step, from 0."""

    n_steps: int
    windows: tuple[tuple[int, int, s.Within], ...] = ()


def spaced_chain(
    steps: tuple[ChainStep, ...], pattern: NormalForm, within: s.Within | None
) -> tuple[ChainStep, ...] | Rejection:
    """Return the steps of a chain with the bounds that its join predicates are, or the reason why they are others.

    Parameters
    ----------
    steps
        The steps without the join predicates.
    pattern
        The pattern with them.
    within
        Window of the query.
    """
    each_step: list[s.Within] = []
    while isinstance(pattern, Related) and _is_of_each_step(pattern.relation):
        each_step.append(_length_of(pattern.relation))
        pattern = pattern.body
    if any(absent.relations for absent in absences(pattern)):
        return Rejection(_OTHER)
    part = _part_of(pattern)
    if isinstance(part, Rejection):
        return part
    lengths = [*each_step, *(length for _, _, length in part.windows)]
    clock = within if within is not None else lengths[0]
    if not all(same_clock(length, clock) for length in lengths):
        return Rejection("windows within the pattern, or gaps, are measured by other clocks than WITHIN")
    copied = _copied(steps)
    if isinstance(copied, Rejection):
        return copied
    step_of, alone = copied
    windows = [(step_of[first].start, step_of[last].stop - 1, length) for first, last, length in part.windows]
    bounded = _with_bounds(alone, each_step, windows)
    return bounded if are_spaced(bounded) else Rejection(_OTHER)


def _length_of(relation: s.Relation) -> s.Within:
    assert isinstance(relation.predicate, s.Apart)
    return relation.predicate.within


def _is_of_each_step(relation: s.Relation) -> bool:
    return isinstance(relation.predicate, s.Apart) and relation.predicate.earlier.event == "PREV"


def _part_of(pattern: NormalForm) -> _Part | Rejection:
    """Return the windows around the steps of a pattern that is a chain."""

    def part_of(formula: NormalForm, below: list[_Part | Rejection]) -> _Part | Rejection:
        parts: list[_Part] = []
        for part in below:
            if isinstance(part, Rejection):
                return part
            parts.append(part)
        match formula:
            case Then():
                left, right = parts
                shifted = tuple((i + left.n_steps, j + left.n_steps, each) for i, j, each in right.windows)
                return _Part(left.n_steps + right.n_steps, left.windows + shifted)
            case Related():
                (body,) = parts
                predicate = formula.relation.predicate
                if not isinstance(predicate, s.Apart) or predicate.earlier.event != "EACH":
                    return Rejection(_OTHER)
                if len(body.windows) == MAX_STEPS:
                    return Rejection(f"the pattern has more than {MAX_STEPS} windows within it")
                return _Part(body.n_steps, (*body.windows, (0, body.n_steps - 1, predicate.within)))
        if any(part.windows for part in parts):
            return Rejection("an alternative, or an iteration, has a window within it")
        return _Part(1)

    return fold(pattern, part_of, children)


def _copied(steps: Sequence[ChainStep]) -> tuple[list[range], list[ChainStep]] | Rejection:
    """Return a step for each event that is there in any case, or may be, and which of them stand for each step."""
    alone: list[ChainStep] = []
    step_of: list[range] = []
    for step in steps:
        first = len(alone)
        n_copies = step.n_min if step.n_max is None else step.n_max
        if len(alone) + n_copies > MAX_STEPS:
            return Rejection(f"the pattern has more than {MAX_STEPS} steps, one for each event of a '{{n,m}}'")
        alone += _copies(step, n_copies)
        step_of.append(range(first, len(alone)))
    return step_of, alone


def _copies(step: ChainStep, n_copies: int) -> Iterator[ChainStep]:
    """Yield a step for each event that is there in any case, or may be; the last one may have others without bound."""
    between = step.guards if step.linked else ()
    for k in range(n_copies):
        is_last = k == n_copies - 1
        repeated = step.repeated and step.n_max is None and is_last
        yield replace(
            step,
            repeated=repeated,
            n_min=1,
            n_max=None,
            linked=step.linked and repeated,
            neighbour=step.neighbour and k == 0,
            barring=step.barring if k == 0 else between,
            optional=k >= step.n_min,
        )


def _with_bounds(
    steps: Sequence[ChainStep], each_step: Sequence[s.Within], windows: Sequence[tuple[int, int, s.Within]]
) -> tuple[ChainStep, ...]:
    """Return steps with gaps at each of them, and with windows; one around two events is a gap."""
    least = min(each_step, key=lambda length: length.length, default=None)
    bounded: list[ChainStep] = []
    for last, step in enumerate(steps):
        own: list[tuple[int, s.Within]] = []
        gap = least if last > 0 else None
        for first, end, length in windows:
            if end != last or (first == last and not step.repeated):
                continue
            if first == last - 1 and not (step.repeated or steps[first].repeated or step.optional):
                gap = length if gap is None or length.length < gap.length else gap
            else:
                own.append((first, length))
        bounded.append(replace(step, gap=gap, own_gap=least if step.repeated else None, windows=tuple(own)))
    return tuple(bounded)
