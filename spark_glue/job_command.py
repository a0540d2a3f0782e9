"""``python -m spark_glue job``: queries over what has come since the last run, from and to tables and files.

It runs in this process, without Spark: the parts that `cer-gpu run --follow --once` is made of, with tables.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from cer_gpu.cli.command_line import Command
from cer_gpu.cli.live.follow_options import POLL_SECONDS, SETTLE_SECONDS, FollowOptions
from cer_gpu.cli.live.following import check_apart, run_live
from cer_gpu.cli.options import (
    QueryOptions,
    complete_files,
    needs_time,
    query_options,
    reading_options,
    skip_invalid_option,
)
from cer_gpu.cli.query_arguments import read_queries
from cer_gpu.cli.signals import Signals
from cer_gpu.compile_progress import NOTICES
from cer_gpu.engine.options import DEVICES, EvaluationOptions
from cer_gpu.errors import OptionError
from cer_gpu.follow.folder_watcher import ORDERS, FolderWatcher, LiveSource
from cer_gpu.follow.tables import TableArrivals, TableTarget
from cer_gpu.follow.targets import LiveTarget, live_target
from cer_gpu.io.sinks import SINK_FORMATS
from cer_gpu.io.tables.names import is_table_name
from cer_gpu.io.tables.opening import table_name_of
from cer_gpu.io.text_options import USUAL, TextOptions
from cer_gpu.order.reorder_buffer import LATE
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.rules.alerts import ALERTS


def _options_of_files(command: Command) -> Command:
    """Add the options that only a folder of files has."""
    made = command
    for option in (
        click.option(
            "--skip-unreadable", is_flag=True, help="Skip files of the folder that cannot be read or do not fit."
        ),
        click.option(
            "--schema-of",
            metavar="FILE",
            shell_complete=complete_files,
            help="File whose columns all files of the folder have.  [default: the first that arrives]",
        ),
        click.option(
            "--order", type=click.Choice(ORDERS), help=f"Order of the files of a folder.  [default: {ORDERS[0]}]"
        ),
        click.option(
            "--settle",
            type=click.FloatRange(min=0),
            metavar="SECONDS",
            help="Read a file of the folder once it has not changed for so long; 0 if all appear by a rename.  "
            f"[default: {SETTLE_SECONDS:g}]",
        ),
    ):
        made = option(made)
    return made


@click.command(
    "job",
    epilog="""\b
Examples:
  python -m spark_glue job --queries rules --input delta:/lake/events --time-column ts \\
      --state /var/lib/alerts -o delta:/lake/alerts
  python -m spark_glue job late.ceql --input /data/landing --state /var/lib/late -o iceberg:lake.flights.late
  */5 * * * * python -m spark_glue job --queries rules --input iceberg:lake.logs.events ... --no-progress

\b
The job runs in this process, without Spark; a run that finds another one of its
state at work ends with an error, and changes nothing.""",
)
@click.argument("query", required=False, shell_complete=complete_files)
@click.option(
    "--queries",
    metavar="FOLDER",
    shell_complete=complete_files,
    help="Folder of rules (*.ceql, *.eql, *.sql, *.toml, *.yml), instead of QUERY.",
)
@click.option(
    "--input",
    "place",
    required=True,
    metavar="EVENTS",
    shell_complete=complete_files,
    help="A folder in which files appear, or a table that grows: delta:PATH, iceberg:NAME.",
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
    help="A table (delta:PATH, iceberg:NAME), a folder of part files, or a .jsonl file that grows.",
)
@click.option("--format", "format_", type=click.Choice(SINK_FORMATS), help="Format of part files.  [default: parquet]")
@click.option(
    "--output",
    type=click.Choice([*OUTPUTS, ALERTS]),
    help="Content of a row.  [default: alerts if rules of --queries have levels, measures if SELECT has some, "
    "else positions]",
)
@query_options
@skip_invalid_option
@reading_options
@click.option("--lateness", metavar="TIME", help="Watermark delay: how late events may arrive, such as 5s or 200ms.")
@click.option(
    "--late",
    type=click.Choice(LATE),
    help="What to do with events that arrive later than --lateness.  [default: raise]",
)
@_options_of_files
@click.option(
    "--device", type=click.Choice(DEVICES), default="auto", show_default=True, help="Device that evaluates predicates."
)
@click.option("--no-progress", is_flag=True, help="Hide the line per step.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON on standard output.")
@click.pass_obj
def job_command(
    signals: Signals,
    query: str | None,
    queries: str | None,
    place: str,
    state: str,
    out: str,
    format_: str | None,
    output: str | None,
    compiling: QueryOptions,
    skip_invalid: bool,
    reading: TextOptions,
    lateness: str | None,
    late: str | None,
    settle: float | None,
    order: str | None,
    schema_of: str | None,
    skip_unreadable: bool,
    device: str,
    no_progress: bool,
    as_json: bool,
) -> int:
    """Find the complex events of QUERY in the events that have come to --input since the last run, and add them to OUT.

    QUERY is a file or the text itself; --queries takes all queries of a folder.

    The state keeps what began and may end later: all runs together find what one run over all events finds, each
    result once, whatever is killed meanwhile.
    """
    if (query is None) == (queries is None):
        raise click.UsageError("expected QUERY or --queries FOLDER" + ("" if query is None else ", and got both"))
    if as_json or no_progress:
        os.environ.setdefault(NOTICES, "off")
    given = read_queries(query, queries, compiling, skip_invalid=skip_invalid)
    needs_time(given.time_column, {"--lateness": lateness, "--late": late})
    alerts = given.raises_alerts if output is None else output == ALERTS
    if alerts and not given.is_set:
        raise click.UsageError("alerts are those of rules: --queries FOLDER")
    options = EvaluationOptions(
        device=device,
        output=None if alerts else output,
        lateness=lateness if late is None else lateness or "0",
        late=late or LATE[0],
    )
    arrivals: LiveSource
    table = table_name_of(place)
    if table is not None:
        if reading != USUAL:
            raise click.UsageError(
                f"options for reading text files are those of files, and --input is the table {place}"
            )
        own = {"--settle": settle, "--order": order, "--schema-of": schema_of, "--skip-unreadable": skip_unreadable}
        for name, value in own.items():
            if value not in (None, False):
                raise click.UsageError(f"{name} is an option of a folder of files, and --input is the table {place}")
        arrivals = TableArrivals(place, given.time_column)
    else:
        settle = SETTLE_SECONDS if settle is None else settle
        arrivals = FolderWatcher(place, settle, order or ORDERS[0], reading)
    live = FollowOptions(
        place,
        once=True,
        skip_unreadable=skip_unreadable,
        poll=POLL_SECONDS,
        settle=settle or 0,
        order=order or ORDERS[0],
        schema_of=schema_of,
        option="--input",
    )
    target = job_target(out, format_, state)
    if table is None or table.kind == "delta":
        check_apart(place if table is None else table.place, state, *_local_paths(out))
    elif arrivals.identity.startswith(f"{target.identity} "):
        raise OptionError(f"{out}: is the table from which the events come\nhint: another table")
    return run_live(
        given, live, options, arrivals, target, reading=reading, alerts=alerts, out=out, signals=signals,
        no_progress=no_progress, as_json=as_json,
    )  # fmt: skip


def job_target(out: str, format_: str | None, state: str) -> LiveTarget:
    """Return the target that a name or a path names, with a state in a folder.

    Raises
    ------
    OptionError
        When it is none that can grow, or the state cannot be there.
    """
    if "://" in state:
        raise OptionError(f"--state {state}: expected a folder of this machine, or one that is mounted")
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
