"""Results of benchmarks: store them with the name of the machine and the date, and show them as tables.

    python benchmarks/report.py [benchmarks/results/MACHINE-page.json] [--fill docs/explanation/benchmarks.md]

prints the tables of stored results in Markdown, or writes them into a page: the table of a family is between
``<!-- table: TITLE -->`` and ``<!-- end -->``, machine, versions and command are after ``<!-- about -->``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numba
import numpy as np
import pyarrow as pa

import cer_gpu

if TYPE_CHECKING:
    from rich.console import Console

Row = dict[str, object]
Results = dict[str, list[Row]]
RESULTS = Path(__file__).parent / "results"
NUMBERS = (
    *("n", "window", "keys", "relevant, %", "length", "predicates", "bytes of an event", "answers at an end"),
    *("rows", "rows of a block", "cores"),
)
"""Columns that tell rows of the same name apart, besides the peer."""
LEFT_OUT = {"events", "GB/s read", "peak, MiB"}
"""Columns that pages leave to the full tables, except for the family that is about them."""
VERSIONS = (
    *("card", "driver", "CUDA of the driver", "CUDA runtime", "NVRTC", "cupy"),
    *("python", "numpy", "numba", "pyarrow", "cer_gpu", "commit", "sources"),
)


def machine() -> str:
    """Return the processor's name, as a file name."""
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        found = None
    name = found.group(1) if found else platform.processor() or platform.machine()
    return as_file_name(name)


def as_file_name(name: str) -> str:
    """Return a name of a processor or card as part of the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def about(command: list[str]) -> dict[str, str]:
    """Return the date, machine, versions and command of results."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "pyarrow": pa.__version__,
        "cer_gpu": cer_gpu.__version__,
        "command": " ".join(command),
    }


def cell(value: object) -> str:
    """Return a value as a table shows it: numbers with three significant digits, or whole."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def columns(rows: list[Row]) -> list[str]:
    """Return the columns of all rows: those that name a row first."""
    found = list(dict.fromkeys(name for row in rows for name in row))
    first = [name for name in found if name == "workload" or name in NUMBERS]
    return first + [name for name in found if name not in first]


def show(console: Console, title: str, rows: list[Row]) -> None:
    """Print the results of one benchmark."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    names = columns(rows)
    for name in names:
        left = any(isinstance(row.get(name), str) for row in rows)
        table.add_column(escape(name), justify="left" if left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell(row[name])) if name in row else "" for name in names))
    console.print(table)


def markdown(title: str, rows: list[Row], note: str = "") -> str:
    """Return the results of one benchmark as a section in Markdown."""
    return "\n".join([f"## {title}", "", *([note, ""] if note else []), table_of(rows)])


