"""The command line (docs/reference/command_line.md): one module for each command, and shared modules."""

from cer_gpu.cli.group import main

__all__ = ["main"]
