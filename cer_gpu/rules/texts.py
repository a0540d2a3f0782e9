"""Rules in files of texts: a file is a query, which says nothing of itself but its name."""

from __future__ import annotations

from pathlib import Path

from cer_gpu.ceql.query_file import read_query_file
from cer_gpu.rule import Rule
from cer_gpu.rules.found import RulesFound


def read_text(path: Path, name: str) -> RulesFound:
    """Read a file whose language its text tells."""
    return RulesFound([Rule(name, read_query_file(path), file=str(path))])


def read_eql(path: Path, name: str) -> RulesFound:
    """Read a file of EQL."""
    return RulesFound([Rule(name, read_query_file(path), language="eql", file=str(path))])
