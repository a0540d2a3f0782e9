"""Make reference/api.md: every public name with its signature and a description from its docstring.

    .venv/bin/python docs/make_api.py          # writes docs/reference/api.md
    .venv/bin/python docs/make_api.py --check  # exit code 1 where the page is not what the code has

The page is the promise of docs/reference/compatibility.md: what `--check` calls gone or changed was public before.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "reference" / "api.md"
MODULES = {
    "cer_gpu": "Queries, their evaluation, and errors.",
    "cer_gpu.frames": "DataFrames. `cer_gpu.polars`, `cer_gpu.pandas` and `cer_gpu.duckdb` have the same names.",
    "cer_gpu.report": "Results as an HTML page.",
    "cer_gpu.plot": "Plots of results (extra `plot`).",
    "cer_gpu.rules": "Folders of rules, and alerts.",
    "cer_gpu.sigma": "Sigma rules (extra `sigma`).",
    "spark_glue": "Queries on Spark (extra `spark`).",
}
"""Public modules, with what is in them."""
BY_HAND = ("DeviceEvents", "EvaluationOptions", "FieldColumns", "Rule")
"""Classes that callers construct; functions give the others."""
INTERNAL = {
    *("start_position", "check_time", "compiled_by", "key_shard", "distribution_for", "engine", "expect"),
    *("next_deadline", "report_from", "from_names", "total_matches"),
    *("defers_events", "identities", "physical", "physical_plan", "pipeline", "placement", "stages", "syntax"),
    *("window_attribute", "window_kind", "compiled", "identity", "compile_options", "is_spaced"),
}
"""Members that other packages call, and nobody else."""

INTRODUCTION = """\
# Python API

