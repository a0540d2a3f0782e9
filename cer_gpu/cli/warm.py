"""``cer-gpu warm``: compile the loops ahead of the first run."""

from __future__ import annotations

import time

import click

from cer_gpu.backend.evaluation import evaluate_events
from cer_gpu.backend.jit import folder_of
from cer_gpu.cli.command_line import show_text
from cer_gpu.cli.progress_bar import WarmingBar
from cer_gpu.printable import counted
from cer_gpu.warming import N_KINDS, warm


@click.command(
    "warm",
    epilog="""\b
Examples:
  cer-gpu warm
  NUMBA_CACHE_DIR=/opt/cer-gpu cer-gpu warm  # while an image is built""",
)
def warm_command() -> int:
    """Compile the loops ahead of the first run.

    These are the loops of all usual kinds of queries, cached for the processor of this machine. The last line names
    the folder.
    """
    begun = time.perf_counter()
    n_compiled = 0
    with WarmingBar(N_KINDS) as bar:
        for warmed in warm():
            n_compiled += warmed.n_compiled
            said = f"{counted(warmed.n_compiled, 'function')} compiled" if warmed.n_compiled else "already cached"
            show_text(f"{warmed.name}: {said}")
            bar.advance()
    taken = time.perf_counter() - begun
    folder = folder_of(evaluate_events)
    show_text(f"{counted(n_compiled, 'function')} compiled in {taken:.1f} s; cached in {folder}")
    return 0