def table_of(rows: list[Row]) -> str:
    """Return rows as a table in Markdown."""
    if not rows:
        return "None.\n"
    names = columns(rows)
    left = {name for name in names if any(isinstance(row.get(name), str) for row in rows)}
    lines = ["| " + " | ".join(names) + " |"]
    lines.append("| " + " | ".join("---" if name in left else "---:" for name in names) + " |")
    lines += ["| " + " | ".join(cell(row[name]) if name in row else "" for name in names) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def identity(title: str, row: Row) -> tuple[object, ...]:
    """Return the values that tell a row from all others."""
    return title, row["workload"], row.get("peer"), *(row.get(name) for name in NUMBERS)


def growth(results: Results) -> list[Row]:
    """Return the growth of the rates along the numbers of each family: the last over the first, and the cost of a step.

    Windows count from 100 events on, as the shorter one is within the noise of a batch; the rate is that of complex
    events for the family that is about them.
    """
    found: list[Row] = []
    for title, rows in results.items():
        rate = "million matches/s" if title.startswith("Matches") else "million events/s"
        points: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for row in rows:
            name = next((name for name in NUMBERS if name in row), None)
            if name is not None and rate in row and (name != "window" or float(str(row[name])) >= 100):
                points.setdefault((str(row["workload"]), name), []).append(
                    (float(str(row[name])), float(str(row[rate])))
                )
        for (workload, name), curve in points.items():
            (low, first), (high, last) = min(curve), max(curve)
            if low == high:
                continue
            found.append({"workload": f"{title}: {workload}", "of": rate, "ratio": last / first})
            found[-1]["between"] = f"{name} = {cell(high)} and {cell(low)}"
            if name == "n" and rate == "million events/s":
                steps = np.array(curve)
                found[-1]["ns/event for each step of n"] = float(np.polyfit(steps[:, 0], 1e3 / steps[:, 1], 1)[0])
    return found


def show_ratios(console: Console, results: Results, kept: Path) -> None:
    """Print each rate of the results divided by that of stored results; below 1 is slower."""
    if not kept.exists():
        console.print(f"nothing to compare with: there is no {kept.name} in {kept.parent.name}/")
        return
    found = json.loads(kept.read_text(encoding="utf-8"))
    before = {identity(title, row): row for title, rows in found["results"].items() for row in rows}
    ratios: list[Row] = []
    for title, rows in results.items():
        for row in rows:
            old = before.get(identity(title, row), {})
            rate = next((name for name in row if "million" in name and old.get(name)), None)
            if rate is not None:
                at = "".join(f", {name} {cell(row[name])}" for name in NUMBERS if name in row)
                ratio = float(str(row[rate])) / old[rate]
                ratios.append({"workload": f"{title}: {row['workload']}{at}", "rate": rate, "now / kept": ratio})
    if ratios:
        show(console, f"Against the results of {found['about']['date']}", ratios)


def save(
    console: Console,
    target: Path,
    results: Results,
    command: list[str],
    notes: dict[str, str] | None = None,
    origin: dict[str, str] | None = None,
) -> None:
    """Write results to a JSON file, with their origin (`about`, and more of it) and a remark on some of them."""
    target.parent.mkdir(parents=True, exist_ok=True)
    of = about(command) | (origin or {})
    text = json.dumps({"about": of, "notes": notes or {}, "results": results}, indent=1)
    target.write_text(text + "\n", encoding="utf-8")
    console.print(f"written: {target}")


def conclude(
    console: Console,
    options: argparse.Namespace,
    results: Results,
    command: list[str],
    notes: dict[str, str],
    name: str,
) -> None:
    """Print all results that have rows, and write them where the options say so (`save`, `results`)."""
    for title, rows in results.items():
        if rows:
            show(console, title, rows)
    if options.save:
        save(console, options.results / f"{machine()}-{name}.json", results, command, notes)


def add(console: Console, target: Path, results: Results, notes: dict[str, str]) -> None:
    """Write results of some families into a JSON file that has others; a remark tells their date, if it is another."""
    found = json.loads(target.read_text(encoding="utf-8"))
    today = about([])["date"]
    when = "" if found["about"]["date"] == today else f" Measured on {today}."
    found["notes"] |= {title: notes.get(title, "") + when for title in results}
    found["results"] |= results
    found["results"]["How they grow"] = growth(found["results"])
    target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    console.print(f"written: {target}")


def tables(path: Path) -> str:
    """Return all tables of stored results, in Markdown."""
    found = json.loads(path.read_text(encoding="utf-8"))
    of, notes = found["about"], found.get("notes", {})
    versions = ", ".join(f"{name} {of[name]}" for name in VERSIONS if name in of)
    on = " beside ".join(of[name] for name in ("card", "machine") if name in of)
    head = f"# {on}\n\n{of['date']}; {versions}.\n\n```sh\n{of['command']}\n```\n"
    sections = [markdown(title, rows, notes.get(title, "")) for title, rows in found["results"].items() if rows]
    return "\n".join([head, *sections])


def filled(page: str, path: Path) -> str:
    """Return a page with the tables of stored results, without the columns that only the full tables need."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    results: Results = stored["results"]

    def table(place: re.Match[str]) -> str:
        title = place.group(1)
        if title not in results:  # not measured this time
            return place.group(0)
        left_out = LEFT_OUT - ({"peak, MiB"} if title == "Memory" else set())
        rows = [{name: value for name, value in row.items() if name not in left_out} for row in results[title]]
        return f"<!-- table: {title} -->\n\n{table_of(rows)}\n<!-- end -->"

    page = re.sub(r"<!-- about -->.*?<!-- end -->", lambda _: about_text(stored["about"]), page, flags=re.DOTALL)
    return re.sub(r"<!-- table: (.+?) -->.*?<!-- end -->", table, page, flags=re.DOTALL)


def about_text(of: dict[str, str]) -> str:
    """Return machine, versions, command and remark of results, between the marks of a page."""
    versions = ", ".join(f"{name} {of[name]}" for name in VERSIONS if name in of)
    remark = f"\n{of['remark']}\n" if of.get("remark") else ""
    return f"<!-- about -->\n\n{of['machine']}; {versions}.\n{remark}\n```sh\n{of['command']}\n```\n\n<!-- end -->"


def main(arguments: list[str]) -> int:
    """Print the tables of one file of results, or fill them into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", default=RESULTS / f"{machine()}.json")
    parser.add_argument("--fill", type=Path, metavar="PAGE", help="write the tables into a page")
    options = parser.parse_args(arguments)
    if options.fill is None:
        sys.stdout.write(tables(options.results))
    else:
        options.fill.write_text(filled(options.fill.read_text(encoding="utf-8"), options.results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
