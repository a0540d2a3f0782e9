"""Queries and events for jobs on a cluster; the driver and the test that compares results both read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cer_gpu
from cer_gpu.rules import load

N_ROWS = 1200
PAIRS = "SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 60 SECONDS"
AFTER = "SELECT * FROM S WHERE A ; B WITHIN 3 SECONDS"
SET = {"pairs": PAIRS, "again": "SELECT * FROM S WHERE C ; A PARTITION BY [k] WITHIN 30 SECONDS"}
RULES = {
    "pairs.ceql": PAIRS,
    "named.yml": """
title: By Ann
level: low
logsource: {product: any}
detection:
  named: {name: ann}
  condition: named
""",
}


@dataclass(frozen=True)
class Case:
    """Queries over a stored stream.

    Attributes
    ----------
    events : str
        Folder below that of the events, or the name of a table with "{}" for that folder.
    query : str or dict
        Text, texts by name, or None for the folder of rules.
    options : dict
        Of `match`, or of the data source.
    way : str
        "match", "path", "source" or "function".
    relative : bool
        True if the driver names it from its own folder, in which no worker runs.
    """

    query: str | dict[str, str] | None = PAIRS
    events: str = "files"
    options: dict[str, Any] = field(default_factory=dict)
    way: str = "match"
    output: str | None = "events"
    relative: bool = False

    def place(self, folder: Path) -> str:
        """Return the path or the name of the stream."""
        return self.events.format(folder) if ":" in self.events else str(folder / self.events)

    def compiled(self, folder: Path) -> Any:
        """Return the query, or the set of them."""
        options = {"time_column": "ts", "type_column": "type"}
        if self.query is None:
            return load(folder / "rules", **options)
        compiling = cer_gpu.compile_all if isinstance(self.query, dict) else cer_gpu.compile
        return compiling(self.query, **options)


CASES = {
    **{
        f"{distribution} of {source}": Case(options={"distribution": distribution, "source": source})
        for distribution in ("key", "range", "broadcast")
        for source in ("files", "rows")
    },
    "without keys": Case(AFTER, options={"source": "files"}),
    "a table of Delta": Case(events="delta:{}/delta", options={"source": "files"}),
    "a table of Delta with deleted rows": Case(events="delta:{}/deleted", options={"source": "files"}),
    "a table of Iceberg": Case(events="iceberg:cat.ns.t", options={"source": "files"}),
    "a table of Iceberg with deleted rows": Case(events="iceberg:cat.ns.deleted"),
    "a table of Iceberg by rows": Case(events="iceberg:cat.ns.deleted", options={"source": "rows"}),
    "a table by a relative path": Case(events="delta:{}/deleted", options={"source": "files"}, relative=True),
    "a table by a relative path by rows": Case(events="delta:{}/deleted", options={"source": "rows"}, relative=True),
    "a relative path": Case(way="path", relative=True),
    "a set": Case(SET, options={"source": "files"}),
    "a set by rows": Case(SET, options={"source": "rows"}),
    "rules": Case(None, output="alerts"),
    "the data source": Case(way="source"),
    "the table function": Case(way="function"),
}
