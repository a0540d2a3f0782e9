"""Plan of a job over stored events, as `spark_glue.files.pieces.plan` makes it: its pieces, and what tasks read."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_glue.files.layout import SplitRange
from spark_glue.files.opening import Opener
from spark_glue.files.stored_events import File, FileFooters
from spark_glue.sessions import short

if TYPE_CHECKING:
    from spark_glue.work import Work


@dataclass(frozen=True)
class Limits:
    """Bounds of what tasks read and hold.

    Attributes
    ----------
    buffered_rows
        Maximum rows to sort in memory, and of a window to buffer until its range begins.
    batch
        Most rows of a batch.
    gathered
        Fewest rows of a batch for the evaluation, if there are more: shorter ones are joined.
    memory
        Bytes that a sort on disk may hold.
    times_read
        Most times that the rows are read by all tasks of ranges together.
    """

    buffered_rows: int = 1 << 22
    batch: int = 1 << 20
    gathered: int = 1 << 16
    memory: int = 1 << 28
    times_read: int = 8


@dataclass(frozen=True)
class Part:
    """Work of some pieces.

    Attributes
    ----------
    work : Work
    columns : tuple of str
        Columns and fields that it reads.
    types : tuple of str or None
        Types of the events that it needs, if row groups without them can be left out; if None, all are read.
    sharded_by : str or None
        "ends": each of its pieces has its shard of the work; "keys": it evaluates its shard of the keys; None for all.
    n_pieces : int
    """

    work: Work
    columns: tuple[str, ...]
    types: tuple[str, ...] | None
    sharded_by: str | None
    n_pieces: int


@dataclass(frozen=True)
class Piece:
    """Stretches that one task evaluates, each by itself; they are streams of different keys if there are several.

    Attributes
    ----------
    split_ranges : tuple of SplitRange
    part : Part
    number : int
        Number among the pieces of its part.
    """

    split_ranges: tuple[SplitRange, ...]
    part: Part
    number: int

    @property
    def n_rows(self) -> int:
        """Number of rows in its row groups."""
        return sum(split_range.n_rows for split_range in self.split_ranges)


@dataclass(frozen=True)
class FilePlan:
    """Plan of a job over stored events.  Tasks get it as a `PackedPlan`, which pickle makes of it, and evaluate pieces.

    Attributes
    ----------
    footers : FileFooters
        The files, without their row groups.
    order : tuple of str
        Columns that order the stream.
    distribution, reason
        "range", "key" or "broadcast", and the reason for it.
    way
        Words on how a task finds its part.
    presorted : bool
        True if no two row groups overlap, so that no rows of different ones need a sort.
    in_order
        Description of how the rows are sorted.
    pieces : tuple of Piece
    schema : pyarrow.Schema
        Columns of the results.
    limits : Limits
    opener : Opener
    """

    footers: FileFooters
    order: tuple[str, ...]
    distribution: str
    reason: str
    way: str
    presorted: bool
    in_order: str
    pieces: tuple[Piece, ...]
    schema: pa.Schema
    limits: Limits
    opener: Opener

    @property
    def n_rows(self) -> int:
        """Number of rows in the files."""
        return self.footers.n_rows

    @property
    def n_pieces(self) -> int:
        """Number of pieces."""
        return len(self.pieces)

    @property
    def n_read(self) -> int:
        """Number of rows that all pieces read together, at most."""
        return sum(piece.n_rows for piece in self.pieces)

    @property
    def title(self) -> str:
        """Words on what is evaluated, and how."""
        work = self.pieces[0].part.work if self.pieces else None
        return f"{'' if work is None else short(work.text) + ': '}evaluate by {self.distribution}, reading files"

    def alone(self, number: int) -> tuple[FilePlan, Piece]:
        """Return a piece, and a plan with the files that it reads."""
        return self, self.pieces[number]

    def __reduce__(self) -> tuple[Callable[..., PackedPlan], tuple[Any, ...]]:
        """Pickle each piece by itself, with the files that it reads: a task unpacks one of them alone."""
        return PackedPlan, self._packed

    @cached_property
    def _packed(self) -> tuple[dict[str, Any], FileFooters, tuple[bytes, ...], tuple[tuple[bytes, int, int], ...]]:
        """Arguments of `PackedPlan`."""
        scan = self.footers.scan
        names = (field.name for field in fields(self) if field.name not in ("pieces", "footers"))
        common = {name: getattr(self, name) for name in names}
        by_identity: dict[int, bytes] = {}  # pieces of shards read the same
        parts: dict[int, bytes] = {}
        packed = []
        for piece in self.pieces:
            stretches = piece.split_ranges
            if id(stretches) not in by_identity:
                by_identity[id(stretches)] = pickle.dumps(self._with_files(stretches))
            if id(piece.part) not in parts:
                parts[id(piece.part)] = pickle.dumps(piece.part)
            packed.append((by_identity[id(stretches)], list(parts).index(id(piece.part)), piece.number))
        bare = FileFooters(replace(scan, paths=(), values={}, deleted={}), (), ())
        return common, bare, tuple(parts.values()), tuple(packed)

    def _with_files(
        self, stretches: tuple[SplitRange, ...]
    ) -> tuple[tuple[SplitRange, ...], tuple[File, ...], dict[str, Any]]:
        """Return stretches whose row groups count these files only, the files, and their deleted rows."""
        numbers = sorted({unit.file for stretch in stretches for unit in stretch.units})
        own = {number: i for i, number in enumerate(numbers)}
        files = tuple(self.footers.files[number] for number in numbers)
        renumbered = tuple(
            replace(stretch, units=tuple(replace(unit, file=own[unit.file]) for unit in stretch.units))
            for stretch in stretches
        )
        deleted = self.footers.scan.deleted
        return renumbered, files, {file.path: deleted[file.path] for file in files if file.path in deleted}


class PackedPlan:
    """Plan of a job over stored events, as tasks get it: pieces are bytes until they are evaluated.

    Parameters
    ----------
    common
        Attributes of the plan, without files and pieces.
    footers : FileFooters
        The scan, without files.
    parts
        The parts, pickled.
    packed
        For each piece: its stretches, files and deleted rows, pickled; the index of its part; and its number there.
    """

    def __init__(
        self,
        common: dict[str, Any],
        footers: FileFooters,
        parts: Sequence[bytes],
        packed: Sequence[tuple[bytes, int, int]],
    ) -> None:
        self._common, self._footers, self._pickled_parts, self._packed = common, footers, parts, packed

    @property
    def n_pieces(self) -> int:
        """Number of pieces."""
        return len(self._packed)

    @property
    def title(self) -> str:
        """Words on how the events are evaluated."""
        return f"evaluate by {self._common['distribution']}, reading files"

    @property
    def schema(self) -> pa.Schema:
        """Columns of the results."""
        schema: pa.Schema = self._common["schema"]
        return schema

    def alone(self, number: int) -> tuple[FilePlan, Piece]:
        """Return a piece, and a plan with the files that it reads."""
        packed, i, of_part = self._packed[number]
        stretches, files, deleted = pickle.loads(packed)
        footers = FileFooters(replace(self._footers.scan, deleted=deleted), files, ())
        return FilePlan(pieces=(), footers=footers, **self._common), Piece(
            stretches, _unpickled_part(self._pickled_parts[i]), of_part
        )


@lru_cache(maxsize=2)
def _unpickled_part(pickled: bytes) -> Part:
    """Return a part; the next tasks of a process get the same one, whose queries are ready: of a set, seconds."""
    part: Part = pickle.loads(pickled)
    return part
