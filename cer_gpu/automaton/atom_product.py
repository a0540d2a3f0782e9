"""Product of the two sides of a conjunction: their steps in any order, or two at once with one event.

papers: as for `cer_gpu.automaton.atom_graph`, whose atoms are the states of the product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


class ProductStep(NamedTuple):
    """A step of a side to a node; the other fields are those of `cer_gpu.automaton.atom_graph.Edge`."""

    node: int
    contiguous: bool = False
    loops: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()


class ProductState(NamedTuple):
    """A state: the last node of each side (None if it has not begun), and True for the sides whose step it is."""

    left: int | None
    right: int | None
    left_moved: bool
    right_moved: bool

    @property
    def moved(self) -> tuple[int, ...]:
        """The nodes that the event of the state is at."""
        pairs = ((self.left, self.left_moved), (self.right, self.right_moved))
        return tuple(node for node, moved in pairs if moved and node is not None)


class ProductMove(NamedTuple):
    """A move to a state.

    `absent` are the absences of the gap before it, `waited` those of the gaps that began when a side (0 or 1) made its
    last step, before other steps of the other side.
    """

    target: ProductState
    contiguous: bool
    loops: tuple[int, ...]
    absent: tuple[int, ...]
    waited: tuple[tuple[int, int], ...]


BEGIN = ProductState(None, None, left_moved=True, right_moved=True)
"""State before the first step."""


@dataclass
class Side:
    """A side of a conjunction: the nodes that may begin and end it, and the steps that may follow each."""

    first: tuple[int, ...]
    last: tuple[int, ...]
    steps: dict[int, list[ProductStep]] = field(default_factory=dict)
    _alike: dict[tuple[bool, frozenset[ProductStep]], int] = field(default_factory=dict)

    def waiting(self, node: int | None) -> int | None:
        """Return the node, or another from which the side goes on alike once the other side has made a step."""
        if node is None:
            return None
        steps = frozenset(step for step in self.after(node) if not step.contiguous)
        return self._alike.setdefault((node in self.last, steps), node)

    def after(self, node: int | None) -> list[ProductStep]:
        """Return the steps that may follow a node, or begin the side (None)."""
        if node is None:
            return [ProductStep(first) for first in self.first]
        return self.steps.get(node, [])

    def ends_at(self, node: int | None, *, optional: bool) -> bool:
        """Return True if the side may end at a node; None if it has not begun."""
        return optional if node is None else node in self.last


def moves(
    state: ProductState, left: Side, right: Side, may_be_one: Callable[[int, int], bool]
) -> Iterator[ProductMove]:
    """Yield the moves from a state.

    A side goes on at the very next position only if it made a step with the last event.
    """
    sides = (left, right)
    nodes, moved = state[:2], state[2:]
    steps = [
        [step for step in side.after(node) if just or not step.contiguous]
        for side, node, just in zip(sides, nodes, moved, strict=True)
    ]
    p, q = left.waiting(state.left), right.waiting(state.right)
    for step in steps[0]:
        yield _product_move(ProductState(step.node, q, left_moved=True, right_moved=False), [(0, step)], moved)
    for step in steps[1]:
        yield _product_move(ProductState(p, step.node, left_moved=False, right_moved=True), [(1, step)], moved)
    for one in steps[0]:
        for other in steps[1]:
            if may_be_one(one.node, other.node):
                target = ProductState(one.node, other.node, left_moved=True, right_moved=True)
                yield _product_move(target, [(0, one), (1, other)], moved)


def _product_move(target: ProductState, steps: list[tuple[int, ProductStep]], moved: tuple[bool, ...]) -> ProductMove:
    return ProductMove(
        target,
        any(step.contiguous for _, step in steps),
        tuple(loop for _, step in steps for loop in step.loops),
        tuple(number for side, step in steps if moved[side] for number in step.absent),
        tuple((number, side) for side, step in steps if not moved[side] for number in step.absent),
    )
