"""The protocol of runtimes: relevant events in, matches or their counts out.

A runtime holds all partial matches of one evaluation.  Attributes with defaults say what it can do and what it needs,
so that its callers ask for these and never for its class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

import numpy as np

from cer_gpu.arrays import Bools, Int64
from cer_gpu.runtime.counts import CountBuffers
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.matches import MatchBuffers
from cer_gpu.runtime.progress.buffers import ProgressBuffers
from cer_gpu.runtime.reading.symbols import EventBuffers
from cer_gpu.stages import NO_STAGES, Stages

FoundBuffers = MatchBuffers | CountBuffers | ProgressBuffers | EventBuffers
"""A buffer of matches, of their ends with a count for each, of starts, or of events."""

Length = np.uint64 | np.float64 | None
"""Length of the window, in units of its clocks; None if there is no window."""


class Runtime(ABC):
    """One way of evaluation; made by `cer_gpu.runtime.registry.make_runtime`.

    Attributes
    ----------
    engine : str
        The family that `explain` shows: "stacks", "automaton", "counter", "instances", "products", "recogniser",
        "slots", "funnel" or "events".
    reads_chain : bool
        True: symbols come from a `Chain`; False: from a `Determinization`.
    lists_by_itself : bool
        True: listing is a stage of its own, after the partial matches of a piece are updated.
    keeps_partitions : bool
        True: several partitions are held at once, and may be dropped and numbered anew.
    keeps_strings : bool
        True: numbers of texts are held, and may be exchanged for others.
    options : RunOptions
    stages : Stages
        Takes the time of the stages that the runtime tells apart.
    """

    engine: ClassVar[str]
    reads_chain: ClassVar[bool]
    lists_by_itself: ClassVar[bool] = False
    keeps_partitions: ClassVar[bool] = False
    keeps_strings: ClassVar[bool] = False
    options: RunOptions
    stages: Stages = NO_STAGES

    @property
    def needs_lows(self) -> bool:
        """True: `RelevantEvents.lows` must hold the ordinal of the first event in each window."""
        return False

    @property
    def numbers_events(self) -> bool:
        """True: `RelevantEvents.ordinals` must hold the number of each event in its partition."""
        return False

    @property
    def n_relevant(self) -> int:
        """The number of events fed so far; only where `needs_lows`."""
        raise NotImplementedError

    @property
    def tested(self) -> Int64:
        """Candidates that join predicates tested on each edge, and those that passed; shape (edges, 2)."""
        return np.zeros((0, 2), np.int64)

    @property
    def held(self) -> dict[str, int]:
        """Numbers of what it holds that matches to come may need, by its name; {}: not counted."""
        return {}

    @property
    def n_bytes(self) -> int:
        """Bytes of the partial matches and of the buffers that the loop writes to."""
        groups = (each if isinstance(each, tuple) else (each,) for each in vars(self).values())
        return sum(array.nbytes for group in groups for array in group if isinstance(array, np.ndarray))

    @abstractmethod
    def feed(self, events: RelevantEvents) -> Iterator[FoundBuffers]:
        """Process relevant events and yield full buffers, in the order of the ends."""

    @abstractmethod
    def flush(self) -> FoundBuffers:
        """Return what was found since the last full buffer."""

    def live(self) -> int | Int64:
        """Return the first position, or all positions (ascending), that matches to come may hold."""
        raise NotImplementedError

    def idle(self, n_partitions: int) -> Bools:
        """Return which of the first partitions hold nothing; only where it `keeps_partitions`."""
        raise NotImplementedError

    def keep_partitions(self, kept: Bools) -> None:
        """Drop the partitions that are not `kept` and number the others anew, in their order."""
        raise NotImplementedError

    def reserve_partitions(self, n: int) -> None:
        """Make room for so many partitions."""
        raise NotImplementedError

    def strings_in(self, columns: list[int]) -> Int64:
        """Return the numbers of strings held of some attribute columns; only where it `keeps_strings`."""
        raise NotImplementedError

    def renumber_strings(self, columns: list[int], renumbered: Int64) -> None:
        """Exchange the numbers of texts held of some columns, given the new number for each old one."""
        raise NotImplementedError

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` goes on."""

    @abstractmethod
    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go on from a snapshot."""


class HoldsStarts(Protocol):
    """Holder of the starts of a funnel until they are known: a runtime of the output "funnel"."""

    def pass_clock(self, clock: Any) -> None:
        """Note that the stream has come to a clock of the window."""

    @property
    def next_deadline(self) -> int | None:
        """Least clock of an event that makes a start known; None: none waits for it."""

    @property
    def first_held(self) -> int | None:
        """Position of the first start that is not handed over, or None if all are."""

    def known(self, *, ended: bool = False) -> ProgressBuffers | None:
        """Return known starts, all of whose predecessors are known, in their order, or None if there are no more."""
