"""Keys of the events of a pattern by their steps: an event may have several, which differ from step to step.

They take the place of PARTITION BY in queries of languages whose keys may be lists, or fields of unlike names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cer_gpu.ceql.paths import dotted
from cer_gpu.ceql.values import Span

OwnKeys = tuple["StepKey", ...]
"""Keys of the events of one step, in the order of `StepwiseKeys.names`."""


@dataclass(frozen=True)
class StepKey:
    """One key of the events of a step.

    Attributes
    ----------
    attribute : str or None
        Column or field of the value; None: the key is NULL for all events.
    in_list : bool
        True if it is a list: an event belongs to each of its distinct elements.
    below : tuple of str
        Fields of an element that lead to the value.
    nullable : bool
        True if NULL is a key, too; otherwise an event without a value takes no part.
    """

    attribute: str | None
    in_list: bool = False
    below: tuple[str, ...] = ()
    nullable: bool = False
    span: Span = field(default=(0, 0), compare=False, repr=False)


@dataclass(frozen=True)
class StepwiseKeys:
    """Keys of all events of a pattern.

    Attributes
    ----------
    names : tuple of str
        Names of the keys in results.
    steps : tuple of OwnKeys
        Keys of the events of each step, in the order of the steps; of the alternatives of one step in their order.
    absences : tuple of OwnKeys
        Keys of the events that must be absent: those before the steps in turn, then those after the last step.
    samples : bool
        True: the only step has the events of a sample as its alternatives, of which a match has one each.
    """

    names: tuple[str, ...]
    steps: tuple[OwnKeys, ...]
    absences: tuple[OwnKeys, ...] = ()
    samples: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of keys in results: a name that comes again gets the number of its key."""
        columns: list[str] = []
        for number, name in enumerate(map(dotted, self.names), 1):
            columns.append(name if name not in columns else f"{name}_{number}")
        return tuple(columns)

    @property
    def roles(self) -> tuple[OwnKeys, ...]:
        """Keys of steps, then of absences."""
        return (*self.steps, *self.absences)
