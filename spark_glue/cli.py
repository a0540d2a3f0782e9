"""The command line of jobs on Spark: ``python -m spark_glue`` (docs/reference/spark.md)."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

import cer_gpu
from cer_gpu.cli.command_line import Commands, run_commands, say, say_errors, say_notes, show_text
from cer_gpu.cli.event_arguments import Streams
from cer_gpu.cli.query_arguments import QueryArguments, WrongQueries, read_one_or_folder
from cer_gpu.cli.shared_options import (
    CommandOptions,
    QueryOptions,
    optional_query_argument,
    output_of_rows,
    queries_option,
    query_options,
    run_options,
    skip_invalid_option,
)
from cer_gpu.cli.signals import Signals
from cer_gpu.engine.evaluation_options import RAISE, SKIP, OverridableDefault
from cer_gpu.errors import CerError, OptionError
from cer_gpu.rules.alerts import ALERTS
from cer_gpu.rules.rule_set import RuleSet, analyse_rule
from spark_glue.archive import package
from spark_glue.distribution import DISTRIBUTIONS, SOURCES, choose_distribution
from spark_glue.errors import plain_errors
from spark_glue.job import INPUTS, read
from spark_glue.job import run as run_job
from spark_glue.job_command import job_command
from spark_glue.local_session import session
from spark_glue.match import check_order, explain
from spark_glue.result import RESULT_FORMATS
from spark_glue.watch import in_another_thread
from spark_glue.work import work_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from cer_gpu import QuerySet
    from cer_gpu.evaluable import CompiledQuery


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line with the arguments of this process, or with `args`; see `run_commands`."""
    return run_commands(commands, "spark_glue", args)


_distribution_option = click.option(
    "--distribution",
    type=click.Choice(DISTRIBUTIONS),
    default="auto",
    show_default=True,
    help="How events are distributed to tasks.",
)
_source_option = click.option(
    "--source",
    type=click.Choice(SOURCES),
    default="auto",
    show_default=True,
    help="Whether tasks read the files directly, or Spark sends them rows.",
)
_row_numbers_option = click.option(
    "--row-numbers", is_flag=True, help="Report row numbers as positions also of rows that Spark sends; may sort twice."
)
_tasks_option = click.option(
    "--tasks", type=click.IntRange(min=1), metavar="N", help="Number of tasks.  [default: one per core]"
)
_cores_option = click.option(
    "--cores", default="2", show_default=True, metavar="N", help="Cores of a local session; * for all."
)
_config_option = click.option(
    "--conf", "config", multiple=True, metavar="NAME=VALUE", help="Setting of a local session; may be repeated."
)
_format_option = click.option(
    "--format", "format_", type=click.Choice(INPUTS), default="parquet", show_default=True, help="Format of the input."
)
_read_option = click.option(
    "--read-option",
    "read_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of Spark's reader; may be repeated.",
)
_schema_option = click.option(
    "--schema",
    metavar="TEXT",
    help="Schema of the input, such as 'type STRING, ts TIMESTAMP'.  [default: inferred by Spark]",
)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  python -m spark_glue run late.ceql --input flights.parquet --order-by ts -o found
  python -m spark_glue explain late.ceql
  python -m spark_glue job --queries rules --input delta:/lake/events --time-column ts --state /var/lib/alerts -o alerts
  python -m spark_glue package cer_gpu.zip
  spark-submit --py-files cer_gpu.zip spark_glue/__main__.py run late.ceql --input s3a://... --order-by ts -o s3a://...""",
)
@click.version_option(cer_gpu.__version__, prog_name="spark_glue", message="%(prog)s %(version)s")
def commands() -> None:
    """Find the matches of queries in stored events, on Spark."""


