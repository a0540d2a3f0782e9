"""The command line: one module a command, and what only commands need (docs/command_line.md)."""

from cer_gpu.cli.commands import main

__all__ = ["main"]
