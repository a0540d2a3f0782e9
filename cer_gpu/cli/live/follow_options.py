"""Options of ``cer-gpu run --follow``."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, cast

import click

from cer_gpu.cli.command_line import Command
from cer_gpu.cli.shared_options import Decorator, complete_files
from cer_gpu.follow.folder_watcher import ORDERS

POLL_SECONDS = 1.0
"""Seconds between two polls of the folder."""
SETTLE_SECONDS = 5.0
"""Seconds without a change after which a file counts as complete."""

_OPTIONS = (
    click.option(
        "--follow",
        metavar="DIR",
        shell_complete=complete_files,
        help="Read files as they appear in this folder, instead of EVENTS; OUT is a folder of part files, "
        "or a .jsonl file that grows. The next run resumes where this one ended.",
    ),
    click.option("--once", is_flag=True, help="With --follow: read the files that are there, then stop."),
    click.option(
        "--poll",
        type=click.FloatRange(min=0.01),
        metavar="SECONDS",
        help=f"With --follow: polling interval.  [default: {POLL_SECONDS:g}]",
    ),
)
_SKIPPING = "Skip files that cannot be read, with a note; with --follow also those that do not fit the schema."
_OF_FILES = ("settle", "order", "schema_of", "skip_unreadable")
"""Command parameters that apply only to a folder of files."""


def folder_options(where: str, *, skipping: str = "") -> tuple[Decorator, ...]:
    """Return the options that apply only to a folder of files; `where` begins their help.

    Parameters
    ----------
    where
    skipping
        Help for --skip-unreadable, if it applies to other events, too.
    """
    return (
        click.option(
            "--settle",
            type=click.FloatRange(min=0),
            metavar="SECONDS",
            help=f"{where}: read a file once it has not changed for this long; 0 if files appear by a rename.  "
            f"[default: {SETTLE_SECONDS:g}]",
        ),
        click.option(
            "--order", type=click.Choice(ORDERS), help=f"{where}: order of the files.  [default: {ORDERS[0]}]"
        ),
        click.option(
            "--schema-of",
            metavar="FILE",
            shell_complete=complete_files,
            help=f"{where}: file with the columns of all files.  [default: the first to arrive]",
        ),
        click.option(
            "--skip-unreadable",
            is_flag=True,
            help=skipping or f"{where}: skip files that cannot be read or do not fit the schema.",
        ),
    )


@dataclass(frozen=True)
class FollowOptions:
    """Options of a live source.

    Attributes
    ----------
    folder : str or None
        The live source, or None if there is none.
    once, skip_unreadable : bool
    poll, settle : float
    order : str
    schema_of : str or None
    option : str
        The option that names the source.
    """

    folder: str | None
    once: bool
    skip_unreadable: bool
    poll: float
    settle: float
    order: str
    schema_of: str | None
    option: str = "--follow"


def follow_options(command: Command) -> Command:
    """Add the options of a live source; the command gets them as `live`, a `FollowOptions`."""

    @functools.wraps(command)
    def wrapper(*args: Any, follow: str | None, **options: Any) -> Any:
        own = {name: options.pop(name) for name in ("once", "poll", *_OF_FILES)}
        if follow is None:
            for name, value in own.items():
                if name != "skip_unreadable" and value is not None and value is not False:
                    raise click.UsageError(f"--{name.replace('_', '-')} is an option of --follow DIR")
        for name, default in (("poll", POLL_SECONDS), ("settle", SETTLE_SECONDS), ("order", ORDERS[0])):
            own[name] = default if own[name] is None else own[name]
        return command(*args, live=FollowOptions(folder=follow, **own), **options)

    decorated: Any = wrapper
    for option in reversed((*_OPTIONS, *folder_options("With --follow", skipping=_SKIPPING))):
        decorated = option(decorated)
    return cast(Command, decorated)


def live_folder_options(command: Command) -> Command:
    """Add the options of a folder of files; the command gets those that are set as `of_files`, a dict."""

    @functools.wraps(command)
    def wrapper(*args: Any, **options: Any) -> Any:
        own = {name: options.pop(name) for name in _OF_FILES}
        of_files = {name: value for name, value in own.items() if value is not None and value is not False}
        return command(*args, of_files=of_files, **options)

    decorated: Any = wrapper
    for option in reversed(folder_options("With a folder")):
        decorated = option(decorated)
    return cast(Command, decorated)