@commands.command(
    "run",
    epilog="""\b
Examples:
  python -m spark_glue run late.ceql --input flights.parquet --order-by ts -o found
  python -m spark_glue run late.ceql --input day1.csv --input day2.csv --format csv \\
      --read-option delimiter=';' --order-by ts --order-by id -o found --out-format json
  python -m spark_glue run late.ceql --input events --format table --order-by ts -o found \\
      --output count --partition-by tailnum --overwrite
  python -m spark_glue run --queries rules --input logs --order-by ts -o found --partition-by query

\b
The folder OUT is written completely at the end, or not at all. With spark-submit, the
session has its settings, and --cores and --conf have no effect.""",
)
@optional_query_argument
@queries_option
@click.option(
    "--input",
    "inputs",
    multiple=True,
    required=True,
    metavar="PATH",
    help="File, folder or table name; may be repeated.",
)
@_format_option
@_read_option
@_schema_option
@click.option(
    "--order-by",
    "order_by",
    multiple=True,
    required=True,
    metavar="NAME",
    help="Column that orders the stream; may be repeated.",
)
@click.option("-o", "out", required=True, metavar="OUT", help="Output folder.")
@click.option(
    "--out-format", type=click.Choice(RESULT_FORMATS), default="parquet", show_default=True, help="Output format."
)
@click.option("--partition-by", multiple=True, metavar="NAME", help="Result columns that become folders.")
@click.option("--overwrite", is_flag=True, help="Replace OUT once the new one is complete.")
@_distribution_option
@_source_option
@_row_numbers_option
@_tasks_option
@query_options
@skip_invalid_option
@_cores_option
@_config_option
@run_options("output", "as_json", "no_progress", output=output_of_rows(usual="events"))
@click.pass_obj
def _run_command(
    signals: Signals,
    query: str | None,
    queries: str | None,
    inputs: tuple[str, ...],
    format_: str,
    read_options: tuple[str, ...],
    schema: str | None,
    order_by: tuple[str, ...],
    out: str,
    out_format: str,
    partition_by: tuple[str, ...],
    overwrite: bool,
    distribution: str,
    source: str,
    row_numbers: bool,
    tasks: int | None,
    compiling: QueryOptions,
    skip_invalid: bool,
    cores: str,
    config: tuple[str, ...],
    run: CommandOptions,
) -> int:
    """Find the matches of QUERY in the events of --input, and write them to OUT.

    QUERY is a file or the text itself; --queries takes all queries of a folder.

    The first column of --order-by is the time column, if it holds times.
    """
    query_args = read_one_or_folder(query, queries, compiling, skip_invalid=skip_invalid)
    output = run.evaluation.output or (ALERTS if query_args.raises_alerts else None)
    settings, options = _pairs(config, "--conf"), _pairs(read_options, "--read-option")
    # check the query before starting Spark, which takes seconds
    compiled = _compiled(query_args, _named_time(query_args) or order_by[0])
    if compiled is None:
        return 1
    choose_distribution(work_of(compiled, output), distribution, order_by[0])
    with _session(cores, settings) as spark, plain_errors():
        events = read(spark, inputs, format_, options, schema)
        compiled = _compiled_for(events, query_args, order_by)
        if compiled is None:
            return 1
        try:
            summary = run_job(
                events,
                compiled,
                out,
                order_by=order_by,
                distribution=distribution,
                tasks=tasks,
                output=output,
                source=source,
                row_numbers=row_numbers,
                format=out_format,
                partition_by=partition_by,
                overwrite=overwrite,
                show_progress=not run.no_progress,
            )
        except CerError as error:
            say_errors([error], None if query_args.is_set else query_args.rules[""].file)
            return 1
        signals.check()
    if run.as_json:
        click.echo(json.dumps(summary.to_dict()))
    else:
        say(str(summary))
        say_notes(query_args.notes)
    return 0


@commands.command(
    "explain",
    epilog="""\b
Examples:
  python -m spark_glue explain late.ceql
  python -m spark_glue explain late.ceql --input flights.parquet --order-by ts --tasks 8

\b
With --input, Spark starts and reads the footers of the files, not their rows.""",
)
@optional_query_argument
@queries_option
@click.option("--input", "inputs", multiple=True, metavar="PATH", help="Files, folders, or a table's name.")
@_format_option
@_read_option
@_schema_option
@click.option("--order-by", "order_by", multiple=True, metavar="NAME", help="Columns that order the stream.")
@run_options("output", output=output_of_rows(usual="events"))
@_distribution_option
@_source_option
@_tasks_option
@query_options
@skip_invalid_option
@_cores_option
@_config_option
def _explain_command(
    query: str | None,
    queries: str | None,
    inputs: tuple[str, ...],
    format_: str,
    read_options: tuple[str, ...],
    schema: str | None,
    order_by: tuple[str, ...],
    run: CommandOptions,
    distribution: str,
    source: str,
    tasks: int | None,
    compiling: QueryOptions,
    skip_invalid: bool,
    cores: str,
    config: tuple[str, ...],
) -> int:
    """Say how the events of QUERY would be distributed to tasks, and why; Spark is needed only with --input."""
    query_args = read_one_or_folder(query, queries, compiling, skip_invalid=skip_invalid)
    output = run.evaluation.output or (ALERTS if query_args.raises_alerts else None)
    if bool(inputs) != bool(order_by):
        raise click.UsageError("expected --input and --order-by together")
    # as in `run`, the first column of the order is the time column
    compiled = _compiled(
        query_args, _named_time(query_args) or (order_by[0] if order_by else query_args.time_column or "time")
    )
    if compiled is None:
        return 1
    if not inputs:
        show_text(explain(compiled, distribution))
        return 0
    choose_distribution(work_of(compiled, output), distribution, order_by[0])
    with _session(cores, _pairs(config, "--conf")) as spark, plain_errors():
        events = read(spark, inputs, format_, _pairs(read_options, "--read-option"), schema)
        compiled = _compiled_for(events, query_args, order_by)
        if compiled is None:
            return 1
        show_text(explain(compiled, distribution, events, order_by, tasks=tasks, output=output, source=source))
    return 0


