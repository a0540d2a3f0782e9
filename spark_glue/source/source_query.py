"""Query of the data source "cer" over its files: the schema of its results, and the pieces that tasks evaluate.

This module needs PySpark for the types of Spark only, and no session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cer_gpu.columnar.fields import columns_with
from cer_gpu.compilation import MISSING_IN_RULES, compile_member
from cer_gpu.errors import OptionError, QueryTypeError, did_you_mean
from cer_gpu.rules.rule_set import compile_rules
from spark_glue import schema as types_of
from spark_glue.distribution import choose_distribution
from spark_glue.files.file_plan import FilePlan
from spark_glue.files.footers import find_footers
from spark_glue.files.opening import Opener
from spark_glue.files.pieces import plan
from spark_glue.files.scan import scan_of_paths
from spark_glue.files.stored_events import DirectReadError, Scan
from spark_glue.source.source_options import SourceRequest
from spark_glue.work import Work, holds_times, work_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class StoredQuery:
    """Compiled query, or several, over stored files.

    Attributes
    ----------
    asked : SourceRequest
    work : Work
        With the output that makes the rows with the least work: as asked for, but "positions" where "events" would be
        made to be dropped.
    scan : Scan
    opener : Opener
    schema : pyarrow.Schema
        The columns of the result that are kept, in the types of Spark.
    """

    request: SourceRequest
    work: Work
    scan: Scan
    opener: Opener
    schema: pa.Schema

    def keeping(self, wanted: StructType) -> StoredQuery:
        """Return the query with the columns of another schema, such as that of a table, alone.

        Raises
        ------
        QueryTypeError
            If it names a column that the results do not have, or one of another type.
        """
        whole = self.work.output_schema(self.scan.schema)
        kept = []
        for field in types_of.to_arrow(wanted):
            if field.name not in whole.names:
                hint = did_you_mean(field.name, whole.names, "columns")
                raise QueryTypeError(
                    f"the schema has a column {field.name!r}, which the results do not have", hint=hint
                )
            own = whole.field(field.name)
            if not _alike(own.type, field.type):
                raise QueryTypeError(
                    f"column {field.name!r} of the results is of type {own.type}, and the schema declares {field.type}",
                    hint="a table is to be created anew if its files are of other types by now",
                )
            kept.append(field)
        dropped = self.work.output == "events" and all(field.name != "events" for field in kept)
        work = replace(self.work, output="positions") if dropped else self.work
        return replace(self, work=work, schema=pa.schema(kept))

    def plan(self, parallelism: int) -> FilePlan:
        """Read the footers of the files, and return the pieces that tasks evaluate.

        Parameters
        ----------
        parallelism
            Number of tasks unless the options say another.

        Raises
        ------
        OptionError
            If the distribution is not exact for the query, or tasks cannot read the files by themselves.
        EventsError
            If a file cannot be read.
        """
        order = self.request.order_by
        try:
            tops = columns_with(self.scan.schema, [*self.work.columns(self.scan.schema), *order])
            found = find_footers(self.scan, self.work.type_column, order[0], columns=list(tops), opener=self.opener)
            return plan(found, self.work, order, self.request.distribution, self.request.tasks or parallelism)
        except DirectReadError as error:
            raise OptionError(
                f"the data source 'cer' cannot read these events: {error}\n"
                "hint: spark_glue.match(spark.read.parquet(...), query, order_by=...) reads them as rows of Spark"
            ) from error


def stored_query(request: SourceRequest) -> StoredQuery:
    """Compile the queries that options ask for, and check them against the schema of their files.  No event is read.

    Raises
    ------
    CerError
        If the query is wrong or does not fit the files, a file cannot be read, or an option names a column that there
        is not.
    """
    opener = Opener(request.store)
    scan = scan_of_paths(request.paths, opener)
    work = work_asked(request, scan.schema)
    choose_distribution(work, request.distribution)
    whole = types_of.to_arrow(types_of.to_spark(work.output_schema(scan.schema)))
    stored = StoredQuery(request, work, scan, opener, whole)
    return stored.keeping(types_of.to_spark(_projected_schema(whole, request.columns))) if request.columns else stored


def work_asked(request: SourceRequest, schema: pa.Schema) -> Work:
    """Compile the queries that options ask for, and check them against the schema of the events.

    Raises
    ------
    CerError
        If a query is wrong or does not fit the events, or an option names a column that there is not.
    """
    for name in (*request.order_by, *filter(None, [request.time_column])):
        if name not in schema.names:
            hint = did_you_mean(name, schema.names, "columns")
            option = "orderBy" if name in request.order_by else "timeColumn"
            raise QueryTypeError(f"the option {option} names {name!r}, which the events do not have", hint=hint)
    options: dict[str, Any] = {
        "type_column": request.type_column,
        "time_column": request.time_column or _time_of(request, schema),
        "time_unit": request.time_unit,
        "schema": schema,
    }
    given: Any = request.query
    if isinstance(given, Mapping):
        query: Any = compile_rules(given, missing_fields=MISSING_IN_RULES, **options)
    else:
        query = compile_member(given, **options)
    return work_of(query, request.output)


def _time_of(request: SourceRequest, schema: pa.Schema) -> str | None:
    """Return the first column of the order where it holds times, or integers of a unit that is told."""
    name = request.order_by[0]
    return name if holds_times(schema.field(name).type) or request.time_unit is not None else None


def _projected_schema(whole: pa.Schema, columns: tuple[str, ...]) -> pa.Schema:
    for name in columns:
        if name not in whole.names:
            hint = did_you_mean(name, whole.names, "columns")
            raise OptionError(f"the option columns names {name!r}, which the results do not have\nhint: {hint}")
    return pa.schema([whole.field(name) for name in columns])


def _alike(own: pa.DataType, other: pa.DataType) -> bool:
    """Return True for types that are one type of Spark, whether or not they allow NULL inside."""
    simple = (types_of.to_spark(pa.schema([("x", kind)]))[0].dataType.simpleString() for kind in (own, other))
    first, second = simple
    return first == second
