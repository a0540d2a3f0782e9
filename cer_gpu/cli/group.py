"""Command group of `cer-gpu`, and its entry point `main`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

import click
import pyarrow as pa

import cer_gpu
from cer_gpu.cli.check import check_command
from cer_gpu.cli.columns import columns
from cer_gpu.cli.command_line import Commands, run_commands
from cer_gpu.cli.editor.lsp import lsp_command
from cer_gpu.cli.explain import explain_command
from cer_gpu.cli.forecasts.forecast import forecast_command
from cer_gpu.cli.options import with_sort
from cer_gpu.cli.preparing import completion, warm_up
from cer_gpu.cli.report import report
from cer_gpu.cli.run import run_command
from cer_gpu.cli.test import test_command


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line with the arguments of this process, or with `args`; see `run_commands`."""
    given = sys.argv[1:] if args is None else args
    if args is None:
        _spare_pandas()
    return run_commands(cli, "cer-gpu", with_sort(given), promptly=args is None)


class _WithoutPandas(MetaPathFinder):
    """A finder by which there is no pandas."""

    def find_spec(self, name: str, path: object, target: ModuleType | None = None) -> None:
        """Raise ModuleNotFoundError for pandas, and leave other modules to other finders."""
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _spare_pandas() -> None:
    """Have pyarrow not import pandas in this process: that takes a quarter of a second, and no command needs it."""
    if "pandas" not in sys.modules:
        finder = _WithoutPandas()
        sys.meta_path.insert(0, finder)
        try:
            pa.array([0])  # pyarrow looks for pandas once, here
        finally:
            sys.meta_path.remove(finder)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  cer-gpu run late.ceql flights.parquet --time-column ts
  cer-gpu run 'SELECT * FROM S WHERE A ; B+ ; C WITHIN 100 EVENTS' day1.csv day2.csv -o found.parquet
  cer-gpu report late.ceql flights.parquet --time-column ts -o late.html
  cer-gpu check late.ceql flights.parquet --time-column ts
  cer-gpu explain late.ceql --svg late.svg --time-column ts""",
)
@click.version_option(cer_gpu.__version__, prog_name="cer-gpu", message="%(prog)s %(version)s")
def cli() -> None:
    """Find the matches of queries in recorded events."""


for _command in (
    run_command,
    check_command,
    test_command,
    columns,
    report,
    explain_command,
    forecast_command,
    lsp_command,
    completion,
    warm_up,
):
    cli.add_command(_command)
