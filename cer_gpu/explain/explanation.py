"""Explanation of a query, as `cer_gpu.Query.explain` returns it: text, HTML, DOT, SVG and plain data."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from cer_gpu.errors import OptionError
from cer_gpu.explain.drawing import to_svg
from cer_gpu.explain.text import DETAILS, Section, aligned_lines, sections
from cer_gpu.printable import html_text, printable


def to_dot(automaton: Mapping[str, Any]) -> str:
    """Return an automaton (`automaton_facts`, `rma_facts`, `ParallelFacts.automaton`, `graph_facts`) in DOT."""
    name = automaton.get("model", "rma" if "registers" in automaton else "cea").lower()
    return "\n".join([f"digraph {name} {{", *("  " + line + ";" for line in _statements(automaton)), "}", ""])


def _statements(automaton: Mapping[str, Any]) -> Iterator[str]:
    yield "rankdir=LR"
    yield 'node [shape=circle, fontname="Helvetica"]'
    yield 'edge [fontname="Helvetica", fontsize=11]'
    if automaton["states"][0].get("name") != "":
        yield "start [shape=point]"
    for state in automaton["states"]:
        if state.get("name") == "":  # no run is ever in it
            yield f"{state['id']} [shape=point]"
            continue
        name = f"{state['id']}\n{state['label']}" if "label" in state else ""
        label = f', label="{_lines(name)}"' if name else ""
        yield f"{state['id']} [shape={'doublecircle' if state['kind'] == 'final' else 'circle'}{label}]"
        if state["kind"] == "initial":
            yield f"start -> {state['id']}"
    kinds = {state["id"]: state["kind"] for state in automaton["states"]}
    for transition in automaton["transitions"]:
        label = ("✗ " if transition.get("takes_back") else "") + _escaped(transition["text"])
        if transition["kept"]:
            label += r"\n● " + _escaped(", ".join(transition["kept"]))
        head = ", arrowhead=none" if kinds[transition["target"]] == "join" else ""
        yield f'{transition["source"]} -> {transition["target"]} [label="{label}"{head}]'
    for number, absence in enumerate(automaton.get("absences", ())):
        test = " AND ".join([absence["text"], *absence["filters"]])
        yield f'absent{number} [shape=box, style=dashed, label="{_escaped(absence["name"])}: {_escaped(test)}"]'
        for state in absence["after"]:
            yield f"{state} -> absent{number} [style=dotted, arrowhead=tee]"
    for silent in automaton["silent"]:
        yield f'{silent["source"]} -> {silent["target"]} [style=dashed, label="ε"]'


def _lines(text: str) -> str:
    return r"\n".join(map(_escaped, text.split("\n")))


def _escaped(text: str) -> str:
    """Escape a string for quotes; Graphviz also decodes entities such as ``&lt;`` in labels."""
    return printable(text).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')


_MORE = "(for plan and automaton: cer-gpu explain --all, --plan or --automaton; in Python, explain(detail='all'))"
_MAX_STATES = 100
"""Most states of an automaton that a notebook draws by itself."""


def check_detail(detail: str) -> None:
    """Raise OptionError unless a text may show this much (`cer_gpu.explain.text.DETAILS`)."""
    if detail not in DETAILS:
        raise OptionError(f"expected detail as one of {', '.join(map(repr, DETAILS))}, got {detail!r}")


class Explanation:
    r"""Meaning of a query, and plan of its evaluation; made by `cer_gpu.Query.explain`.

    ``str()`` returns the query in words, the columns that it reads, memory, speed and notes; with a ``detail`` of
    `cer_gpu.Query.explain`, also plan and automaton.  A notebook shows all of it, with a picture.

    Examples
    --------
    >>> import cer_gpu
    >>> print("\n".join(cer_gpu.compile("SELECT * FROM S WHERE A AS x ; B+ FILTER x[n > 1]").explain().words))
    Look in S for:
      1. an A event (x) with n > 1
      2. later, one or more B events, not necessarily consecutive
    All matches are reported.
    Each match lists all of its events.
    """

    _read_on = "(states, symbols, engines and plans are explained in docs/explanation/pipeline.md)"

    def __init__(self, facts: Mapping[str, Any], detail: str = "summary") -> None:
        check_detail(detail)
        self._facts = facts
        self._detail = detail

    @property
    def words(self) -> list[str]:
        """The query in plain words, line by line."""
        return list(self._facts["words"])

    @property
    def passes(self) -> list[str]:
        """The passes from the query to its plan, line by line: the name of each, and what it did to this query."""
        return [
            printable(line) for line in aligned_lines([[each["name"], each["did"]] for each in self._facts["passes"]])
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return all facts as plain data that JSON can hold."""
        return copy.deepcopy(dict(self._facts))

    def to_dot(self) -> str:
        """Return the automaton in DOT, the language of Graphviz."""
        return to_dot(self._facts["automaton"])

    def to_svg(self) -> str:
        """Return the picture of the automaton in SVG."""
        return to_svg(self._facts["automaton"])

    def _sections(self, detail: str) -> list[Section]:
        return sections(self._facts, detail)

    def __str__(self) -> str:
        """Return the explanation as text."""
        titled = self._sections(self._detail)
        blocks = ("\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in titled)
        return "\n\n".join([*blocks, _MORE if self._detail == "summary" else self._read_on])

    def __repr__(self) -> str:
        """Show the query that is explained."""
        return f"<explanation of {self._facts['query']!r}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the text in IPython on a terminal, as `_repr_html_` does in a notebook."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """Show the summary, the picture, and the details folded away in a notebook."""
        summary = [title for title, _ in self._sections("summary")]
        first, details = list[str](), list[str]()
        for title, lines in self._sections("all"):
            part = f"<h4>{html_text(title)}</h4>\n<pre>{html_text(chr(10).join(lines))}</pre>"
            (first if title in summary else details).append(part)
        n_states = len(self._facts["automaton"]["states"])
        picture = self.to_svg() if n_states <= _MAX_STATES else f"<p>{n_states:,} states: see to_svg()</p>"
        return (
            f'<div>{chr(10).join(first)}\n<div style="overflow-x:auto">{picture}</div>\n'
            f"<details><summary>details</summary>\n{chr(10).join(details)}\n</details></div>"
        )
