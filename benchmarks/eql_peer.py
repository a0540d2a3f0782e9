"""Rules in EQL here and in Endgame's package ``eql``, over the same events: answer by answer, with reasons.

    .venv/bin/python benchmarks/eql_peer.py RULES.jsonl.gz EVENTS.parquet --peer PYTHON [--first 20000] [--skip 0]

RULES has a line of JSON for each rule, with "name" and "query"; EVENTS are under the names of the Elastic Common
Schema, with ``@timestamp`` and ``event.category``; PYTHON is an interpreter with the package (``pip install
eql==1.0.1``).  Without the files there is nothing to do.

A reason is tried, not guessed: the package's engine is changed in one point after the other to what Elasticsearch's
documentation says, or both sides get events and rules in small letters, and the answers that no longer differ are
counted for that point.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gzip
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from eql_peer_engine import ROW, TICKS

import cer_gpu

Answers = Counter[tuple[int, ...]]
"""Rows of each answer of a rule, and how often it is given."""

REASONS = (
    ("questions", "`?` in a pattern is one character; the package takes it for itself"),
    ("lists", "a list passes a test if one element does; the package compares the list"),
    ("missing", "`not`, and `!=`, of a missing value hold; in the package they are null"),
    ("keys", "an event whose key is missing takes no part; in the package null is a key"),
    ("letters", "`==`, `in` and keys mind the case of letters; in the package no test does"),
)
LETTERS = "letters"
_STRING = re.compile(r'"""(?:.|\n)*?"""|"(?:\\.|[^"\\])*"|//[^\n]*|/\*(?:.|\n)*?\*/')


def ours(rules: Mapping[str, str], events: pa.Table) -> tuple[dict[str, Answers], dict[str, str]]:
    """Return the answers of the rules, and why the others are refused."""
    kept, refused = dict[str, str](), dict[str, str]()
    options: dict[str, Any] = {"language": "eql", "missing_fields": "null", "schema": events.schema}
    for name, text in rules.items():
        try:
            cer_gpu.compile(text, **options)
            kept[name] = text
        except cer_gpu.QueryError as error:
            refused[name] = str(error).splitlines()[0]
    if not kept:
        return {}, refused
    found = cer_gpu.compile_all(kept, **options).evaluate(events)
    return {name: Counter(map(tuple, table["positions"].to_pylist())) for name, table in found.items()}, refused


def theirs(
    peer: str, rules: Mapping[str, str], events: pa.Table, changes: Iterable[str]
) -> tuple[dict[str, Answers], dict[str, str]]:
    """Return the answers of the package's engine, and why it refuses the others."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        lines = [json.dumps(nested(event, row)) for row, event in enumerate(events.to_pylist())]
        (folder / "events.jsonl").write_text("\n".join(lines))
        asked = [json.dumps({"name": name, "text": text}) for name, text in rules.items()]
        (folder / "rules.jsonl").write_text("\n".join(asked))
        (folder / "changes.json").write_text(json.dumps(list(changes)))
        engine = Path(__file__).with_name("eql_peer_engine.py")
        subprocess.run([peer, "-I", str(engine), str(folder)], check=True)
        told = [json.loads(line) for line in (folder / "found.jsonl").read_text().splitlines()]
    found = {each["name"]: Counter(map(tuple, each["rows"])) for each in told if "rows" in each}
    return found, {each["name"]: reason_of(each["error"]) for each in told if "error" in each}


def reason_of(error: str) -> str:
    """Return the sentence of an error of the package, without its place."""
    kind, _, message = error.partition(": ")
    lines = [line for line in message.splitlines() if not line.startswith("Error at line")]
    return f"{kind}: {re.sub(r'[;(].*', '', lines[0]).strip() if lines else message}"


