"""Options by which queries are compiled, the same for every command: columns of types and times."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, cast

import click

from cer_gpu.cli.command_line import Command
from cer_gpu.columnar.clocks import TIME_UNITS

_OPTIONS = (
    click.option("--type-column", metavar="NAME", help="Column of event types.  [default: type]"),
    click.option("--no-type-column", is_flag=True, help="The stream's name (FROM) is the type of its events."),
    click.option("--time-column", metavar="NAME", help="Column of times, which never decrease."),
    click.option("--time-unit", type=click.Choice(list(TIME_UNITS)), help="Unit of an integer time column."),
)


@dataclass(frozen=True)
class QueryOptions:
    """Options by which queries are compiled.

    Attributes
    ----------
    type_column : str or None
        Column of event types; None: there is none.
    time_column, time_unit : str or None
    """

    type_column: str | None
    time_column: str | None
    time_unit: str | None

    def for_compiling(self) -> dict[str, Any]:
        """Return them as `cer_gpu.compile` takes them."""
        return {"type_column": self.type_column, "time_column": self.time_column, "time_unit": self.time_unit}


def query_options(command: Command) -> Command:
    """Add the options for compiling queries; the command gets them as `compiling`, a `QueryOptions`."""

    @functools.wraps(command)
    def taking(
        *args: Any,
        type_column: str | None,
        no_type_column: bool,
        time_column: str | None,
        time_unit: str | None,
        **given: Any,
    ) -> Any:
        if no_type_column and type_column is not None:
            raise click.UsageError("--type-column and --no-type-column exclude each other")
        types = None if no_type_column else type_column or "type"
        return command(*args, compiling=QueryOptions(types, time_column, time_unit), **given)

    made: Any = taking
    for option in reversed(_OPTIONS):
        made = option(made)
    return cast(Command, made)
