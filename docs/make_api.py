"""Make api.md: every public name with its signature, and every command with its options.

    .venv/bin/python docs/make_api.py          # writes docs/api.md
    .venv/bin/python docs/make_api.py --check  # exit code 1 where the page is not what the code has

The page is the promise of docs/stability.md: what `--check` calls gone or changed was public before.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

PAGE = Path(__file__).with_name("api.md")
MODULES = {
    "cer_gpu": "queries, their evaluation, and errors",
    "cer_gpu.frames": "frames; `cer_gpu.polars`, `cer_gpu.pandas` and `cer_gpu.duckdb` have the same names",
    "cer_gpu.report": "the results as one page",
    "cer_gpu.plot": "pictures of the results (extra `plot`)",
    "cer_gpu.rules": "folders of rules, and alerts",
    "cer_gpu.sigma": "rules of Sigma (extra `sigma`)",
    "spark_glue": "queries on Spark (extra `spark`)",
}
"""Public modules, with what is in them."""
BY_HAND = ("DeviceEvents", "EvaluationOptions", "FieldColumns", "Rule")
"""Classes that callers construct; functions give the others."""
INTERNAL = {
    *("start_position", "check_time", "compiled_by", "key_shard", "distribution_for", "engine", "expect"),
    *("next_deadline", "report_from", "given", "total_matches"),
    *("defers_events", "identities", "physical", "physical_plan", "pipeline", "placement", "stages", "syntax"),
    *("window_attribute", "window_kind", "compiled", "identity", "compile_options", "is_spaced"),
}
"""Members that other rooms of the packages call, and nobody else."""
COMMANDS = {"cer-gpu": ("cer_gpu.cli.group", "cli"), "python -m spark_glue": ("spark_glue.cli", "commands")}
"""Programs, with the module and the name of their commands."""

INTRODUCTION = """\
# What is public

All that this page lists is stable: it stays, with these names, parameters and defaults, for all versions 1.x, and
goes only after [a deprecation](stability.md). A name that is not on it is internal, whatever module it is in, and may
change in any version. The names are explained by their docstrings (`help(cer_gpu)`, and the Python API in the site that
`make site` makes); types of parameters are in the sources, and known to type checkers.

<!-- docs/make_api.py writes this page from the code, and tests/test_api_page.py holds the code to it -->

New parameters are always keywords with a default, and may be added in any version. Of a class without parameters here
no instance is made by hand: functions give it.
"""


def page() -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION]
    for module, about in MODULES.items():
        parts.append(f"## `{module}`\n\nFor {about}.\n\n```text\n" + "\n".join(lines_of_module(module)) + "\n```\n")
    for program, (module, name) in COMMANDS.items():
        commands = getattr(importlib.import_module(module), name)
        parts.append(f"## `{program}`\n\n```text\n" + "\n".join(lines_of_program(program, commands)) + "\n```\n")
    return "\n".join(parts)


def lines_of_module(module: str) -> Iterator[str]:
    """Yield a line for each public name of a module, and for each public member of its classes."""
    found = importlib.import_module(module)
    for name in sorted(public_names(found)):
        yield from lines_of(f"{module}.{name}", getattr(found, name))


def public_names(module: Any) -> list[str]:
    """Return the names of a module's `__all__`, or of the functions and classes that it defines itself."""
    told = getattr(module, "__all__", None)
    if told is not None:
        return list(told)
    defined = inspect.getmembers(module, lambda each: inspect.isfunction(each) or inspect.isclass(each))
    return [name for name, each in defined if each.__module__ == module.__name__ and not name.startswith("_")]


def lines_of(path: str, value: Any) -> Iterator[str]:
    """Yield the lines of a name."""
    if not inspect.isclass(value):
        yield f"{path}{parameters(value)}" if callable(value) else path
        return
    if issubclass(value, Exception):
        yield f"{path}: {', '.join(base.__name__ for base in value.__bases__)}"
        return
    yield path + (parameters(value) if value.__name__ in BY_HAND else "")
    fields = {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    for name in sorted({*fields, *dir(value)}):
        if name.startswith("_") or name in INTERNAL or not is_own(value, name, fields):
            continue
        member = inspect.getattr_static(value, name, None)
        bound = not isinstance(member, staticmethod)
        function = getattr(member, "__func__", member)
        yield f"{path}.{name}{parameters(function, bound) if inspect.isfunction(function) else ''}"


def is_own(kind: type, name: str, fields: set[str]) -> bool:
    """Return whether a member is from one of the two packages, not from Python's own classes."""
    of = next((base for base in kind.__mro__ if name in vars(base)), None)
    return name in fields or (of is not None and of.__module__.partition(".")[0] in ("cer_gpu", "spark_glue"))


def parameters(function: Any, bound: bool = False) -> str:
    """Return names, kinds and defaults of parameters, without types."""
    given = inspect.signature(function).parameters.values()
    shown = [each.replace(annotation=inspect.Parameter.empty) for each in given][int(bound) :]
    return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.Signature(shown)))


def lines_of_program(path: str, command: click.Command) -> Iterator[str]:
    """Yield a line for each command, its arguments and options, and the commands below it."""
    for each in command.params:
        yield f"{path} {words_of(each)}"
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield f"{path} {name}"
            yield from lines_of_program(f"{path} {name}", command.commands[name])


def words_of(given: click.Parameter) -> str:
    """Return an argument in capitals, or an option with all its names and its choices."""
    if isinstance(given, click.Argument):
        return (given.name or "").upper() + ("..." if given.nargs == -1 else "")
    names = ", ".join([*given.opts, *given.secondary_opts])
    if isinstance(given.type, click.Choice):
        return f"{names} {'|'.join(map(str, given.type.choices))}"
    return names if getattr(given, "is_flag", False) else f"{names} {(given.type.name or 'value').upper()}"


def differences(before: str, now: str) -> tuple[list[str], list[str]]:
    """Return the lines that a page has and the code has not, and the other way round."""
    told = list(difflib.ndiff(before.splitlines(), now.splitlines()))
    return [line[2:] for line in told if line[:2] == "- "], [line[2:] for line in told if line[:2] == "+ "]


def main() -> int:
    """Write the page, or compare it with the code."""
    now = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(now, encoding="utf-8")
        return 0
    gone, new = differences(PAGE.read_text(encoding="utf-8"), now)
    for word, lines in (("gone or changed (docs/stability.md)", gone), ("new", new)):
        for line in lines:
            print(f"{word}: {line}", file=sys.stderr)
    if gone or new:
        print("if that is meant: make docs, and a line of CHANGELOG.md", file=sys.stderr)
    return int(bool(gone or new))


if __name__ == "__main__":
    sys.exit(main())
