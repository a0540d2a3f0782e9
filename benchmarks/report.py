"""Show the results of benchmarks, and keep them with the name of the machine and the date."""

from __future__ import annotations

import datetime
import json
import platform
import re
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import cer_gpu

RESULTS = Path(__file__).parent / "results"


def machine() -> str:
    """Return the processor's name, as a file name."""
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        found = None
    name = found.group(1) if found else platform.processor() or platform.machine()
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def show(console: Console, title: str, rows: list[dict[str, object]]) -> None:
    """Print the results of one benchmark."""
    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        table.add_column(name, justify="left" if name == "workload" else "right", overflow="fold")
    for row in rows:
        table.add_row(
            *(
                f"{v:,.2f}" if isinstance(v, float) else f"{v:,}" if isinstance(v, int) else escape(str(v))
                for v in row.values()
            )
        )
    console.print(table)


def show_ratios(console: Console, results: dict[str, list[dict[str, object]]], suffix: str = "") -> None:
    """Print each rate of the results over that of ``results/<machine><suffix>.json``; below 1 is slower."""
    kept = RESULTS / f"{machine()}{suffix}.json"
    if not kept.exists():
        console.print(f"nothing to compare with: there is no {kept.name} in {RESULTS.name}/")
        return
    found = json.loads(kept.read_text(encoding="utf-8"))
    before = {(title, row["workload"]): row for title, rows in found["results"].items() for row in rows}
    ratios: list[dict[str, object]] = []
    for title, rows in results.items():
        for row in rows:
            old = before.get((title, row["workload"]), {})
            for name in (name for name in row if name in old):
                if "million" in name:
                    workload = f"{title}: {row['workload']}"
                    ratios.append({"workload": workload, "rate": name, "now / kept": row[name] / old[name]})
    if ratios:
        show(console, f"Against the results of {found['about']['date']}", ratios)


def save(console: Console, suffix: str, results: dict[str, list[dict[str, object]]], command: str) -> None:
    """Write ``results/<machine><suffix>.json``."""
    target = RESULTS / f"{machine()}{suffix}.json"
    about = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "python": platform.python_version(),
        "cer_gpu": cer_gpu.__version__,
        "command": command.strip(),
    }
    target.write_text(json.dumps({"about": about, "results": results}, indent=2) + "\n", encoding="utf-8")
    console.print(f"written: {target.relative_to(RESULTS.parent.parent)}")
