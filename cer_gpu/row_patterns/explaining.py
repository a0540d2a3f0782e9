"""Explanation of a statement with MATCH_RECOGNIZE: its clauses, conditions, places, and the cost of its evaluation."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from cer_gpu.explain.explanation import Explanation
from cer_gpu.explain.text import Section, aligned_lines
from cer_gpu.printable import printable
from cer_gpu.row_patterns.pattern import variables_in
from cer_gpu.row_patterns.program import MATCH_END, NO_BOUND, PatternPlace, RowProgram
from cer_gpu.row_patterns.statement import OMIT_EMPTY, WITH_UNMATCHED, Statement

EVERY_ROW = "every row"
_LINEAR = (
    "linear in the rows: a pass from the end marks the places that can still finish, one from the start takes the "
    "preferred one"
)
_SEARCH = (
    "by search with a budget of steps, among the places that can finish as far as bits of rows show; a row after which "
    "nothing finishes is noted with what later conditions read, a condition that fails for all further rows, as "
    "ts - A.ts <= 5 does, ends the search, and where functions of a repetition are read, as AVG(A.x), the "
    "rows after it are found by sums of ranges"
)
_COUNTED = (
    "linear in the rows: a pass from the end marks at each row the places that can go on there, of which some take "
    "several rows; one from the start takes the preferred number of rows at once"
)
_MAX_PLACES = 50
"""Maximum number of places of a pattern that the text lists."""


class RowPatternExplanation(Explanation):
    """Meaning of a statement with MATCH_RECOGNIZE, and its evaluation; created by `RowPatternQuery.explain`.

    Examples
    --------
    >>> import cer_gpu
    >>> rises = cer_gpu.compile('''
    ...     SELECT * FROM trades MATCH_RECOGNIZE (
    ...         PARTITION BY name ORDER BY ts MEASURES LAST(price) AS high
    ...         PATTERN (A B+) DEFINE B AS price > PREV(price)
    ...     )''')
    >>> for line in rises.explain().words:
    ...     print(line)
    Rows of trades with the same name form a partition, in the order of ts.
    At each row, the preferred match of A B+ that begins there is found.
    The search continues after the last row of a match.
    Each row of the result is a match, with name, high.
    """

    _read_on = "(docs/reference/match_recognize.md says how they are found)"

    def _sections(self, detail: str) -> list[Section]:
        facts = self._facts
        sections: list[Section] = [
            ("In words", self.words),
            ("Evaluation", aligned_lines([[title, line] for title, line in facts["plan"].items()])),
        ]
        if detail in ("plan", "all"):
            sections.append(("Conditions", list(_conditions(facts["conditions"]))))
        if detail in ("automaton", "all"):
            sections.append(("Places", list(_place_lines(facts["places"]))))
        return [(title, [printable(line) for line in lines]) for title, lines in sections]


def explain_row_pattern(
    statement: Statement,
    program: RowProgram,
    bits: Sequence[str],
    searched: Collection[str] = (),
    detail: str = "summary",
) -> RowPatternExplanation:
    """Explain a statement.

    Parameters
    ----------
    statement, program
    bits
        Variables whose conditions read the row itself and rows around it, in the order of their bits.
    searched
        Variables whose conditions read other rows of the match.
    detail
        Detail of the text (`cer_gpu.explain.text.DETAILS`).
    """
    text = statement.text
    conditions = {each.name: " ".join(text[slice(*each.span)].split()) for each in statement.define}
    pattern = " ".join(text[slice(*statement.pattern_span)].split())
    return RowPatternExplanation(
        {
            "query": text,
            "words": list(_statement_words(statement, pattern, MATCH_END in program.starts_at_first)),
            "conditions": [
                {
                    "variable": name,
                    "text": conditions.get(name, EVERY_ROW),
                    "bit": bits.index(name) if name in bits else None,
                    "searched": name in searched,
                }
                for name in dict.fromkeys(variables_in(statement.pattern))
            ],
            "places": _place_facts(program),
            "automaton": _places_as_automaton(program, conditions),
            "plan": {
                "time": _SEARCH if searched else _COUNTED if program.counts else _LINEAR,
                "memory": "the columns that are read, and "
                + (
                    f"{8 * len(program.places)} bytes for each row of a million, or of one longer partition"
                    if program.counts
                    else "four bytes for each row"
                ),
                "order": "rows are sorted only where they do not arrive partition by partition, each in its order",
            },
            "passes": [{"name": name, "did": did} for name, did in _pass_lines(statement, program, bits, searched)],
        },
        detail,
    )


def _pass_lines(
    statement: Statement, program: RowProgram, bits: Sequence[str], searched: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield name and line of each pass, in the order of `cer_gpu.row_patterns.compiling.PASSES`."""
    yield "places", f"places {len(program.places):,}, each for a row that a variable takes"
    subsets = "".join(f"; {name} is any of {', '.join(members)}" for name, members in statement.subsets.items())
    yield "names", f"variables {', '.join(dict.fromkeys(variables_in(statement.pattern)))}{subsets}"
    by_search = f"; by search {', '.join(searched)}" if searched else ""
    yield "conditions", f"bits of rows: {', '.join(bits) or 'none'}{by_search}"
    yield "measures", ", ".join(each.name for each in statement.measures) or "none"
    yield "skip", f"after a match, {' '.join(statement.skip)}"


