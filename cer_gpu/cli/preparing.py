"""Commands that prepare a machine: ``cer-gpu warm`` compiles the loops, and ``cer-gpu completion`` is for shells."""

from __future__ import annotations

import time

import click
from click.shell_completion import get_completion_class

from cer_gpu.backend.evaluation import evaluate_events
from cer_gpu.backend.jit import folder_of
from cer_gpu.cli.command_line import show_text
from cer_gpu.cli.progress import WarmingBar
from cer_gpu.cli.tally import counted
from cer_gpu.warming import N_KINDS, warm


@click.command(
    "warm",
    epilog="""\b
Examples:
  cer-gpu warm
  NUMBA_CACHE_DIR=/opt/cer-gpu cer-gpu warm  # while an image is built""",
)
def warm_up() -> int:
    """Compile the loops ahead of the first run.

    These are the loops of all usual kinds of queries, cached for the processor of this machine. The last line names
    the folder.
    """
    begun = time.perf_counter()
    n_compiled = 0
    with WarmingBar(N_KINDS) as bar:
        for warmed in warm():
            n_compiled += warmed.n_compiled
            said = f"{counted(warmed.n_compiled, 'function')} compiled" if warmed.n_compiled else "kept already"
            show_text(f"{warmed.name}: {said}")
            bar.advance()
    taken = time.perf_counter() - begun
    folder = folder_of(evaluate_events)
    show_text(f"{counted(n_compiled, 'function')} compiled in {taken:.1f} s; the loops are kept in {folder}")
    return 0


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
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(context.find_root().command, {}, "cer-gpu", "_CER_GPU_COMPLETE").source())
    return 0
