"""The command line (docs/reference/command_line.md): one module for each command, and modules that only these need."""

from cer_gpu.cli.group import main

__all__ = ["main"]
