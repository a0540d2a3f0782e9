"""The command line: one module a command, and what only commands need (docs/command_line.md)."""

from cer_gpu.cli.group import main

__all__ = ["main"]