Everything on this page is stable: it keeps its names, parameters and defaults for all versions 1.x, and is removed only
after [a deprecation](compatibility.md#deprecation-policy). A name that is not listed is internal, whatever module it is
in, and may change in any version. Descriptions are the first sentences of the docstrings; `help(cer_gpu.compile)` and
the site that `make site` builds have them in full, with examples. Commands and their options are on
[another page](command_line.md).

New parameters are always keywords with a default, and may be added in any version. Classes listed without parameters
are returned by functions; do not instantiate them yourself.

<!-- docs/make_api.py writes this page from the code, and tests/test_api_page.py holds the code to it -->
"""
ENTRY = re.compile(r"^\| `(.+?)` \|", re.MULTILINE)
FUNCTIONS, CLASSES, ERRORS, VALUES = "Functions", "Classes", "Errors", "Values"


def page() -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION]
    for module, about in MODULES.items():
        parts.append(f"## `{module}`\n\n{about}\n")
        found = importlib.import_module(module)
        groups: dict[str, list[tuple[str, Any]]] = {FUNCTIONS: [], CLASSES: [], ERRORS: [], VALUES: []}
        for name in sorted(public_names(found)):
            value = getattr(found, name)
            groups[group_of(value)].append((name, value))
        for group, names in groups.items():
            if group == CLASSES:
                parts += [
                    f"### `{module}.{name}`\n\n{description(value)}\n\n{table(members(f'{module}.{name}', value))}"
                    for name, value in names
                ]
            elif names:
                rows = [entry(f"{module}.{name}", value) for name, value in names]
                parts.append(f"### {group} of `{module}`\n\n{table(rows)}")
    return "\n".join(parts)


def group_of(value: Any) -> str:
    """Return the heading under which a name stands."""
    if inspect.isclass(value):
        return ERRORS if issubclass(value, Exception) else CLASSES
    return FUNCTIONS if callable(value) else VALUES


def table(rows: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> str:
    """Return rows of names and descriptions as a table in Markdown."""
    lines = [f"| `{name}` | {text.replace('|', chr(92) + '|')} |" for name, text in rows]
    return "\n".join(["| name | |", "| --- | --- |", *lines, ""])


def public_names(module: Any) -> list[str]:
    """Return the names of a module's `__all__`, or of the functions and classes that it defines itself."""
    told = getattr(module, "__all__", None)
    if told is not None:
        return list(told)
    defined = inspect.getmembers(module, lambda each: inspect.isfunction(each) or inspect.isclass(each))
    return [name for name, each in defined if each.__module__ == module.__name__ and not name.startswith("_")]


def entry(path: str, value: Any) -> tuple[str, str]:
    """Return a name with its signature or base classes, and its description."""
    if inspect.isclass(value):
        return f"{path}: {', '.join(base.__name__ for base in value.__bases__)}", description(value)
    return (f"{path}{parameters(value)}", description(value)) if callable(value) else (path, "")


def members(path: str, value: type) -> Iterator[tuple[str, str]]:
    """Yield a class and its public members, with their descriptions."""
    if value.__name__ in BY_HAND:
        yield f"{path}{parameters(value)}", "Constructor."
    fields = {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    for name in sorted({*fields, *dir(value)}):
        if name.startswith("_") or name in INTERNAL or not is_own(value, name, fields):
            continue
        member = inspect.getattr_static(value, name, None)
        bound = not isinstance(member, staticmethod)
        function = getattr(member, "__func__", member)
        is_function = inspect.isfunction(function)
        text = description(function) if is_function or isinstance(member, property) else ""
        yield (
            f"{path}.{name}{parameters(function, bound) if is_function else ''}",
            text or next(filter(None, (field_description(base, name) for base in value.__mro__)), ""),
        )


def description(value: Any) -> str:
    """Return the first sentence of a docstring, in Markdown."""
    text = inspect.cleandoc(getattr(value, "__doc__", None) or "")
    return first_sentence(text.split("\n\n")[0])


def first_sentence(text: str) -> str:
    """Return the first sentence of a paragraph, on one line."""
    line = " ".join(text.split()).replace("``", "`")
    return re.split(r"(?<=[^.][.!?])\s+(?=[A-Z`])", line, maxsplit=1)[0]


def field_description(kind: type, name: str) -> str:
    """Return what the docstring of a class says of an attribute: of that alone, or of several on one line."""
    lines = inspect.cleandoc(vars(kind).get("__doc__") or "").splitlines()
    for i, line in enumerate(lines):
        names = [each.strip() for each in line.partition(" :")[0].split(",")]
        if line[:1].strip() and name in names:
            indented = []
            for following in lines[i + 1 :]:
                if not following.startswith("    "):
                    break
                indented.append(following)
            return first_sentence("\n".join(indented))
    return ""


def is_own(kind: type, name: str, fields: set[str]) -> bool:
    """Return whether a member is from one of the two packages, not from Python's own classes."""
    of = next((base for base in kind.__mro__ if name in vars(base)), None)
    return name in fields or (of is not None and of.__module__.partition(".")[0] in ("cer_gpu", "spark_glue"))


def parameters(function: Any, bound: bool = False) -> str:
    """Return names, kinds and defaults of parameters, without types."""
    given = inspect.signature(function).parameters.values()
    shown = [each.replace(annotation=inspect.Parameter.empty) for each in given][int(bound) :]
    return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.Signature(shown)))


def promised(text: str) -> list[str]:
    """Return the names and signatures of a page, without their descriptions."""
    return ENTRY.findall(text)


def differences(before: list[str], now: list[str]) -> tuple[list[str], list[str]]:
    """Return what one list has and the other has not, and the other way round."""
    return [line for line in before if line not in now], [line for line in now if line not in before]


def check(page_path: Path, before: list[str], now: list[str], text: str) -> int:
    """Print what is gone, changed or new; return the exit code, which is 1 also for another description."""
    gone, new = differences(before, now)
    for word, lines in (("gone or changed (docs/reference/compatibility.md)", gone), ("new", new)):
        for line in lines:
            print(f"{word}: {line}", file=sys.stderr)
    is_same = page_path.read_text(encoding="utf-8") == text
    if not is_same:
        print(
            f"{page_path.name} is out of date: make docs, and a line of CHANGELOG.md for what changed", file=sys.stderr
        )
    return int(not is_same)


def main() -> int:
    """Write the page, or compare it with the code."""
    now = page()
    if "--check" in sys.argv[1:]:
        return check(PAGE, promised(PAGE.read_text(encoding="utf-8")), promised(now), now)
    PAGE.write_text(now, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
