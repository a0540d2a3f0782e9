"""The state of one evaluation by a recogniser: the state of its run, and its registers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cer_gpu.arrays import Int32
from cer_gpu.automaton import encoding as codes
from cer_gpu.automaton.recogniser import RecogniserTable
from cer_gpu.backend.arguments import Matches, plain
from cer_gpu.backend.joins import recognition as loop
from cer_gpu.backend.joins.filters import check_sizes, filters_of, with_strings
from cer_gpu.backend.status import Status
from cer_gpu.expressions.relation_terms import Comparison
from cer_gpu.expressions.relations import BoundRelations
from cer_gpu.expressions.terms import COMPARISONS
from cer_gpu.runtime.events import RelevantEvents, RunOptions
from cer_gpu.runtime.join_tables import padded, records_of
from cer_gpu.runtime.matches import MatchBuffers, OutputBuffers
from cer_gpu.runtime.protocol import Length, Runtime


class Recognising(Runtime):
    """Runtime that finds the ends of matches by one run with registers, for windows of few events.

    Parameters
    ----------
    table : RecogniserTable
    options : RunOptions
        With `joins`, without partitions, LIMIT and CONSUME BY.
    length
        Length of the window, which the recogniser knows.
    """

    engine = "recogniser"
    reads_chain = False

    def __init__(self, table: RecogniserTable, options: RunOptions, length: Length) -> None:
        assert options.joins is not None
        self.options = options
        self._table = table
        recogniser = table.recogniser
        bound = options.joins.plan.bound
        self._regs = np.zeros(loop.N_REGS, np.int64)
        self._regs[loop.LAST_POSITION] = -1
        self._values = np.zeros((1, 1 + len(bound.columns), recogniser.n_registers + 1), np.int64)
        self._arguments, conditions, code = _tests_of(table, bound)
        self._ranked = bound.ranked
        assert options.strings is not None
        self._tests = filters_of(conditions, code, bound.constants, options.strings.tables(ranked=bound.ranked))
        self._events_of_tests = np.zeros((2, self._arguments.shape[1]), np.int64)
        self._out = OutputBuffers(timed=options.timed, labelled=False)

    def feed(self, events: RelevantEvents) -> Iterator[MatchBuffers]:
        """Process relevant events and yield full buffers of ends, in order."""
        self._regs[loop.EVENT] = 0
        while True:
            match Status(self._recognise(events)):
                case Status.DONE:
                    break
                case Status.OUTPUT_FULL:
                    yield self.flush()
                case other:
                    raise AssertionError(other)

    def _recognise(self, events: RelevantEvents) -> int:
        automaton, strings = self._table.recogniser, self.options.strings
        assert strings is not None
        shard, n_shards = self.options.shard or (0, 1)
        groups = plain(
            with_strings(self._tests, strings.tables(ranked=self._ranked)),
            loop.RecogniserArrays(
                self._table.atoms_of,
                automaton.states,
                automaton.listed,
                automaton.formulas,
                automaton.tested,
                self._arguments,
                automaton.moves,
                automaton.idle,
                automaton.period,
            ),
            loop.Registers(self._values, *self._events_of_tests),
            Matches(*self._out.to_fill),
        )
        bounds = self.options.report_from, shard, n_shards
        status: int = loop.recognise(tuple(events.as_group), events.attributes, *groups, *bounds, self._regs)
        check_sizes(self._tests)
        return status

    def flush(self) -> MatchBuffers:
        """Return the ends since the last full buffer."""
        ends = self._out.take(int(self._regs[loop.N_OUT]), 0)
        self._regs[loop.N_OUT] = 0
        return ends

    def live(self) -> int:
        """Return a position before which matches to come hold nothing."""
        return max(int(self._regs[loop.LAST_POSITION]) + 1 - self.options.width, 0)

    # ---- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` continues."""
        return {"regs": self._regs, "values": self._values}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        self._regs, self._values = snapshot["regs"], snapshot["values"]


def _tests_of(table: RecogniserTable, bound: BoundRelations) -> tuple[Int32, Int32, list[tuple[int, int, int]]]:
    """Return the registers of the arguments of tests, their conditions, and the instructions of programs."""
    conditions, arguments = list[list[int]](), list[list[int]]()
    code: list[tuple[int, int, int]] = []
    for test in table.recogniser.tests:
        # an argument is named without the stream of its variable
        registers = {name.rpartition(">")[2]: register for name, register in test.registers}
        condition = bound.conditions[test.relation]
        if isinstance(condition, Comparison):
            kind = codes.COMPARE_RANKED if condition.ranked else codes.COMPARE
            columns = [1 + condition.left_column, 1 + condition.right_column]
            row = [kind, COMPARISONS.index(condition.op), *columns, 0, 0, 0]
        else:
            begin = len(code)
            code += condition.instructions
            row = [codes.PROGRAM, 0, 0, 0, 0, begin, len(code)]
        conditions.append([*row, test.relation, codes.NO_ZONE])
        arguments.append([registers[argument.variable] for argument in condition.arguments])
    return padded(arguments, 0), records_of(conditions, codes.CONDITION), code
