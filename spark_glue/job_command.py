"""``python -m spark_glue job``: queries over what has come since the last run, from and to tables and files.

It runs in this process, without Spark: the parts of `cer-gpu run --follow --once`, with tables.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from cer_gpu.cli.live.follow_options import POLL_SECONDS, SETTLE_SECONDS, FollowOptions, live_folder_options
from cer_gpu.cli.live.following import check_apart, run_live
from cer_gpu.cli.query_arguments import read_one_or_folder
from cer_gpu.cli.shared_options import (
    CommandOptions,
    QueryOptions,
    complete_files,
    optional_query_argument,
    output_of_rows,
    queries_option,
    query_options,
    reading_options,
    run_options,
    skip_invalid_option,
)
from cer_gpu.cli.signals import Signals
from cer_gpu.compile_progress import NOTICES
from cer_gpu.errors import OptionError
from cer_gpu.follow.folder_watcher import ORDERS, FolderWatcher, LiveSource
from cer_gpu.follow.tables import TableArrivals, TableTarget
from cer_gpu.follow.targets import LiveTarget, live_target
from cer_gpu.io.sinks import SINK_FORMATS
from cer_gpu.io.tables.names import is_table_name
from cer_gpu.io.tables.opening import table_name_of
from cer_gpu.io.text_options import USUAL, TextOptions
from cer_gpu.rules.alerts import ALERTS


@click.command(
    "job",
    epilog="""\b
Examples:
  python -m spark_glue job --queries rules --input delta:/lake/events --time-column ts \\
      --state /var/lib/alerts -o delta:/lake/alerts
  python -m spark_glue job late.ceql --input /data/landing --state /var/lib/late -o iceberg:lake.flights.late
  */5 * * * * python -m spark_glue job --queries rules --input iceberg:lake.logs.events ... --no-progress

\b
The job runs in this process, without Spark. A run whose state is in use by another
run ends with an error and changes nothing.""",
)
@optional_query_argument
@queries_option
@click.option(
    "--input",
    "place",
    required=True,
    metavar="EVENTS",
    shell_complete=complete_files,
    help="Folder in which files appear, or table that grows: delta:PATH, iceberg:NAME.",
)
@click.option(
    "--state",
    required=True,
    metavar="DIR",
    shell_complete=complete_files,
    help="Local folder for the state: what was read, and partial matches.",
)
@click.option(
    "-o",
    "out",
    required=True,
    metavar="OUT",
    shell_complete=complete_files,
    help="Table (delta:PATH, iceberg:NAME), folder of part files, or .jsonl file that grows.",
)
@click.option("--format", "format_", type=click.Choice(SINK_FORMATS), help="Format of part files.  [default: parquet]")
@query_options
@skip_invalid_option
@reading_options
@run_options("output", "lateness", "late", "device", "no_progress", "as_json", output=output_of_rows())
@live_folder_options
@click.pass_obj
def job_command(
    signals: Signals,
    query: str | None,
    queries: str | None,
    place: str,
    state: str,
    out: str,
    format_: str | None,
    run: CommandOptions,
    compiling: QueryOptions,
    skip_invalid: bool,
    reading: TextOptions,
    of_files: dict[str, Any],
) -> int:
    """Find the matches of QUERY in the events that arrived since the last run, and append them to OUT.

    QUERY is a file or the text itself; --queries takes all queries of a folder.

    The state keeps partial matches: all runs together find what one run over all events finds, each result once, even
    if a run is killed.
    """
    if run.as_json or run.no_progress:
        os.environ.setdefault(NOTICES, "off")
    query_args = read_one_or_folder(query, queries, compiling, skip_invalid=skip_invalid)
    run.check_time(query_args.time_column)
    output = run.evaluation.output
    alerts = query_args.raises_alerts if output is None else output == ALERTS
    if alerts and not query_args.is_set:
        raise click.UsageError("alerts need rules: --queries FOLDER")
    run = replace(run, evaluation=replace(run.evaluation, output=None if alerts else output))
    arrivals: LiveSource
    table = table_name_of(place)
    if table is not None:
        if reading != USUAL:
            raise click.UsageError(f"options for reading text files apply to files, and --input is the table {place}")
        for name in of_files:
            raise click.UsageError(
                f"--{name.replace('_', '-')} applies to a folder of files, and --input is the table {place}"
            )
        of_files = {"settle": 0}  # nothing waits
    usual: dict[str, Any] = {"settle": SETTLE_SECONDS, "order": ORDERS[0], "schema_of": None, "skip_unreadable": False}
    live = FollowOptions(place, once=True, poll=POLL_SECONDS, option="--input", **(usual | of_files))
    if table is not None:
        arrivals = TableArrivals(place, query_args.time_column)
    else:
        arrivals = FolderWatcher(place, live.settle, live.order, reading)
    target = job_target(out, format_, state)
    if table is None or table.kind == "delta":
        check_apart(place if table is None else table.place, state, *_local_paths(out))
    elif arrivals.identity.startswith(f"{target.identity} "):
        raise OptionError(f"{out} is the table that the events are read from\nhint: use another table")
    return run_live(query_args, live, run, arrivals, target, reading=reading, alerts=alerts, out=out, signals=signals)


def job_target(out: str, format_: str | None, state: str) -> LiveTarget:
    """Return the target that a name or a path names, with a state in a folder.

    Raises
    ------
    OptionError
        When it is none that can grow, or the state cannot be there.
    """
    if "://" in state:
        raise OptionError(f"--state {state}: expected a local or mounted folder")
    if not is_table_name(out):
        return live_target(out, format_, state)
    if format_ is not None:
        raise OptionError(f"--format {format_}: {out} is a table, which has its own format\nhint: leave it out")
    return TableTarget(out, Path(state))


def _local_paths(out: str) -> list[str]:
    """Return the path of results that lie in files of this machine."""
    table = table_name_of(out) if is_table_name(out) else None
    if table is None:
        return [out]
    return [table.place] if table.kind == "delta" and "://" not in table.place else []