def _order_lines(statement: Statement) -> list[str]:
    return [
        each.column + ("" if each.ascending else " DESC") + (" NULLS FIRST" if each.nulls_first else "")
        for each in statement.order
    ]


def _statement_words(statement: Statement, pattern: str, may_be_empty: bool) -> Iterator[str]:
    keys = ", ".join(name for name, _ in statement.partition)
    order = f"in the order of {', '.join(_order_lines(statement))}" if statement.order else "in the order of the input"
    whose = f"Rows of {statement.table} with the same {keys} form a partition" if keys else f"Rows of {statement.table}"
    yield f"{whose}, {order}." if keys else f"{whose} are taken {order}."
    yield f"At each row, the preferred match of {pattern or '()'} that begins there is found."
    yield {
        "PAST LAST ROW": "The search goes on after the last row of a match.",
        "TO NEXT ROW": "The search goes on at the second row of a match, so that matches may overlap.",
        "TO FIRST": f"The search goes on at the first row of {statement.skip[-1]} in a match.",
        "TO LAST": f"The search goes on at the last row of {statement.skip[-1]} in a match.",
    }[statement.skip[0]]
    row = "a row of a match" if statement.all_rows else "a match"
    if statement.all_rows and statement.empty != OMIT_EMPTY and may_be_empty:
        row += ", or an empty match"
    row += ", or a row of no match" if statement.empty == WITH_UNMATCHED else ""
    if statement.select is not None:
        named = ", ".join(alias for _, alias in statement.select)
    elif statement.all_rows:
        named = "all columns and measures"
    else:
        named = ", ".join([*(name for name, _ in statement.partition), *(each.name for each in statement.measures)])
    yield f"Each row of the result is {row}, with {named}."


def _conditions(conditions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    rows = []
    for each in conditions:
        ways = [] if each["bit"] is None else [f"bit {each['bit']} of a row"]
        ways += ["by search, as it reads other rows of the match"] if each["searched"] else []
        rows.append([each["variable"], each["text"], ", and ".join(ways)])
    yield from aligned_lines(rows)


def _place_facts(program: RowProgram) -> list[dict[str, Any]]:
    """Return, for the start and each place, the places that may take the next row, in the order of preference."""
    shown = [
        _place_name(place, number) + _quantifier_text(program, number) for number, place in enumerate(program.places)
    ]

    def names(places: Sequence[int]) -> list[str]:
        return ["the end" if place == MATCH_END else shown[place] for place in places]

    facts = [{"place": "start", "next": names(program.starts)}]
    if program.starts_at_first != program.starts:
        facts.append({"place": "start of a partition", "next": names(program.starts_at_first)})
    for number, nexts in enumerate(program.nexts):
        ends = number in program.ends and MATCH_END not in nexts
        ways = names(nexts) + (["the end of the partition"] if ends else [])
        facts.append({"place": shown[number], "next": ways})
    return facts


def _place_name(place: PatternPlace, number: int) -> str:
    return f"{place.variable}.{number + 1}"


def _quantifier_text(program: RowProgram, number: int) -> str:
    """Return the quantifier of a place, or "" if it takes one row."""
    count = program.counts[number] if program.counts else None
    if count is None or count.minimum == count.maximum == 1:
        return ""
    if count.minimum == count.maximum:
        return f"{{{count.minimum}}}"
    maximum = "" if count.maximum == NO_BOUND else count.maximum
    return f"{{{count.minimum},{maximum}}}" + ("" if count.greedy else "?")


def _place_lines(places: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "a row goes to the first of the places after the arrow whose condition holds and that can finish"
    yield from aligned_lines(
        [[each["place"], "→ " + (", ".join(each["next"]) or "none")] for each in places[:_MAX_PLACES]]
    )
    if len(places) > _MAX_PLACES:
        yield f"and {len(places) - _MAX_PLACES:,} more"


def _places_as_automaton(program: RowProgram, conditions: Mapping[str, str]) -> dict[str, Any]:
    """Return the places as an automaton that `cer_gpu.explain` draws: state 0 is the start, n the n-th place."""
    transitions = []
    for source, nexts in enumerate((program.starts_at_first, *program.nexts)):
        taken = [place for place in nexts if place != MATCH_END]
        for rank, target in enumerate(taken, 1):
            place = program.places[target]
            text = conditions.get(place.variable, EVERY_ROW)
            text += f" {times}" if (times := _quantifier_text(program, target)) else ""
            transitions.append(
                {
                    "source": source,
                    "target": target + 1,
                    "text": f"{rank}. {text}" if len(nexts) > 1 else text,
                    "kept": [] if place.excluded else [place.variable],
                }
            )
    finals = {place + 1 for place, nexts in enumerate(program.nexts) if MATCH_END in nexts or place in program.ends}
    states = [{"id": 0, "kind": "initial"}]
    states += [{"id": i, "kind": "final" if i in finals else "inner"} for i in range(1, len(program.places) + 1)]
    return {"model": "places", "states": states, "transitions": transitions, "silent": []}
