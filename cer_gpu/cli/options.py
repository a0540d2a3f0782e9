"""Arguments and options that several commands of `cer-gpu` share."""

from __future__ import annotations

from collections.abc import Mapping

import click
from click.shell_completion import CompletionItem


def complete_files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the completion of a file name, which the shell does."""
    return [CompletionItem(incomplete, type="file")]


events_argument = click.argument("events", nargs=-1, required=True, shell_complete=complete_files)
query_argument = click.argument("query", shell_complete=complete_files)
sort_option = click.option("--sort", is_flag=True, help="Sort the events by time first.")
skip_wrong_option = click.option(
    "--skip-wrong", is_flag=True, help="Leave out rules of --queries that are wrong, or do not fit the events."
)
threads_option = click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Threads to use.  [default: chosen by the size of the input]",
)


def needs_time(time_column: str | None, given: Mapping[str, object]) -> None:
    """Raise UsageError for the first of the `given` options (value by name) that is set without a time column."""
    for option, value in given.items():
        if value and time_column is None:
            raise click.UsageError(f"{option} needs a time: --time-column")
