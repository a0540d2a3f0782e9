"""Outcomes of rule tests as JUnit XML, which services for continuous integration show.

The elements and attributes are those of the schema of the plugin "xUnit" of Jenkins (junit-10.xsd): a `testsuite` for
each file of cases, and a `testcase` for each case and rule, with a `failure` or an `error`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from cer_gpu.cache import whole_file
from cer_gpu.printable import printable_lines
from cer_gpu.rule_tests.running import ERROR, FAILED, CaseOutcome, in_all

_ELEMENTS = {FAILED: "failure", ERROR: "error"}


def write_junit(outcomes: Mapping[str, Sequence[CaseOutcome]], path: Path) -> None:
    """Write outcomes, by the names of their files, to a file that appears whole or not at all."""
    root = ElementTree.Element("testsuites", _counts([each for of_file in outcomes.values() for each in of_file]))
    for file, of_file in outcomes.items():
        suite = ElementTree.SubElement(
            root, "testsuite", {"name": printable_lines(file), **_counts(of_file), "skipped": "0"}
        )
        for each in of_file:
            _add(suite, file, each)
    with whole_file(path, 0o644) as out:
        ElementTree.indent(root)
        ElementTree.ElementTree(root).write(out, encoding="utf-8", xml_declaration=True)
        out.write(b"\n")


def _add(suite: ElementTree.Element, file: str, outcome: CaseOutcome) -> None:
    name = outcome.name if outcome.rule is None else f"{outcome.name} [{outcome.rule}]"
    case = ElementTree.SubElement(
        suite,
        "testcase",
        {"name": printable_lines(name), "classname": printable_lines(file), "time": f"{outcome.seconds:.3f}"},
    )
    if outcome.status in _ELEMENTS:
        first = outcome.told[0] if outcome.told else outcome.status
        found = ElementTree.SubElement(
            case, _ELEMENTS[outcome.status], {"message": printable_lines(first), "type": outcome.status}
        )
        place = f"{outcome.path}:{outcome.line}" if outcome.line is not None else str(outcome.path)
        found.text = printable_lines("\n".join([place, *outcome.told]))


def _counts(outcomes: Sequence[CaseOutcome]) -> dict[str, str]:
    counts = in_all(outcomes)
    return {
        "tests": str(len(outcomes)),
        "failures": str(counts[FAILED]),
        "errors": str(counts[ERROR]),
        "time": f"{sum(each.seconds for each in outcomes):.3f}",
    }
