"""MATCH_RECOGNIZE: patterns over the rows of ordered partitions, one match after another (SQL:2016)."""

from __future__ import annotations

import re


def is_row_pattern(text: str) -> bool:
    """Return True if a text is a statement with MATCH_RECOGNIZE, and not a CEQL query."""
    return re.search(r"\bMATCH_RECOGNIZE\s*\(", text, re.IGNORECASE) is not None
