"""YAML of rules document by document: one that cannot be read stops no others of its file, and its place is named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from sigma.types import SigmaNumber, type_map

MAX_FLOAT_INTEGER = 2**53
"""Greatest integer up to which every integer is a float."""
MAX_INTEGER_DIGITS = 1_000
"""Most digits of an integer: no value of an event has as many."""
_BOUNDARY = re.compile(r"(?m)^(?:---|\.\.\.)(?=\s|\Z)")


class ExactInteger(int):
    """An integer of YAML that may be no float."""


class ExactNumber(SigmaNumber):
    """A number of pySigma for integers that are no floats, which pySigma would round."""

    def __post_init__(self, init_number: Any) -> None:
        """Take the integer."""
        self.number: int | float = int(init_number)


type_map[ExactInteger] = ExactNumber  # values of this class come from here alone


class RuleLoader(yaml.CSafeLoader):
    """The loader of rules: it refuses keys that stand twice, and keeps large integers as they are written."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a map; ConstructorError: a key stands twice, or is no plain value."""
        known = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            try:
                is_new = key not in known
            except TypeError:
                raise _at(key_node, "expected a plain key, found a list or a map") from None
            if not is_new:
                raise _at(key_node, f"the key {key!r} stands twice in a map")
            known.add(key)
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made

    def construct_exact_integer(self, node: yaml.ScalarNode) -> int:
        """Return an integer; ConstructorError: it has more digits than Python turns into a text."""
        if len(node.value) > MAX_INTEGER_DIGITS:
            raise _at(node, f"an integer of more than {MAX_INTEGER_DIGITS:,} digits")
        value: int = self.construct_yaml_int(node)
        return value if abs(value) <= MAX_FLOAT_INTEGER else ExactInteger(value)


RuleLoader.add_constructor("tag:yaml.org,2002:int", RuleLoader.construct_exact_integer)


def _at(node: yaml.Node, problem: str) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


@dataclass(frozen=True)
class UnreadDocument:
    """A document that cannot be read.

    Attributes
    ----------
    text : str
    error : yaml.YAMLError
        Its message names the document, counted from 1, and the line of the file.
    """

    text: str
    error: yaml.YAMLError


def read_documents(text: str) -> Iterator[Any]:
    """Yield the documents of a text that are not empty, those that cannot be read as `UnreadDocument`."""
    try:
        read = list(yaml.load_all(text, RuleLoader))
    except Exception:  # anything may come of a text
        yield from _one_by_one(text)
        return
    yield from (each for each in read if each is not None)


def _one_by_one(text: str) -> Iterator[Any]:
    number = 0
    for begin, part in _split_documents(text):
        n_lines = text.count("\n", 0, begin)
        if not part.strip().removeprefix("---").strip():
            continue
        number += 1
        try:
            for each in yaml.load_all("\n" * n_lines + part, RuleLoader):
                if each is not None:
                    yield each
        except Exception as error:
            lines = range(n_lines + part.startswith("---"), n_lines + part.rstrip().count("\n") + 1)
            yield UnreadDocument(part, yaml.YAMLError(f"document {number}, {_problem(error, lines)}"))


def _split_documents(text: str) -> Iterator[tuple[int, str]]:
    """Yield each document of a text, with the offset at which it begins."""
    begins = [0, *(found.start() for found in _BOUNDARY.finditer(text) if found.start())]
    for begin, end in zip(begins, [*begins[1:], len(text)], strict=True):
        part = text[begin:end]
        yield (begin + 3, part[3:]) if part.startswith("...") else (begin, part)


def _problem(error: Exception, lines: range) -> str:
    """Return the line of an error, counted from 1, and what is wrong there; `lines` are those of the document."""
    if isinstance(error, RecursionError):
        return f"line {lines.start + 1}: is nested too deep for a rule"
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        said = str(error).partition("\n")[0] or type(error).__name__
        return f"line {lines.start + 1}: {said}"
    said = ", ".join(filter(None, (error.context, error.problem)))  # type: ignore[attr-defined]
    return f"line {min(mark.line, lines.stop - 1) + 1}: {said}"
