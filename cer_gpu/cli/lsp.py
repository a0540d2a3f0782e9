"""``cer-gpu lsp``: the language server, for editors."""

from __future__ import annotations

from typing import Any

import click

import cer_gpu
from cer_gpu.cli.shared_options import QueryOptions, complete_files, query_options
from cer_gpu.errors import OptionError

PYGLS_MISSING = "the language server needs pygls\nhint: pip install 'cer-gpu[lsp]'"


@click.command(
    "lsp",
    epilog="""\b
Examples:
  cer-gpu lsp
  cer-gpu columns flights.parquet --type-column type --json > flights.schema.json
  cer-gpu lsp --events flights.schema.json --time-column ts""",
)
@click.option(
    "--events",
    metavar="EVENTS",
    shell_complete=complete_files,
    help="Events, or a *.schema.json file, with the columns for queries that name no events in a comment.",
)
@query_options
def lsp_command(events: str | None, compiling: QueryOptions) -> int:
    """Serve an editor: errors, completion, meaning.

    It speaks the Language Server Protocol on standard input and output; an editor starts it. A query names its own
    events in a comment before it, such as -- events: flights.parquet (from the folder of the query).
    """
    if compiling.fields:
        raise click.UsageError("--pipeline and --columns are options of Sigma rules, which the server does not read")
    try:
        from cer_gpu.editing.server import query_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise OptionError(PYGLS_MISSING) from None
    options: dict[str, Any] = compiling.of_rules([], is_set=False)
    query_server(cer_gpu.__version__, options, events).start_io()
    return 0
