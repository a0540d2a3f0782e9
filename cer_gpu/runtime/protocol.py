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

ResultBuffers = MatchBuffers | CountBuffers | ProgressBuffers | EventBuffers
"""A buffer of matches, of their ends with a count for each, of starts, or of events."""

Length = np.uint64 | np.float64 | None
"""Length of the window, in units of its clocks; None if there is no window."""


class Runtime(ABC):
    """Runtime of a query; created by `cer_gpu.runtime.registry.make_runtime`.

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
        True: several partitions are live at once, and may be dropped and renumbered.
    keeps_strings : bool
        True: ids of strings are buffered, and may be replaced by others.
    options : RunOptions
    stages : Stages
        Measures the time of the stages of the runtime.
    """

    engine: ClassVar[str]
    reads_chain: ClassVar[bool]
    lists_by_itself: ClassVar[bool] = False
    keeps_partitions: ClassVar[bool] = False
    keeps_strings: ClassVar[bool] = False
    options: RunOptions
    stages: Stages = NO_STAGES

    @property
    def reads_columns(self) -> bool:
        """True: fastest if the numbers of a column of `RelevantEvents.attributes` are neighbours in memory."""
        return False

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
    def live_counts(self) -> dict[str, int]:
        """Counters of live state (name -> count), for `explain --analyze`; empty if not tracked."""
        return {}

    @property
    def n_bytes(self) -> int:
        """Bytes of the partial matches and of the buffers that the loop writes to."""
        groups = (each if isinstance(each, tuple) else (each,) for each in vars(self).values())
        return sum(array.nbytes for group in groups for array in group if isinstance(array, np.ndarray))

    @abstractmethod
    def feed(self, events: RelevantEvents) -> Iterator[ResultBuffers]:
        """Process relevant events and yield full buffers, in the order of the ends."""

    @abstractmethod
    def flush(self) -> ResultBuffers:
        """Return the results since the last full buffer."""

    def live(self) -> int | Int64:
        """Return the first position, or all positions (ascending), that later matches may hold."""
        raise NotImplementedError

    def idle(self, n_partitions: int) -> Bools:
        """Return which of the first partitions hold nothing; only where it `keeps_partitions`."""
        raise NotImplementedError

    def keep_partitions(self, mask: Bools) -> None:
        """Drop the partitions outside `mask` and renumber the others in order."""
        raise NotImplementedError

    def reserve_partitions(self, n: int) -> None:
        """Reserve memory for `n` partitions."""
        raise NotImplementedError

    def strings_in(self, columns: list[int]) -> Int64:
        """Return the ids of the buffered strings of some attribute columns; only where it `keeps_strings`."""
        raise NotImplementedError

    def renumber_strings(self, columns: list[int], renumbered: Int64) -> None:
        """Replace the ids of the buffered strings of some columns, given the new id for each old one."""
        raise NotImplementedError

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` continues."""

    @abstractmethod
    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""


class HoldsStarts(Protocol):
    """Buffer of the starts of a funnel until they are decided: a runtime of the output "funnel"."""

    def pass_clock(self, clock: Any) -> None:
        """Note that the stream has come to a clock of the window."""

    @property
    def next_deadline(self) -> int | None:
        """Least clock of an event that decides a start, or None if no start is pending."""

    @property
    def first_pending(self) -> int | None:
        """Position of the first start that is pending, or None if none is."""

    def take_decided(self, *, ended: bool = False) -> ProgressBuffers | None:
        """Return the decided starts before the first undecided one, in order, or None if there are no more."""
