"""Events made to fit rules of Sigma, or nearly: for each rule some that it should find, and some that miss by little.

Strings are written from the values of a rule: wildcards become letters, cases are changed, dashes and Base64 are what
the modifiers say.  Regular expressions are not solved: their literal signs are kept.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from tests.sigma import reference as ref

_NETWORK = re.compile(r"^(\d+\.\d+\.\d+\.)\d+/\d+$")


class Maker:
    """Makes events.

    Parameters
    ----------
    rnd
    """

    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd

    def event(self, rule: Mapping[str, Any]) -> dict[str, Any]:
        """Return an event with values of some selections of a rule."""
        rnd, event = self.rnd, dict[str, Any]()
        wanted = {name: each for name, each in rule["detection"].items() if name not in ("condition", "timeframe")}
        filters = [name for name in wanted if name.startswith(("filter", "_filter"))]
        chosen = [name for name in wanted if name not in filters or rnd.random() < 0.25]
        for name in chosen:
            self.fill(event, wanted[name])
        if event and rnd.random() < 0.2:
            del event[rnd.choice(list(event))]
        return event

    def fill(self, event: dict[str, Any], definition: Any) -> None:
        """Give an event the values of a selection."""
        if isinstance(definition, Mapping):
            for key, value in definition.items():
                field, *modifiers = key.split("|")
                values = value if isinstance(value, list) else [value]
                picked = values if "all" in modifiers else [self.rnd.choice(values)] if values else []
                self.give(event, field or "Keywords", modifiers, picked)
        elif isinstance(definition, list):
            self.fill(event, self.rnd.choice(definition))
        elif definition is not None:
            self.give(event, "Keywords", ["contains"], [definition])

    def give(self, event: dict[str, Any], field: str, modifiers: list[str], values: list[Any]) -> None:
        """Give a field a value that passes, mostly."""
        for value in values:
            if value is None or "fieldref" in modifiers or isinstance(value, bool):
                continue
            if "re" in modifiers:
                made = re.sub(r"\\(.)|\[\^?(.)[^\]]*\]|[()^$*+?|{}]", lambda m: m[1] or m[2] or "", str(value))
            elif "cidr" in modifiers:
                network = _NETWORK.match(str(value))
                made = f"{network[1]}7" if network else str(value).split("/")[0]
            elif isinstance(value, (int, float)):
                made = str(value + self.rnd.choice([-1, 0, 0, 1]) if set(modifiers) & set(ref.COMPARISONS) else value)
            else:
                made = self.text(modifiers, str(value))
            before = event.get(field)
            event[field] = made if before is None else f"{before} {made}" if self.rnd.random() < 0.8 else made

    def text(self, modifiers: list[str], value: str) -> str:
        """Return a text that fits a value with its wildcards."""
        rnd = self.rnd
        tokens = rnd.choice(
            ref.modified([each for each in modifiers if each not in ("all", "neq")], ref.tokens_of(value))
        )
        made = "".join(
            rnd.choice(["", "", "x", "Yz 1"]) if each is ref.ANY else rnd.choice("qQ_") if each is ref.ONE else each
            for each in tokens
        )
        if "base64" in "".join(modifiers) or rnd.random() < 0.7:
            return made
        return rnd.choice([made.upper(), made.lower(), made.swapcase(), made[:-1], f"{made}x", f" {made}"])
