"""``cer-gpu completion``: the script for a shell that completes command lines."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


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
