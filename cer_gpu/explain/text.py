"""An explanation as text: titled sections of lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cer_gpu.ceql.paths import dotted
from cer_gpu.printable import printable

Facts = Mapping[str, Any]
Section = tuple[str, list[str]]

_MAX_PLACES = 12
"""Most pairs of steps that the text lists of one filter, and of an analysis."""
_MAX_ROWS = 200
"""Most states, and most transitions, of an automaton with labels that the text lists."""
MAX_SOURCES = 6
"""Most sources of one transition that the text lists."""


DETAILS = ("summary", "plan", "automaton", "all")
"""Details that a text may show: the summary alone, or with it the plan, the automaton, or both."""


def sections(facts: Facts, detail: str = "all") -> list[Section]:
    """Return the sections of an explanation (`DETAILS`), each a title and its lines, all of them printable."""
    titled: list[Section] = [
        ("In words", list(facts["words"])),
        ("Evaluation", _evaluation(facts)),
        ("Notes", list(facts["notes"])),
    ]
    counted = facts["events"] is not None
    if detail in ("plan", "all"):
        titled += [
            ("Model", list(_model(facts["model"]))),
            ("Join predicates", list(_relations(facts))),
            ("Variables", _variable_lines(facts)),
        ]
    if counted or detail in ("plan", "all"):
        titled.append(("Predicates", _predicates(facts)))
    if detail in ("automaton", "all"):
        titled += [
            ("Q-tree of the conjunction", list(_q_tree(facts["automaton"]))),
            ("Automaton", list(_automaton_lines(facts["automaton"]))),
        ]
    if detail in ("plan", "all"):
        titled += [("Plan", list(_plan(facts))), ("Properties", list(_properties(facts)))]
    if facts["analysis"] is not None:
        titled.append(("Run", list(_analysis(facts))))
    return [(title, [printable(line) for line in lines]) for title, lines in titled if lines]


def _evaluation(facts: Facts) -> list[str]:
    """Return the lines that say which columns are read, what is stored in memory, and how fast it is."""
    model = facts["model"]
    columns = ", ".join(dotted(name) for name in facts["columns"]) or "none"
    return aligned_lines(
        [
            ["columns", columns],
            ["memory", facts["plan"]["memory"]],
            ["speed", f"{model['speed']} ({model['name']}: {model['why']})"],
        ]
    )


def _model(model: Facts) -> Iterator[str]:
    yield f"{model['name']} ({model['title']}): {model['why']}"
    rows = [[title if i == 0 else "", line] for title, key in _PROMISES for i, line in enumerate(model[key])]
    reason = model["why_not_parallel"]
    yield from aligned_lines(rows + ([["not PCEA", f"(parallelised automaton): {reason}"]] if reason else []))


_PROMISES = (("guaranteed", "guaranteed"), ("not guaranteed", "not_guaranteed"))


def _relations(facts: Facts) -> Iterator[str]:
    rows = []
    for relation in facts["relations"]:
        kind = "separable" if relation["separable"] else f"not separable: {relation['why']}"
        places = relation["places"] or ["nowhere: no match has all of its events"]
        more = len(places) - _MAX_PLACES
        shown = [*places[:_MAX_PLACES], f"and {more:,} more"] if more > 0 else places
        rows += [[relation["text"] if i == 0 else "", kind if i == 0 else "", place] for i, place in enumerate(shown)]
    if rows:
        yield from aligned_lines([["predicate", "kind", "tested at"], *rows])
        if facts["presumed"] and any(relation["separable"] for relation in facts["relations"]):
            yield "(assuming columns of numbers or times; give the events to see it for their types)"


def _variable_lines(facts: Facts) -> list[str]:
    rows = []
    for variable in facts["variables"]:
        remarks = [
            "selected" if variable["kept"] else "not selected",
            *(["can hold several events"] if variable["several"] else []),
            *(["is empty in some matches"] if variable["always"] is False else []),
        ]
        rows.append([variable["name"], " or ".join(variable["types"]), ", ".join(remarks)])
    return aligned_lines([["name", "can hold", "remarks"], *rows]) if rows else []


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
    return aligned_lines(rows, right=(1, 2))


def _q_tree(automaton: Facts) -> Iterator[str]:
    """Return the lines of a q-tree, of a large one the first."""
    lines = automaton.get("q_tree", [])
    if lines:
        yield "a line of values is shared by all events below it; values of a single event are left out"
        yield from lines[:_MAX_ROWS]
    if len(lines) > _MAX_ROWS:
        yield f"and {len(lines) - _MAX_ROWS:,} more"


def _automaton_lines(automaton: Facts) -> Iterator[str]:
    if automaton["model"] in ("PCEA", "atoms"):
        yield from _labelled(automaton)
        return
    states, transitions, silent = automaton["states"], automaton["transitions"], automaton["silent"]
    if automaton["why_not_registers"] is not None:
        yield "CEA of the pattern without its join predicates, which no bounded number of registers can test"
    yield f"{len(states)} states: 0 is initial, 1 is final; ● marks the event, ○ does not"
    yield from _taking_back(automaton)
    registered = automaton["model"] == "RMA"
    for register in automaton["registers"] if registered else ():
        yield f"register {register['name']} holds the event of {register['holds']}"
    rows = [
        [
            f"{t['source']} → {t['target']}",
            _transition_mark(t),
            _formula(t) if registered else t["text"],
            f"into {', '.join(t['writes'])}" if registered and t["writes"] else "",
            f"in {', '.join(t['kept'])}" if t["kept"] and not registered else "",
        ]
        for t in transitions
    ]
    rows += [[f"{step['source']} → {step['target']}", "", "(no event)", "", ""] for step in silent]
    yield from aligned_lines(rows)


def _labelled(automaton: Facts) -> Iterator[str]:
    """Return the lines of an automaton whose states are named by what has been read."""
    states = [state for state in automaton["states"] if "label" in state]
    finals = ", ".join(str(state["id"]) for state in states if state["kind"] == "final")
    n = f"{len(states):,} state{'s' if len(states) > 1 else ''}"
    if automaton["model"] == "PCEA":
        yield f"{n}, final: {finals}; an event finds a partial match in each source; ● marks the event, ○ does not"
    else:
        yield f"{n}, one for each atom, final: {finals}; ● marks the event, ○ does not"
        yield "';' comes before an event that is later, ':' before one at the very next position"
    yield from _taking_back(automaton)
    yield from _shortened([[f"state {state['id']}", state["label"]] for state in states])
    rows = []
    for t in automaton.get("rules", automaton["transitions"]):
        sources = t["sources"] if "sources" in t else [t["source"]] if t["source"] else []
        keys = t.get("keys", ())
        keyed_sources = [f"{source} by {' AND '.join(key)}" for source, key in zip(sources, keys, strict=False) if key]
        rows.append(
            [
                f"{_cut([str(source) for source in sources]) or '∅'} → {t['target']}",
                _transition_mark(t),
                t["text"],
                f"in {', '.join(t['kept'])}" if t["kept"] else "",
                _cut(keyed_sources, "; "),
            ]
        )
    yield from _shortened(rows)
    yield from _absent_event_lines(automaton.get("absences", ()))


def _absent_event_lines(absences: Sequence[Facts]) -> Iterator[str]:
    """Return the lines of the events that are absent from gaps."""
    rows = []
    for absence in absences:
        event = " such that ".join(
            [absence["text"], *([" AND ".join(absence["filters"])] if absence["filters"] else [])]
        )
        searched = [state for state in absence["after"] if state not in absence["at_once"]]
        ways = (
            (absence["at_once"], "known by a mark at the event before"),
            (searched, "searched in the gap while listing"),
        )
        for states, way in ways:
            if states:
                rows.append([absence["name"], event, f"after {_cut([str(state) for state in states])}", way])
    if rows:
        yield "events that must be absent from gaps:"
        yield from _shortened(rows)


def _taking_back(automaton: Facts) -> Iterator[str]:
    """Yield the line on an absence at the end of the pattern, if there is one."""
    if any(t.get("takes_back") for t in automaton["transitions"]):
        yield "✗ retracts the match that it follows; a match that is not retracted within its window is reported"


def _transition_mark(transition: Facts) -> str:
    if transition.get("takes_back"):
        return "✗"
    return "●" if transition["kept"] else "○"


def _cut(items: Sequence[str], sign: str = ", ") -> str:
    more = len(items) - MAX_SOURCES
    return sign.join([*items[:MAX_SOURCES], f"{more:,} more"] if more > 1 else items)


def _shortened(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield from aligned_lines(rows[:_MAX_ROWS])
    if len(rows) > _MAX_ROWS:
        yield f"and {len(rows) - _MAX_ROWS:,} more"


def _formula(transition: Facts) -> str:
    return "any event" if transition["formula"] == "TRUE" else str(transition["formula"])


def _plan(facts: Facts) -> Iterator[str]:
    plan = facts["plan"]
    engine, distribution = plan["engine"], plan["distribution"]
    rows = [["engine", f"{engine['chosen']}: {engine['why']}"]]
    others = [f"{output}: {name}" for output, name in engine["by_output"].items() if name != engine["chosen"]]
    rows += [["", f"for other outputs: {', '.join(others)}"]] if others else []
    if plan["chain"] is not None and not plan["chain"]["plain"]:
        rows.append(["chain", plan["chain"]["text"]])
    rows.append(["strategy", plan["strategy"]])
    rows.append(["device", f"{plan['device']['chosen']}: {plan['device']['why']}"])
    rows.append(["predicates", f"{plan['predicates']['chosen']}: {plan['predicates']['why']}"])
    rows.append(["window", plan["window"]["text"] if plan["window"] else "none"])
    rows += [["keys" if i == 0 else "", line] for i, line in enumerate(plan["keys"])]
    rows.append(["memory", plan["memory"]])
    rows += [["funnel", plan["funnel"]]] if plan["funnel"] is not None else []
    if (partners := plan["partners"]) is not None:
        joins = partners["joins"]
        if joins:
            rows.append(["partners", "events without partners in their window are dropped before they are stored"])
            rows += [["", each] for each in joins[:_MAX_ROWS]]
        else:
            rows.append(["partners", f"all events are stored, with or without partners: {partners['why']}"])
    threads = distribution["threads"]
    rows.append(["threads", _THREADS.get(threads["chosen"], f"one: {threads['why']}")])
    by_values = distribution["chosen"] == "key" and distribution["shared"]
    way = f"each gets all events of some values of {_cut(distribution['shared'], ' = ')}" if by_values else None
    rows.append(["Spark tasks", f"{distribution['chosen']}: {way or _WAYS[distribution['chosen']]}"])
    for name, reason in distribution["tasks"].items():
        if name != distribution["chosen"]:
            rows.append(["", f"{name} would be exact too" if reason is None else f"not {name}: {reason}"])
    yield from aligned_lines(rows)


_THREADS = {
    "range": "ranges of the stream, each with the window before it",
    "key": "each reads all events and evaluates some of the keys",
}
_WAYS = {
    "key": "each gets all events of some keys",
    "range": "each gets a range of the stream and the window before it",
    "broadcast": "each gets all events and lists some of the matches",
}


def _properties(facts: Facts) -> Iterator[str]:
    if facts["relations"]:
        yield "as defined in the papers, where a predicate reads one event of each variable; here it may read several"
    else:
        yield "as defined in the papers; they matter only to join predicates, which this query does not have"
    properties = facts["properties"].items()
    yield from aligned_lines([[name, "yes" if why is None else f"no: {why}"] for name, why in properties])


def _analysis(facts: Facts) -> Iterator[str]:
    analysis = facts["analysis"]
    relevant = _share(analysis["n_relevant"], analysis["n_events"])
    rows = [
        ["events", f"{analysis['n_events']:,}"],
        ["relevant", f"{analysis['n_relevant']:,}" + (f" ({relevant})" if relevant else "")],
        ["matches", f"{analysis['n_matches']:,}"],
        ["predicates", " and ".join(analysis["tiers"]) or "none evaluated"],
        ["memory", f"{analysis['memory_bytes']:,} bytes of partial matches and buffers at the end"],
    ]
    if analysis["held"]:
        counts = ", ".join(f"{n:,} {name}" for name, n in analysis["held"].items())
        rows.append(["in reach", f"{counts} at the end"])
    met = analysis["determinised"]
    if met is None:
        engine = facts["plan"]["engine"]["chosen"]
        rows.append(["determinised", f"nothing: {engine} are not determinised"])
    else:
        rows.append(["determinised", f"states met: {met['n_states']:,}, symbols met: {met['n_symbols']:,}"])
        rows += [["", f"{i} = {{{', '.join(map(str, states))}}}"] for i, states in enumerate(met["states"])]
        more = met["n_states"] - len(met["states"])
        rows += [["", f"and {more:,} more"]] if more else []
    yield from aligned_lines(rows)
    if analysis["candidates"]:
        yield from aligned_lines(list(_candidates(facts)), right=(2, 3))
    total = analysis["seconds"]
    stages = [[name, f"{1000 * s:,.1f} ms", _share(s, total)] for name, s in analysis["stages"].items()]
    stages.append(["all, on one thread", f"{1000 * total:,.1f} ms", ""])
    yield from aligned_lines(stages, right=(1, 2))


def _candidates(facts: Facts) -> Iterator[Sequence[str]]:
    """Yield a row for each pair of steps: the candidates tested for the earlier one, and those that passed."""
    yield "steps", "candidates by", "tested", "passed"
    steps = list(zip(facts["steps"], facts["analysis"]["candidates"], strict=True))
    for step, n in steps[:_MAX_PLACES]:
        yield step["text"], step["index"], f"{n['n_tested']:,}", f"{n['n_passed']:,}"
    if len(steps) > _MAX_PLACES:
        yield f"and {len(steps) - _MAX_PLACES:,} more", "", "", ""


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else ""


def aligned_lines(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Return rows as lines with aligned columns, those of `right` to the right."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("   ".join(cells).rstrip())
    return lines
