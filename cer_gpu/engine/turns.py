"""Members of a set that have something to do in a block, found without looking at the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cer_gpu.columnar.columns import Block
from cer_gpu.engine.execution import StreamingExecution
from cer_gpu.engine.partitioner import Partitioner
from cer_gpu.engine.set_execution import QueryExecution
from cer_gpu.predicates.shared_guards import SharedGuards


class Turns:
    """Turns of the members of an evaluation, until one comes, goes, or is bound to another schema.

    Parameters
    ----------
    members
    """

    def __init__(self, members: Mapping[str, QueryExecution]) -> None:
        self._members = list(members.items())
        self._each_block: set[int] = set()
        self._of_guard: dict[SharedGuards, dict[int, list[int]]] = {}
        for k, (_, member) in enumerate(self._members):
            words = member.reads
            if words is None:
                self._each_block.add(k)
                continue
            of = self._of_guard.setdefault(words.shared, {})
            for number in words.numbers:
                of.setdefault(number, []).append(k)

    def of(self, block: Block) -> Iterator[tuple[str, QueryExecution]]:
        """Yield the members that read a block, in their order."""
        turns = set(self._each_block)
        for shared, of in self._of_guard.items():
            for number in shared.asked_in(block):
                turns.update(of.get(number, ()))
        for k in sorted(turns):
            name, member = self._members[k]
            if not member.limit_reached:
                yield name, member
                if k not in self._each_block and member.reads is None:
                    self._each_block.add(k)

    def partitioners(self) -> Iterator[Partitioner]:
        """Yield the partitioners of the pipelines that were started."""
        for _, member in self._members:
            pipeline = member.awake if isinstance(member, StreamingExecution) else None
            if pipeline is not None and pipeline.partitioner is not None:
                yield pipeline.partitioner
