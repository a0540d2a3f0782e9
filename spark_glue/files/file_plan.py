"""Plan of a job over stored events, as `spark_glue.files.pieces.plan` makes it: its pieces, and what tasks read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_glue.files.layout import SplitRange
from spark_glue.files.opening import Opener
from spark_glue.files.stored_events import FileFooters

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
    """Plan of a job over stored events.  It can be pickled; tasks evaluate its pieces.

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