def nested(event: dict[str, Any], row: int) -> dict[str, Any]:
    """Return an event as the package reads it: fields within fields, without those that are missing."""
    found: dict[str, Any] = {}
    for name, value in event.items():
        if value is None:
            continue
        *path, last = name.split(".")
        place = found
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value.isoformat() if isinstance(value, dt.datetime) else value
    kinds = {"start": "create", "end": "terminate"}
    found |= {
        ROW: row,
        "event_type": event["event.category"],
        "timestamp": round(event["@timestamp"].timestamp() * 1_000_000) * (TICKS // 1_000_000),
        "subtype": kinds.get(event["event.type"]),
        "pid": event["process.pid"] or 0,
        "unique_pid": event["process.entity_id"],
        "unique_ppid": event["process.parent.entity_id"],
    }
    return found


def in_small_letters(rules: Mapping[str, str], events: pa.Table) -> tuple[dict[str, str], pa.Table]:
    """Return rules and events without capital letters in texts."""
    columns = []
    for column in events.columns:
        array = column.combine_chunks()
        if pa.types.is_string(array.type):
            array = pc.utf8_lower(array)
        elif pa.types.is_list(array.type) and pa.types.is_string(array.type.value_type):
            small = pc.utf8_lower(array.values)
            array = pa.ListArray.from_arrays(array.offsets, small, mask=array.is_null())
        columns.append(array)
    texts = {name: _STRING.sub(lambda found: found[0].lower(), text) for name, text in rules.items()}
    return texts, pa.Table.from_arrays(columns, schema=events.schema)


def different(a: Mapping[str, Answers], b: Mapping[str, Answers]) -> dict[str, tuple[Answers, Answers]]:
    """Return the answers of each rule that only one of two sides gives."""
    found = {name: (a[name] - b[name], b[name] - a[name]) for name in a.keys() & b.keys()}
    return {name: pair for name, pair in found.items() if pair[0] or pair[1]}


def compared(rules: Mapping[str, str], events: pa.Table, peer: str) -> None:
    """Print a table of the answers that are the same, and of the reasons for those that are not."""
    begun = time.perf_counter()
    mine, refused = ours(rules, events)
    print(f"here: {len(mine):,} of {len(rules):,} rules in {time.perf_counter() - begun:.1f} s")
    begun = time.perf_counter()
    other, failed = theirs(peer, rules, events, ())
    print(f"the package: {len(other):,} of {len(rules):,} rules in {time.perf_counter() - begun:.1f} s")
    for who, reasons in (("here", refused), ("by the package", failed)):
        for reason, n in Counter(reasons.values()).most_common():
            print(f"  not read {who}: {n:4}  {reason}")
    both = mine.keys() & other.keys()
    left = different(mine, other)
    same = sum((mine[name] & other[name]).total() for name in both)
    print(f"both: {len(both):,} rules, {len(both) - len(left):,} of them with the same answers")
    print(
        f"{'rules':>6} {'only here':>10} {'only there':>11}  reason\n{'':>6} {same:>10,} {same:>11,}  the same answers"
    )
    changes: list[str] = []
    for name, reason in REASONS:
        asked = {rule: rules[rule] for rule in left}
        if not asked:
            break
        if name == LETTERS:
            small, lowered = in_small_letters(asked, events)
            again = different(ours(small, lowered)[0], theirs(peer, small, lowered, changes)[0])
        else:
            changes.append(name)
            again = different(mine, theirs(peer, asked, events, changes)[0])
        told = [
            sum((left[r][side] - again.get(r, (Counter(), Counter()))[side]).total() for r in left) for side in (0, 1)
        ]
        n_rules = sum(pair != again.get(rule) for rule, pair in left.items())
        print(f"{n_rules:6} {told[0]:10,} {told[1]:11,}  {reason}")
        left = again
    for rule, (here, there) in left.items():
        print(f"{1:6} {here.total():10,} {there.total():11,}  not told: {rule}")


def main() -> None:
    """Compare the rules of a file over the events of another."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rules", type=Path)
    parser.add_argument("events", type=Path)
    parser.add_argument("--peer", default=sys.executable, help="interpreter with the package eql")
    parser.add_argument("--first", type=int, default=20_000)
    parser.add_argument("--skip", type=int, default=0)
    asked = parser.parse_args()
    if not asked.rules.exists() or not asked.events.exists():
        print(f"nothing to compare: {asked.rules} or {asked.events} is not there")
        return
    with gzip.open(asked.rules, "rt", encoding="utf-8") as file:
        read = [json.loads(line) for line in file]
    rules = {f"{number} {rule['name']}": rule["query"] for number, rule in enumerate(read)}
    compared(rules, pq.read_table(asked.events).slice(asked.skip, asked.first), asked.peer)


if __name__ == "__main__":
    main()
