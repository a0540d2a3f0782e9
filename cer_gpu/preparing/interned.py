"""Values as JSON holds them, each of which is written once."""

from __future__ import annotations

import json
from typing import Any

import lark
import pyarrow as pa

FROM_QUERIES = 64
"""Queries of a set from which on it is looked up, and kept, as a whole."""
VERSIONS = repr((lark.__version__, pa.__version__))
"""Versions of packages on which it depends what a query is."""


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
