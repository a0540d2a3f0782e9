"""The command line: one module for each command, and modules that only commands need (docs/reference/command_line.md)."""

from cer_gpu.cli.group import main

__all__ = ["main"]
