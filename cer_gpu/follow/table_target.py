"""A table as the target of a live source: the rows of a step are appended by one commit, which tells the step.

The rows are first a file in the folder of the state, in the types of the table.  When the step is committed they are
published: the table is asked for the last step of this state that it has, and the rows are appended unless they are
there.  The commit that appends them tells its step, too: publishing again changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cer_gpu.errors import CheckpointError, OptionError
from cer_gpu.follow.targets import LiveTarget, last_published
from cer_gpu.io.sinks import Sink
from cer_gpu.io.stores import map_local
from cer_gpu.io.tables.names import TableName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class TableTarget(LiveTarget):
    """Table that gets the rows of each step by one commit.

    Parameters
    ----------
    name
        ``delta:PATH`` or ``iceberg:CATALOG.NAMESPACE.TABLE``.
    state
        Folder of the state.

    Raises
    ------
    OptionError
        When it is no table to append to.
    """

    def __init__(self, name: str, state: Path) -> None:
        given = TableName.parse(name)
        if given is None or given.snapshot is not None:
            raise OptionError(f"{name}: expected a table to append to: delta:PATH or iceberg:CATALOG.NAMESPACE.TABLE")
        self.out: Path = state
        self.format: str = "arrow"
        self.usual: Path | None = None
        self.state: Path = state
        self._name = given
        self._application = f"cer-gpu:{os.path.realpath(state)}"

    @property
    def facts(self) -> dict[str, Any]:
        """The table."""
        return {"-o": self.identity}

    @property
    def identity(self) -> str:
        """The table, by which it is told from others."""
        place = self._name.place
        if self._name.kind == "delta" and "://" not in place:
            place = os.path.realpath(place)
        return str(TableName(self._name.kind, place))

    @property
    def header(self) -> dict[str, Any]:
        """The name by which the table knows this state, also when its folder is moved."""
        return {"application": self._application}

    def check_new(self) -> None:
        """Refuse a table that has rows of a state that was in this folder."""
        step = self._committed()
        if step:
            raise OptionError(
                f"{self._name}: has the rows of {step:,} steps of a state in {self.state}, which is not there\n"
                "hint: restore the folder from a copy; or name another folder, and rows that the table has come again"
            )

    def resume(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Refuse a table that has other steps than the log."""
        header, *steps = entries
        self._application = header["application"]
        told, there = last_published(steps), self._committed()
        if there == told:
            return
        waiting = bool(steps) and told == steps[-1]["step"] and self.rows_of(steps[-1]) is not None
        if waiting and there == last_published(steps[:-1]):
            return
        expected = f"those up to step {told:,}" if told else "none"
        raise CheckpointError(
            f"{self._name}: expected the rows of the state {self.state}, {expected}, and found "
            f"{f'those up to step {there:,}' if there else 'none'}\n"
            "hint: the state or the table is an older copy, or the state was used in two places: restore both as they "
            "were at one time, or begin anew, with another folder and another table"
        )

    def _committed(self) -> int:
        from cer_gpu.io.tables.table_sinks import committed_step

        return committed_step(str(self._name), self._application) or 0

    def published(self, step: int) -> str:
        """Return the name of the table."""
        return str(self._name)

    def publish(self, entry: Mapping[str, Any]) -> None:
        """Append the rows, unless the table has them."""
        from cer_gpu.io.tables.table_sinks import append_once

        pending = self.rows_of(entry)
        if pending is None:
            return
        with map_local(pending) as file, pa.ipc.open_file(file) as rows:  # nobody else can cut it short
            batches = (rows.get_batch(i) for i in range(rows.num_record_batches))
            append_once(str(self._name), rows.schema, batches, (self._application, entry["step"]))
        pending.unlink()

    @contextmanager
    def writing(self, step: int, schema: pa.Schema) -> Iterator[Sink]:
        """Yield the sink for the rows of a step, which get the types of the table: what is committed fits it."""
        from cer_gpu.io.tables.table_sinks import fitting

        stored, fitted = fitting(str(self._name), schema)
        with super().writing(step, stored) as sink:
            yield _Fitting(sink, fitted)


class _Fitting:
    """Sink of rows that get the types of a table."""

    def __init__(self, sink: Sink, fitted: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        self._sink, self._fitted = sink, fitted

    def write(self, batch: pa.RecordBatch) -> None:
        self._sink.write(self._fitted(batch))
