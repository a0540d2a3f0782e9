"""Rules of Sigma by pySigma's back end for SQLite, over a table of events: the side of the peer in `sigma_peer.py`.

    PYTHON -I benchmarks/sigma_peer_engine.py FOLDER

PYTHON is an interpreter with ``pySigma-backend-sqlite``.  FOLDER holds ``rules.jsonl`` (a line of JSON for each rule,
with its name and YAML), and ``events.jsonl`` (an object for each event); ``found.jsonl`` is written beside them: for
each rule its rows or its error, and the seconds that its query took.
"""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import time
from pathlib import Path

from sigma.backends.sqlite import sqliteBackend
from sigma.collection import SigmaCollection

TEXTS = "all_texts_of_the_event"
ROW = "number_of_the_row"


def converted(lines: list[str]) -> tuple[dict[str, list[str]], dict[str, str], set[str]]:
    """Return the queries of rules, the errors of the others, and the columns that they read."""
    queries, wrong, columns = {}, {}, set()
    for line in lines:
        rule = json.loads(line)
        backend = sqliteBackend(table="events", collate_nocase=True, fulltext_field=TEXTS)
        try:
            rules = SigmaCollection.from_yaml(rule["yaml"])
            queries[rule["name"]] = backend.convert(rules)
            for each in rules.rules:
                columns.update(backend.required_fields(each))
        except Exception as error:
            wrong[rule["name"]] = f"{type(error).__name__}: {error}"
    return queries, wrong, columns


def filled(events: list[dict[str, object]], columns: set[str]) -> sqlite3.Connection:
    """Return a database with the events, and NULL in columns that they have not."""
    kinds = {name: type(value) for event in events for name, value in event.items() if value is not None}
    names = list({name.lower(): name for name in [*sorted(columns), *kinds]}.values())  # SQLite minds no letter case
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    declared = [
        f"{text} {'INTEGER' if kinds.get(name, str) is int else 'TEXT COLLATE NOCASE'}"
        for name, text in zip(names, quoted, strict=True)
    ]
    database = sqlite3.connect(":memory:")
    database.create_function("REGEXP", 2, found, deterministic=True)
    database.execute(f"CREATE TABLE events ({ROW} INTEGER PRIMARY KEY, {', '.join(declared)})")
    marks = ", ".join("?" * (len(names) + 1))
    rows = ([row, *(event.get(name) for name in names)] for row, event in enumerate(events))
    database.executemany(f"INSERT INTO events VALUES ({marks})", rows)
    return database


def found(pattern: str, text: object) -> bool:
    """Return True if a regular expression is found in a text."""
    return text is not None and re.search(pattern, str(text)) is not None


def main(folder: Path) -> None:
    """Answer the rules of a folder."""
    queries, wrong, columns = converted((folder / "rules.jsonl").read_text().splitlines())
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    for event in events:
        event[TEXTS] = "\n".join(value for value in event.values() if isinstance(value, str))
    database = filled(events, columns | {TEXTS})
    with (folder / "found.jsonl").open("w") as out:
        for name, error in wrong.items():
            out.write(json.dumps({"name": name, "error": error}) + "\n")
        for name, texts in queries.items():
            begin = time.process_time()
            try:
                rows = set()
                for text in texts:
                    asked = text.replace("SELECT * FROM", f"SELECT {ROW} FROM", 1)
                    rows.update(row for (row,) in database.execute(asked))
                told = {"rows": sorted(rows)}
            except sqlite3.Error as error:
                told = {"error": f"{type(error).__name__}: {error}"}
            out.write(json.dumps({"name": name, "seconds": time.process_time() - begin} | told) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