def _compiled(query_args: QueryArguments, time_column: str | None) -> CompiledQuery | QuerySet | None:
    """Compile for a time column; return None after errors, which were printed."""
    query_args = replace(query_args, options=replace(query_args.options, time_column=time_column))
    if not query_args.is_set:
        rule = query_args.rules[""]
        query, errors = analyse_rule(rule, **query_args.compiling)
        if query is None:
            say_errors(errors, rule.file)
        compiled: CompiledQuery | None = query
        return compiled
    try:
        errors_in_set = RAISE if query_args.skipped is None else SKIP
        return RuleSet(
            query_args.compile(Streams({})), query_args.rules, query_args.skipped_files, errors=errors_in_set
        )
    except WrongQueries as wrong:
        query_args.say(wrong.errors)
        return None


def _named_time(query_args: QueryArguments) -> str | None:
    """Return the time column that an option names; that of a language, such as "@timestamp", is none."""
    return None if isinstance(query_args.time_column, OverridableDefault) else query_args.time_column


def _compiled_for(
    events: DataFrame, query_args: QueryArguments, order_by: Sequence[str]
) -> CompiledQuery | QuerySet | None:
    """Compile a query for events, the first column of whose order is the time column if it holds times.

    Return None if the query has errors, which are printed.
    """
    check_order(events.columns, order_by)
    kind = events.schema[order_by[0]].dataType
    time_column = _named_time(query_args)
    no_time = time_column is None and query_args.options.time_unit is None and not _is_time(kind)
    if time_column is None and not no_time:
        time_column = order_by[0]
    compiled = _compiled(query_args, time_column)
    if compiled is None and no_time:
        what = f"{order_by[0]!r}, the first column of --order-by, is {kind.simpleString()}, which is not a time type"
        say(f"({what}; --schema sets column types)")
    return compiled


@commands.command("package")
@click.argument("path", default="cer_gpu.zip")
def package_command(path: str) -> int:
    """Write the archive for --py-files, PATH (cer_gpu.zip)."""
    say(f"{package(path)}: for spark-submit --py-files")
    return 0


commands.add_command(job_command)


@contextmanager
def _session(cores: str, settings: dict[str, str]) -> Iterator[SparkSession]:
    """Yield the active session, or that of spark-submit, else a local one that ends with the block.

    The handler of SIGINT stays the same, although Spark would install its own.
    """
    if find_spec("pyspark") and _active() is not None:
        yield session()
        return
    handler = signal.getsignal(signal.SIGINT)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.getOrCreate()
    else:
        if not (cores == "*" or (cores.isdigit() and int(cores) > 0)):
            raise click.UsageError(f"--cores: expected a positive number or *, got {cores!r}")
        if sys.stderr.isatty():
            say("starting Spark ...")
        spark = session("cer_gpu", "*" if cores == "*" else int(cores), settings)
    signal.signal(signal.SIGINT, handler)
    try:
        yield spark
    finally:
        in_another_thread(spark.stop)


def _active() -> SparkSession | None:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _is_time(kind: DataType) -> bool:
    from pyspark.sql import types as st

    return isinstance(kind, st.TimestampType | st.TimestampNTZType | st.DateType | st.DayTimeIntervalType)


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise OptionError(f"{option} {text!r}: expected NAME=VALUE")
        pairs[name] = value
    return pairs
