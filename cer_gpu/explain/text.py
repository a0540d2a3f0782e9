"""An explanation as text: titled sections of lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cer_gpu.explain.writing import printable

Facts = Mapping[str, Any]
Section = tuple[str, list[str]]


def sections(facts: Facts) -> list[Section]:
    """Return the sections of an explanation, each a title and its lines, all of them printable."""
    found: list[Section] = [
        ("In words", list(facts["words"])),
        ("Variables", _variables(facts)),
        ("Predicates", _predicates(facts)),
        ("Automaton", list(_automaton(facts["automaton"]))),
        ("Plan", list(_plan(facts))),
        ("Properties", list(_properties(facts["properties"]))),
        ("Notes", list(facts["notes"])),
    ]
    if facts["analysis"] is not None:
        found.append(("Run", list(_analysis(facts["analysis"]))))
    return [(title, [printable(line) for line in lines]) for title, lines in found if lines]


def _variables(facts: Facts) -> list[str]:
    rows = []
    for variable in facts["variables"]:
        remarks = [
            "kept" if variable["kept"] else "not kept",
            *(["can hold several events"] if variable["several"] else []),
            *(["is empty in some matches"] if variable["always"] is False else []),
        ]
        rows.append([variable["name"], " or ".join(variable["types"]), ", ".join(remarks)])
    return _columns([["name", "can hold", "remarks"], *rows]) if rows else []


def _predicates(facts: Facts) -> list[str]:
    """Return the lines of types, predicates and guards (types with predicates), with their counts."""
    counted = facts["events"] is not None
    tests = [*facts["types"], *facts["predicates"]]
    seen = {test["text"] for test in tests}
    tests += [guard for guard in facts["guards"] if guard["text"] not in seen]
    if not counted:
        return [test["text"] for test in tests]
    total = facts["events"]["n"]
    rows = [[test["text"], f"{test['n_events']:,}", _share(test["n_events"], total)] for test in tests]
    rows.append(
        ["(relevant events)", f"{facts['events']['n_relevant']:,}", _share(facts["events"]["n_relevant"], total)]
    )
    rows.append(["(all events)", f"{total:,}", ""])
    return _columns(rows, right=(1, 2))


def _automaton(automaton: Facts) -> Iterator[str]:
    states, transitions, silent = automaton["states"], automaton["transitions"], automaton["silent"]
    yield f"{len(states)} states: 0 is initial, 1 is final; ● keeps the event, ○ does not"
    rows = [
        [
            f"{t['source']} → {t['target']}",
            "●" if t["kept"] else "○",
            t["text"],
            f"in {', '.join(t['kept'])}" if t["kept"] else "",
        ]
        for t in transitions
    ]
    rows += [[f"{step['source']} → {step['target']}", "", "(no event)", ""] for step in silent]
    yield from _columns(rows)


def _plan(facts: Facts) -> Iterator[str]:
    plan = facts["plan"]
    engine, dealing = plan["engine"], plan["dealing"]
    rows = [["engine", f"{engine['chosen']}: {engine['why']}"]]
    others = [f"{output}: {name}" for output, name in engine["by_output"].items() if name != engine["chosen"]]
    rows += [["", f"for other outputs: {', '.join(others)}"]] if others else []
    rows.append(["strategy", plan["strategy"]])
    rows.append(["device", f"{plan['device']['chosen']}: {plan['device']['why']}"])
    rows.append(["predicates", f"{plan['predicates']['chosen']}: {plan['predicates']['why']}"])
    rows.append(["window", plan["window"]["text"] if plan["window"] else "none"])
    rows.append(["memory", plan["memory"]])
    threads = dealing["threads"]
    rows.append(["threads", _THREADS.get(threads["chosen"], f"one: {threads['why']}")])
    rows.append(["Spark tasks", f"{dealing['chosen']}: {_WAYS[dealing['chosen']]}"])
    for name, against in dealing["tasks"].items():
        if name != dealing["chosen"]:
            rows.append(["", f"{name} would be exact too" if against is None else f"not {name}: {against}"])
    yield from _columns(rows)


_THREADS = {
    "range": "ranges of the stream, each with the window before it",
    "partition": "each reads all events, and evaluates its share of the keys",
}
_WAYS = {
    "partition": "each gets all events of some keys",
    "range": "each gets a range of the stream and the window before it",
    "replicate": "each gets all events, and lists its share of the complex events",
}


def _properties(properties: Mapping[str, str | None]) -> Iterator[str]:
    yield "of the papers; they matter only to filters that relate several variables, which this query has not"
    yield from _columns([[name, "yes" if why is None else f"no: {why}"] for name, why in properties.items()])


def _analysis(analysis: Facts) -> Iterator[str]:
    relevant = _share(analysis["n_relevant"], analysis["n_events"])
    rows = [
        ["events", f"{analysis['n_events']:,}"],
        ["relevant", f"{analysis['n_relevant']:,}" + (f" ({relevant})" if relevant else "")],
        ["complex events", f"{analysis['n_complex_events']:,}"],
        ["predicates", " and ".join(analysis["tiers"]) or "none evaluated"],
        ["memory", f"{analysis['memory_bytes']:,} bytes of partial matches and buffers at the end"],
    ]
    met = analysis["determinised"]
    if met is None:
        rows.append(["determinised", "nothing: stacks need no automaton"])
    else:
        rows.append(["determinised", f"states met: {met['n_states']:,}, symbols met: {met['n_symbols']:,}"])
        rows += [["", f"{i} = {{{', '.join(map(str, states))}}}"] for i, states in enumerate(met["states"])]
        more = met["n_states"] - len(met["states"])
        rows += [["", f"and {more:,} more"]] if more else []
    yield from _columns(rows)
    total = analysis["seconds"]
    stages = [[name, f"{1000 * s:,.1f} ms", _share(s, total)] for name, s in analysis["stages"].items()]
    stages.append(["all, on one thread", f"{1000 * total:,.1f} ms", ""])
    yield from _columns(stages, right=(1, 2))


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else ""


def _columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Return rows as lines with aligned columns, those of `right` to the right."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("   ".join(cells).rstrip())
    return lines
