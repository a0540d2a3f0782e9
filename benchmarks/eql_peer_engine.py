"""Endgame's EQL (the package ``eql``) over events, in an interpreter that has it; started by ``eql_peer.py``.

    PYTHON benchmarks/eql_peer_engine.py FOLDER

The folder holds ``events.jsonl`` (nested fields, with the row and the time), ``rules.jsonl`` and ``changes.json``, a
list of points in which the engine shall mean what Elasticsearch means; it writes ``found.jsonl``.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROW = "@row"
TICKS = 10_000_000
"""Units of time in a second."""
MAX_CHOICES = 10_000


NAMES = {
    name.lower(): name
    for name in ("arrayContains", "arrayCount", "cidrMatch", "endsWith", "indexOf", "startsWith", "stringContains")
} | {"_arraysearch": "arraySearch"}
"""Functions as the package writes them, of which it minds the letter case."""


def engine_with(changes: set[str]) -> Any:
    """Return an engine that is changed in some points: "lists", "missing", "keys"."""
    import eql
    from eql.ast import Comparison

    class Engine(eql.PythonEngine):  # type: ignore[misc]
        """The engine of the package; `chosen` has an element of each list that a test has read, by its number."""

        chosen: dict[int, list[Any]] | None = None

        def _convert_not(self, node: Any) -> Any:
            if "missing" not in changes:
                return super()._convert_not(node)
            value = self.convert(node.term)
            return lambda scope: not value(scope)

        def _convert_comparison(self, node: Any) -> Any:
            negated = "missing" in changes and node.comparator == Comparison.NE
            if negated:
                node = Comparison(node.left, Comparison.EQ, node.right)
            test = self._of_elements(super()._convert_comparison(node))
            return (lambda scope: not test(scope)) if negated else test

        def _convert_in_set(self, node: Any) -> Any:
            return self._of_elements(super()._convert_in_set(node))

        def _convert_function_call(self, node: Any) -> Any:
            return self._of_elements(super()._convert_function_call(node))

        def _convert_field(self, node: Any) -> Any:
            value = super()._convert_field(node)

            def of_element(scope: Any) -> Any:
                found = value(scope)
                if self.chosen is None or not isinstance(found, list) or any(isinstance(x, dict) for x in found):
                    return found
                entry = self.chosen.setdefault(id(found), [found, 0])
                return found[entry[1]] if found else None

            return of_element if "lists" in changes else value

        def _of_elements(self, test: Any) -> Any:
            """Return a test that holds if it holds for one choice of an element of each list."""

            def some(scope: Any) -> Any:
                if self.chosen is not None:
                    return test(scope)
                self.chosen = {}
                try:
                    found = test(scope)
                    lists = list(self.chosen.values())
                    choices = itertools.product(*(range(len(values)) for values, _ in lists))
                    for numbers in itertools.islice(choices, 1, MAX_CHOICES):
                        if found is True:
                            break
                        for entry, number in zip(lists, numbers, strict=True):
                            entry[1] = number
                        found = test(scope) or found
                    return found
                finally:
                    self.chosen = None

            return some if "lists" in changes else test

        def _convert_key(self, *arguments: Any, **options: Any) -> Any:
            key = super()._convert_key(*arguments, **options)

            def known(event: Any) -> Any:
                found = key(event)
                missing = None in found if isinstance(found, tuple) else found is None
                return object() if missing else found  # equal to no other one

            return known if "keys" in changes and arguments[0] else key

    return Engine({"pid_key": "unique_pid", "ppid_key": "unique_ppid", "time_unit": TICKS})


def wildcards(*patterns: str) -> str:
    """Return the regular expression of patterns in which ``?`` stands for one character."""
    from eql.utils import fold_case

    signs = {"*": ".*", "?": "."}
    return "|".join("^" + "".join(signs.get(c) or re.escape(c) for c in fold_case(p)) + r"\Z" for p in patterns)


def answers(text: str, events: dict[str, list[Any]], changes: set[str]) -> list[list[int]]:
    """Return the rows of each answer of a rule."""
    import eql.functions
    import eql.parser as p

    text = re.sub(r"\b\w+(?=~?\s*\()", lambda word: NAMES.get(word[0].lower(), word[0]), text)
    if "questions" in changes:
        eql.functions.Wildcard.to_regex = staticmethod(wildcards)
    modes = [p.elasticsearch_syntax, p.elastic_endpoint_syntax, p.allow_runs, p.allow_sample, p.allow_negation]
    modes += [p.skip_optimizations] * ("missing" in changes)
    with ExitStack() as stack:
        for mode in modes:
            stack.enter_context(mode)
        query = p.parse_query(text)
    engine, found = engine_with(changes), list[list[int]]()
    engine.add_output_hook(lambda output: found.append([event.data[ROW] for event in output.events]))
    engine.add_query(query)
    kinds = set(events) if engine._any_event_hooks else set(engine._event_hooks)
    for event in sorted((event for kind in kinds for event in events.get(kind, ())), key=lambda e: e.data[ROW]):
        engine.stream_event(event)
    engine.finalize()
    return found


def main() -> None:
    """Evaluate the rules of a folder."""
    import eql

    folder = Path(sys.argv[1])
    changes = set(json.loads((folder / "changes.json").read_text()))
    events: dict[str, list[Any]] = {}
    for line in (folder / "events.jsonl").read_text().splitlines():
        data = json.loads(line)
        events.setdefault(data["event_type"], []).append(eql.Event(data["event_type"], data["timestamp"], data))
    begun = time.perf_counter()
    with (folder / "found.jsonl").open("w") as written:
        for line in (folder / "rules.jsonl").read_text().splitlines():
            rule = json.loads(line)
            try:
                told = {"name": rule["name"], "rows": answers(rule["text"], events, changes)}
            except Exception as error:  # of any kind: a rule that it cannot read or run is a result
                told = {"name": rule["name"], "error": f"{type(error).__name__}: {error}"}
            written.write(json.dumps(told) + "\n")
    print(f"eql {eql.__version__}: {time.perf_counter() - begun:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
