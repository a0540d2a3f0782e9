"""Command group of `cer-gpu`, and its entry point `main`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

import click
import pyarrow as pa
from click.shell_completion import get_completion_class

import cer_gpu
from cer_gpu.cli.check import check_command
from cer_gpu.cli.columns import columns
from cer_gpu.cli.command_line import Commands, run_commands
from cer_gpu.cli.explain import explain_command
from cer_gpu.cli.explore import explore_command
from cer_gpu.cli.forecast import forecast_command
from cer_gpu.cli.lsp import lsp_command
from cer_gpu.cli.report_command import report
from cer_gpu.cli.run_command import run_command
from cer_gpu.cli.shared_options import with_sort
from cer_gpu.cli.test import test_command
from cer_gpu.cli.warm import warm_command


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line with the arguments of this process, or with `args`; see `run_commands`."""
    arguments = sys.argv[1:] if args is None else args
    if args is None:
        _spare_pandas()
    return run_commands(cli, "cer-gpu", with_sort(arguments), promptly=args is None)


class _WithoutPandas(MetaPathFinder):
    """A finder that hides pandas."""

    def find_spec(self, name: str, path: object, target: ModuleType | None = None) -> None:
        """Raise ModuleNotFoundError for pandas, and return None for other modules."""
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _spare_pandas() -> None:
    """Prevent pyarrow from importing pandas, which takes a quarter of a second and is not needed by any command."""
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


@click.command(
    epilog="""\b
Examples:
  eval "$(cer-gpu completion bash)"
  cer-gpu completion zsh > ~/.zfunc/_cer-gpu
  cer-gpu completion fish > ~/.config/fish/completions/cer-gpu.fish"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the completion script for SHELL.

    It completes the commands, options and files of cer-gpu.
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    click.echo(completion_class(context.find_root().command, {}, "cer-gpu", "_CER_GPU_COMPLETE").source())
    return 0


for _command in (
    run_command,
    check_command,
    test_command,
    columns,
    report,
    explain_command,
    explore_command,
    forecast_command,
    lsp_command,
    completion,
    warm_command,
):
    cli.add_command(_command)
