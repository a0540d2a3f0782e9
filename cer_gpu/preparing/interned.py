"""Values as JSON holds them, each of which is written once."""

from __future__ import annotations

import json
from typing import Any


class Interned:
    """Numbers of values.

    Attributes
    ----------
    values : list
        By their numbers.
    """

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[str, int] = {}

    def number(self, value: Any) -> int:
        """Return the number of a value, a new one if it has none."""
        key = json.dumps(value, sort_keys=True)
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(value)
        return self._numbers[key]
