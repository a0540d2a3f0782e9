"""The state of one evaluation of a chain: a stack of instances for each step, and the arrays for listing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cer_gpu.arrays import Array, Int64
from cer_gpu.automaton.chain import Chain
from cer_gpu.automaton.encoding import CONSUME_NONE, COUNT_WINDOW
from cer_gpu.backend.arguments import Matches, Steps, Window, plain
from cer_gpu.backend.chains import stacks as loops
from cer_gpu.backend.status import Status
from cer_gpu.columnar.memory import Scratch, room
from cer_gpu.errors import EventsError
from cer_gpu.runtime.events import Relevant, RunOptions
from cer_gpu.runtime.matches import MatchBuffers, OutputBuffers
from cer_gpu.runtime.protocol import Length, Runtime
from cer_gpu.stages import LISTING

_INITIAL_SIZE = 1 << 12
"""Initial room: instances of each stack, and events of a complex event."""


class ChainLister(Runtime):
    """The base of the runtimes with stacks, of a whole stream or of its partitions: the listing of complex events.

    Parameters
    ----------
    chain
    options
    length
        Length of the window, uint64 or float64; None if there is none.
    n_regs
        Number of registers of the loops.
    """

    engine = "stacks"
    reads_chain = True
    lists_by_itself = True

    def __init__(self, chain: Chain, options: RunOptions, length: Length, n_regs: int = loops.N_REGS) -> None:
        self.options = options
        self._chain = chain
        self._length = np.uint64(2**64 - 1) if length is None else length
        self._marks = np.arange(1, len(chain.steps) + 1 if options.labelled else 1, dtype=np.int32)
        self._regs = np.zeros(n_regs, np.int64)
        self._frames = np.zeros((_INITIAL_SIZE, loops.N_FRAME), np.int64)
        self._path = np.zeros(_INITIAL_SIZE, np.int64)
        self._path_marks = np.zeros(_INITIAL_SIZE, np.int32)
        self._out = OutputBuffers(timed=options.timed, labelled=options.labelled)

    @property
    def numbers_events(self) -> bool:
        """True where a window counts the events of a partition."""
        return self.options.window == COUNT_WINDOW

    def flush(self) -> MatchBuffers:
        """Return the complex events found since the last call."""
        found = self._out.take(int(self._regs[loops.N_OUT]), int(self._regs[loops.N_VALUES]))
        self._regs[loops.N_OUT] = self._regs[loops.N_VALUES] = 0
        return found

    def _list(self, events: Relevant, n_ends: int) -> Iterator[MatchBuffers]:
        """List the complex events of the first ends, and yield full buffers."""
        regs, out = self._regs, self._out
        regs[loops.END] = 0
        while n_ends:
            match Status(self._list_ends(events, n_ends)):
                case Status.DONE:
                    break
                case Status.GROW_PATH:
                    self._double_path()
                case Status.OUTPUT_FULL if regs[loops.N_OUT]:
                    yield self.flush()
                case Status.OUTPUT_FULL:
                    out.widen()
                case other:
                    raise AssertionError(other)

    @property
    def _steps(self) -> Steps:
        return Steps(*self._chain.arrays)

    def _window(self, events: Relevant) -> Window:
        return Window(events.window_clocks, self._length)

    @property
    def _listing(self) -> loops.Frames:
        return loops.Frames(self._marks, self._frames, self._path, self._path_marks)

    def _list_ends(self, events: Relevant, n_ends: int) -> int:
        """Call the loop that lists, and return its status."""
        raise NotImplementedError

    def _double_path(self) -> None:
        """Make room for longer complex events; a path ends where its array does."""
        self._frames = np.concatenate([self._frames, np.zeros_like(self._frames)])
        self._path = np.concatenate([np.zeros_like(self._path), self._path])
        self._path_marks = np.concatenate([np.zeros_like(self._path_marks), self._path_marks])


class StackLister(ChainLister):
    """Runtime that pushes relevant events to the stacks of a chain, and lists the complex events that they end.

    Parameters
    ----------
    chain
    options
        Without partitions and shares.
    length
        Length of the window, uint64 or float64; None if there is none.
    """

    def __init__(self, chain: Chain, options: RunOptions, length: Length) -> None:
        super().__init__(chain, options, length)
        steps = chain.steps
        self._counts = np.zeros(len(steps) + 1, np.int64)
        self._counts[0] = 1
        self._bottoms = np.zeros(len(steps) + 1, np.int64)
        self._tops = np.zeros(len(steps) + 1, self._length.dtype)
        self._places = np.zeros((len(steps), _INITIAL_SIZE), np.int64)
        self._below = np.zeros((len(steps), _INITIAL_SIZE), np.int64)
        self._latest = np.zeros((len(steps), _INITIAL_SIZE), self._length.dtype)
        self._began = np.zeros(_INITIAL_SIZE if options.timed else 0, np.int64)
        self._barred = np.full(len(steps), -1, np.int64)
        self._bars = np.zeros((len(steps), _INITIAL_SIZE if chain.is_gapped else 0), np.int64)
        self._consume = options.consume != CONSUME_NONE
        self._ends = Scratch(np.int64, loops.BOTTOMS + len(steps) * self._consume)

    def feed(self, events: Relevant) -> Iterator[MatchBuffers]:
        """Process relevant events and yield full buffers of complex events, in order."""
        begin, n = 0, len(events.symbols)
        ends = self._ends.empty(n)
        while begin < n:
            if self._heights.max() == self._places.shape[1]:
                self._make_room(events.window_clocks[begin])
            groups = plain(events.as_group, self._window(events), self.options.as_group, self._steps, self._stacks)
            begin, n_ends = loops.push_events(*groups, begin, ends)
            yield from self.stages.each(LISTING, self._list(events, n_ends))
            if not self._chain.repeated[-1]:
                self._heights[-1] = self._bottoms[-1] = 0  # what ended there is listed

    def _list_ends(self, events: Relevant, n_ends: int) -> int:
        groups = plain(
            events.as_group,
            self._window(events),
            self.options.as_group,
            self._steps,
            self._stacks,
            self._listing,
            Matches(*self._out.to_fill),
        )
        status: int = loops.list_ends(*groups, self._ends.empty(n_ends), n_ends, self._regs)
        return status

    @property
    def _stacks(self) -> loops.Stacks:
        return loops.Stacks(
            self._counts,
            self._bottoms,
            self._tops,
            self._places,
            self._below,
            self._latest,
            self._began,
            self._barred,
            self._bars,
        )

    @property
    def _heights(self) -> Int64:
        heights: Int64 = self._counts[1:]
        return heights

    def live(self) -> Int64:
        """Return the positions that complex events to come may hold, and perhaps others, ascending."""
        reach = zip(self._places, self._bottoms[1:], self._heights, strict=True)
        return np.unique(np.concatenate([row[bottom:height] for row, bottom, height in reach]))

    # ---- state that can be kept -----------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` goes on."""
        return {
            "counts": self._counts,
            "bottoms": self._bottoms,
            "tops": self._tops,
            "places": _filled(self._places, self._heights),
            "below": _filled(self._below, self._heights),
            "latest": _filled(self._latest, self._heights),
            "began": _filled(self._began[np.newaxis], self._heights[:1])[0],
            "barred": self._barred,
            "bars": _filled(self._bars, self._heights),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        self._counts, self._bottoms, self._tops = snapshot["counts"], snapshot["bottoms"], snapshot["tops"]
        self._places, self._below, self._latest = snapshot["places"], snapshot["below"], snapshot["latest"]
        self._began, self._barred, self._bars = snapshot["began"], snapshot["barred"], snapshot["bars"]

    # ---- room -----------------------------------------------------------------------------------------------

    def _make_room(self, clock: Any) -> None:
        """Drop what has left the window before an event of this clock; take more memory if less than half is free."""
        if loops.drop_dead(*plain(self._stacks), clock, self._length):
            return
        size = self._places.shape[1]
        try:
            self._places = _doubled(self._places, self._heights)
            self._below = _doubled(self._below, self._heights)
            self._latest = _doubled(self._latest, self._heights)
            self._began = _doubled(self._began[np.newaxis], self._heights[:1])[0]
            self._bars = _doubled(self._bars, self._heights)
        except MemoryError:
            raise EventsError(
                f"no memory for more than {size} partial results of a step\nhint: add WITHIN, or a shorter one"
            ) from None


def _doubled(stacks: Array, heights: Int64) -> Array:
    """Return stacks with twice the room."""
    n_stacks, n_each = stacks.shape
    grown = room((n_stacks, 2 * n_each), stacks.dtype)
    for new, old, height in zip(grown, stacks, heights, strict=True):
        new[:height] = old[:height]
    return grown


def _filled(stacks: Array, heights: Int64) -> Array:
    """Return a copy with zeros where nothing was written."""
    return np.where(np.arange(stacks.shape[1]) < heights[:, np.newaxis], stacks, 0).astype(stacks.dtype)
