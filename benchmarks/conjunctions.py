"""Workloads of conjunctions: events of equal values in any order, in sequence, and what their partial matches hold."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from measure import WARM_UP, Row, Workload, count, drain, in_memory, seconds

TITLE = "Conjunctions"
ABOUT = "Events of six types, with one of 20,000 ids and one of 50 locs; half of them are T, S or R."
LISTED = "Answers of conjunctions"
ABOUT_LISTED = (
    "Q() <- T(id = x), S(id = x), R(id = x) over k events T and k events S of an id, then one R: k * k answers."
)
HELD = "Memory of conjunctions"
ABOUT_HELD = (
    "One evaluator over a long stream, in chunks; memory of the partial matches, and of the process above its start."
)
SHARE = 0.2
"""Events of these streams, of the number that is asked for: 2 million of 10 million."""
N_IDS, N_LOCS = 20_000, 50
WINDOWS = (1000, 10_000, 100_000, 1_000_000)
QUERY = "Q(x, y), T, S, R of one x, S and R of one y"
ALL_OF = "T ALL S ALL R of one id"
CHAIN = "T ; S ; R of one id"
TEXTS = {
    QUERY: "Q(x, y) <- T(id = x), S(id = x, loc = y), R(id = x, loc = y) WITHIN {} EVENTS",
    ALL_OF: "SELECT * FROM S WHERE T AS t ALL S AS s ALL R AS r FILTER s.id = t.id AND r.id = t.id WITHIN {} EVENTS",
    CHAIN: "SELECT * FROM S WHERE T AS t ; S AS s ; R AS r FILTER s.id = t.id AND r.id = s.id WITHIN {} [at]",
}
"""Queries by name, with a place for the length of the window."""
PARTITIONED = "SELECT * FROM S WHERE T ; S ; R PARTITION BY [id] WITHIN {} [at]"
COUNTED, AT_LENGTH = "counted", "listed"
BY_INDEXES = "by indexes of instances"
ANSWERS = (1, 100, 10_000, 1_000_000)
"""Answers at one end, of the family that lists them."""
CHUNK = 1 << 20
PARTS = (0.1, 0.5, 1.0)
"""Parts of the long stream after which memory is read."""


def visits(n_events: int, *, seed: int = 1, first: int = 0, ids: np.ndarray | None = None) -> pa.Table:
    """Return random events of six types with an id, a loc and their number in a column "at", from `first` on."""
    rng = np.random.default_rng(seed)
    codes = pa.array(rng.integers(0, 6, n_events).astype(np.int32))
    return pa.table(
        {
            "type": pa.DictionaryArray.from_arrays(codes, pa.array(list("TSRABC"))),
            "id": rng.integers(0, N_IDS, n_events) if ids is None else ids,
            "loc": rng.integers(0, N_LOCS, n_events),
            "at": np.arange(first, first + n_events),
        }
    )


def gathered(n_events: int, *, answers: int) -> pa.Table:
    """Return blocks of events T, as many events S and one R, each block of an id of its own.

    `answers` is a square: the answers that each R ends.  There are as many blocks as `n_events` answers need.
    """
    each = round(answers**0.5)
    n_blocks = max(n_events // answers, 1)
    codes = np.tile(np.repeat(np.array([0, 1, 2], np.int32), [each, each, 1]), n_blocks)
    types = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list("TSR")))
    return pa.table({"type": types, "id": np.repeat(np.arange(n_blocks), 2 * each + 1)})


def _workload(name: str, window: int, how: str = COUNTED, **options: object) -> Workload:
    output = "count" if how == COUNTED else "positions"
    text, at = TEXTS[name].format(window), {"window": window}
    return Workload(f"{name}, {how}", text, visits, at, times=SHARE, output=output, **options)  # type: ignore[arg-type]


def _ways(name: str, window: int) -> list[Workload]:
    """Return the ways to evaluate one pattern: as a parallelised automaton, by indexes, and by partitions."""
    found = [_workload(name, window, AT_LENGTH), _workload(name, window, AT_LENGTH, in_parallel=False)]
    found[1] = replace(found[1], name=f"{found[1].name}, {BY_INDEXES}")
    if name == CHAIN:
        text = PARTITIONED.format(window)
        found.append(replace(found[0], name=f"{found[0].name}, partitioned by id", text=text))
    return found


def workloads() -> list[Workload]:
    """Return the workloads whose rates are told."""
    return [
        *(_workload(QUERY, window, how) for how in (COUNTED, AT_LENGTH) for window in WINDOWS),
        *(_workload(ALL_OF, window) for window in WINDOWS),
        *(workload for window in (1000, 10_000) for workload in _ways(ALL_OF, window)),
        *(workload for window in (10_000, 100_000) for workload in _ways(CHAIN, window)),
    ]


def measure(workload: Workload, n_events: int, repeat: int) -> Row:
    """Measure a workload as others are, without the columns that say nothing here."""
    row = in_memory(workload, n_events, repeat)
    return {name: value for name, value in row.items() if name not in ("GB/s read", "times the floor")}


def listings() -> list[Workload]:
    """Return the workloads of which the answers are timed; all have about as many answers."""
    text = "Q() <- T(id = x), S(id = x), R(id = x) WITHIN 10000 EVENTS"
    return [
        Workload(
            "k T and k S, then one R", text, partial(gathered, answers=each), {"answers at an end": each}, times=SHARE
        )
        for each in ANSWERS
    ]


def listed(workload: Workload, n_events: int, repeat: int) -> Row:
    """Measure the time for each answer beside that of reading, which is told from a run that asks for ends alone."""
    query, table = workload.query(), workload.table(n_events)
    for output in ("positions", "ends"):
        for _ in drain(query, table.slice(0, WARM_UP), output):
            pass
    n_found = count(query, table)
    whole, reading = seconds(lambda: count(query, table), lambda: count(query, table, "ends"), repeat=repeat)
    return {
        **workload.row(),
        "events": len(table),
        "answers": n_found,
        "events read, million/s": len(table) / reading / 1e6,
        "answers and events, ns for each answer": whole / n_found * 1e9,
        "listing alone, ns for each answer": max(whole - reading, 0.0) / n_found * 1e9,
        "million answers/s": n_found / whole / 1e6,
    }


def _stay(n_events: int, part: int) -> pa.Table:
    return visits(n_events, seed=part, first=part * CHUNK)


def _pass_by(n_events: int, part: int) -> pa.Table:
    """Return events whose ids come some times within a thousand events, and never again."""
    at = np.arange(part * CHUNK, part * CHUNK + n_events)
    rng = np.random.default_rng(part)
    return visits(n_events, seed=part, first=part * CHUNK, ids=at // 1000 * 200 + rng.integers(0, 200, n_events))


STREAMS = {"ids of 20,000": _stay, "ids that never come again": _pass_by}


def held_workloads() -> list[Workload]:
    """Return the workloads of which memory is read; `times` makes 100 million events of 10 million."""
    text = TEXTS[QUERY].format(100_000)
    return [Workload(name, text, visits, {"window": 100_000}, times=10, output="count") for name in STREAMS]


def _chunks(workload: Workload, n_events: int) -> Iterator[pa.Table]:
    n_parts = -(-n_events // CHUNK)
    for part in range(n_parts):
        yield STREAMS[workload.name](min(CHUNK, n_events - part * CHUNK), part)


def held(workload: Workload, n_events: int, repeat: int) -> Row:
    """Read the memory of one evaluation after parts of its stream."""
    n_events = max(int(n_events * workload.times), 10)
    list(drain(workload.query(), visits(min(n_events, CHUNK)), workload.output))  # compiles the kernels
    process = psutil.Process()
    next(_chunks(workload, n_events))
    before = process.memory_info().rss
    evaluator = workload.query().evaluator(output=workload.output)
    marks = [int(part * n_events) for part in PARTS]
    n_answers, n_read, taken = 0, 0, 0.0
    row: Row = {**workload.row(), "events read": n_events}
    for chunk in _chunks(workload, n_events):
        begun = time.perf_counter()
        for batch in chunk.to_batches():
            n_answers += pc.sum(evaluator.push(batch)["count"]).as_py() or 0
        taken += time.perf_counter() - begun
        n_read += len(chunk)
        while marks and n_read >= marks[0]:
            at = f"after {PARTS[len(PARTS) - len(marks)]:.0%}"
            row[f"{at}: partial matches, MiB"] = evaluator.pipeline.runtime.n_bytes / 2**20
            row[f"{at}: process, MiB"] = (process.memory_info().rss - before) / 2**20
            marks.pop(0)
    return row | {"answers": n_answers, "million events/s": n_events / taken / 1e6}
