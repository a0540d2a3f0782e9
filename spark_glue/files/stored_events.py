"""Facts of stored events from which a job is planned: files, their row groups, and what a query reads of them.

This module needs no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.errors import CerError


class DirectReadError(CerError):
    """Reason why tasks cannot read the files by themselves, so that Spark reads the rows."""


@dataclass(frozen=True)
class Scan:
    """Read of stored files, as a DataFrame or a user requests it.

    Attributes
    ----------
    paths : tuple of str
        The files: paths, or URIs, ascending.  Positions count the rows of the files in this order.
    schema : pyarrow.Schema
        The events as the query sees them, in the types that Spark has for them.
    stored : mapping from str to str
        The name that a column of the events has in the files, where that is another one.
    filters : tuple of pyarrow.compute.Expression
        Conditions on columns as they are stored; a row for which one is not true is no event.
    filter_columns : pyarrow.Schema
        Columns that the filters read, by their names in the files, in the types that Spark has for them.
    folders : tuple of str
        Columns (by their names in the files) whose values are encoded in folders named ``column=value``.
    bucket_by : tuple of str
        Columns by whose hash the rows are distributed to buckets, each in files of its own; empty if there are no
        buckets.
    options : mapping
        Settings of file systems, such as Hadoop's ("fs.s3a.access.key").
    null_if_lacking : bool
        True if a column that a Parquet file lacks is NULL there, as in Spark; False if that is an error.
    values : mapping from str to tuple of (str, Any)
        Values of the columns `folders` of each file by its path, or empty if its folders tell them.
    deleted : mapping from str to ndarray of int64
        Numbers of the deleted rows of files, ascending, by their paths.
    """

    paths: tuple[str, ...]
    schema: pa.Schema
    stored: Mapping[str, str] = field(default_factory=dict)
    filters: tuple[pc.Expression, ...] = ()
    filter_columns: pa.Schema = field(default_factory=lambda: pa.schema([]))
    folders: tuple[str, ...] = ()
    bucket_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    null_if_lacking: bool = False
    values: Mapping[str, tuple[tuple[str, Any], ...]] = field(default_factory=dict, repr=False)
    deleted: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict, repr=False)

    @property
    def drops_rows(self) -> bool:
        """True if some rows of the files are no events."""
        return bool(self.filters or self.deleted)


@dataclass(frozen=True, slots=True)
class File:
    """Stored file.

    Attributes
    ----------
    path
    size
        In bytes.
    stamp
        Time of its last change in nanoseconds, or 0: it is not known.
    first
        Number of its first row, over all files in the order of their paths.
    n_rows
    values : tuple of (str, Any)
        Values of the columns encoded in its folders, as Python objects; None for NULL.
    bucket : int or None
        Number of the bucket that its rows belong to.
    lacks : tuple of str
        Columns that it has not, by their names in other files.
    """

    path: str
    size: int
    stamp: int
    first: int
    n_rows: int
    values: tuple[tuple[str, Any], ...] = ()
    bucket: int | None = None
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Row group of a Parquet file, or record batch of an Arrow IPC file.

    Attributes
    ----------
    file
        Index of its file.
    number
        Its number in the file.
    first_row
        Number of its first row in the file.
    n_rows
    low, high
        Least and greatest value of the first column of the order, as integers that ascend with it, in the unit of the
        column of `Scan.schema` (microseconds of a timestamp, days of a date); None if there is no row, or none that is
        not NULL.
    n_nulls
        Number of rows whose value of that column is NULL.
    types : (str, str) or None
        Bounds of the column of types, or None if unknown.
    """

    file: int
    number: int
    first_row: int
    n_rows: int
    low: int | None
    high: int | None
    n_nulls: int
    types: tuple[str, str] | None = None


@dataclass(frozen=True)
class FileFooters:
    """Files of a scan with their row groups.

    Attributes
    ----------
    scan : Scan
    files : tuple of File
        In the order of `Scan.paths`.
    groups : tuple of Group
        In the order of files and of rows; groups without rows are left out.
    """

    scan: Scan
    files: tuple[File, ...]
    groups: tuple[Group, ...]

    @property
    def n_rows(self) -> int:
        """Number of rows, before filters."""
        return sum(file.n_rows for file in self.files)
