"""Make reference/command_line.md: every command with its arguments and options, from the help of the commands.

    .venv/bin/python docs/make_command_line.py          # writes docs/reference/command_line.md
    .venv/bin/python docs/make_command_line.py --check  # exit code 1 where the page is not what the commands have

The names of commands and options are part of the promise of docs/reference/compatibility.md, as those of api.md are.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter
from pathlib import Path

import click
from make_api import check

PAGE = Path(__file__).parent / "reference" / "command_line.md"
COMMANDS = {"cer-gpu": ("cer_gpu.cli.group", "cli"), "python -m spark_glue": ("spark_glue.cli", "commands")}
"""Programs, with the module and the name of their commands."""
SHARED_BY = 4
"""Number of commands from which on an option is described once, for all of them."""

INTRODUCTION = """\
# Command line

All commands, with their arguments and options, as `--help` shows them. [Recipes](../guides/command_line.md) use them
over real events. Commands and options are removed only after [a deprecation](compatibility.md#deprecation-policy).

<!-- written by docs/make_command_line.py from the commands; tests/test_command_line_page.py holds it to them -->
"""
COMMON = """\
## Common options

Options of queries and of files, which several commands have.
"""
AFTER = """\
## Exit codes

| code | meaning |
| --- | --- |
| 0 | success (`check`: no errors; `test`: all cases pass) |
| 1 | the query, the events or the output file are wrong; a message on standard error says how |
| | (`test`: a case fails; `check --strict`: there are warnings) |
| 2 | the arguments are wrong |
| 130, 143, 129 | ended by Ctrl-C, SIGTERM, SIGHUP |
| 141 | the reader of standard output has gone |

[Error messages](errors.md) shows the messages.
"""


def page() -> str:
    """Return the text of the page."""
    groups = {program: getattr(importlib.import_module(module), name) for program, (module, name) in COMMANDS.items()}
    counts = Counter(rows for group in groups.values() for rows in rows_of_group(group))
    shared = {row: None for group in groups.values() for row in rows_of_group(group) if counts[row] >= SHARED_BY}
    parts = [INTRODUCTION]
    for program, group in groups.items():
        parts.append(f"## `{program}`\n\n{paragraphs(group.help or '')}\n")
        parts += [section(f"{program} {name}", group.commands[name], shared) for name in sorted(group.commands)]
    parts += [COMMON, table(list(shared)), AFTER]
    return "\n".join(parts)


def rows_of_group(group: click.Group) -> list[tuple[str, str]]:
    """Return the options of all commands of a program, each as often as a command has it."""
    return [row for command in group.commands.values() for row in rows_of(command)]


def rows_of(command: click.Command) -> list[tuple[str, str]]:
    """Return the options of a command with their descriptions, without that for help."""
    context = click.Context(command)
    records = [each.get_help_record(context) for each in command.params if isinstance(each, click.Option)]
    return [(names, " ".join(text.split())) for names, text in filter(None, records)]


def section(path: str, command: click.Command, shared: dict[tuple[str, str], None]) -> str:
    """Return the section of a command."""
    usage = " ".join(command.collect_usage_pieces(click.Context(command)))
    parts = [f"### `{path}`\n", f"```text\n{path} {usage}\n```\n", paragraphs(command.help or "") + "\n"]
    rows = rows_of(command)
    own = [row for row in rows if row not in shared]
    common = [f"`{names.split()[0].rstrip(',')}`" for names, _ in (row for row in rows if row in shared)]
    if own:
        parts.append(table(own))
    if common:
        parts.append(f"[Common options](#common-options): {', '.join(common)}.\n")
    for block in re.findall(r"Examples:\n((?:  .*\n?)+)", command.epilog or ""):
        lines = [re.sub(r"^  ", "", line) for line in block.splitlines()]
        parts.append("```text\n" + "\n".join(lines) + "\n```\n")
    return "\n".join(parts)


def table(rows: list[tuple[str, str]]) -> str:
    """Return options as a table in Markdown."""
    lines = [f"| `{escaped(names)}` | {escaped(text)} |" for names, text in rows]
    return "\n".join(["| option | |", "| --- | --- |", *lines, ""])


def escaped(text: str) -> str:
    """Return text for a cell of a table."""
    return text.replace("|", r"\|").replace("*.", r"\*.") if "`" not in text else text.replace("|", r"\|")


def paragraphs(text: str) -> str:
    """Return the help of a command, a line for each paragraph."""
    blocks = text.replace("\b", "").split("\n\n")
    return "\n\n".join(" ".join(block.split()).replace("*", r"\*") for block in blocks if block.strip())


def promised(text: str) -> list[str]:
    """Return the commands of a page with each of their options."""
    found, command = [], ""
    for line in text.splitlines():
        if heading := re.match(r"##+ (?:`(.*)`|(Common options))", line):
            command = heading[1] or heading[2]
            found.append(command)
        elif row := re.match(r"\| `(.+?)` \|", line):
            found.append(f"{command} {row[1]}")
        elif line.startswith("[Common options]"):
            found += [f"{command} {name}" for name in re.findall(r"`(--?[\w-]+)`", line)]
        elif line.startswith(f"{command} ") and command:
            found.append(line)
    return found


def main() -> int:
    """Write the page, or compare it with the commands."""
    now = page()
    if "--check" in sys.argv[1:]:
        return check(PAGE, promised(PAGE.read_text(encoding="utf-8")), promised(now), now)
    PAGE.write_text(now, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
