"""The first rows of a result as a table to read."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pyarrow.compute as pc
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cer_gpu.engine.texts import plain

SHOWN_ITEMS = 6
"""Positions or events of one row."""
SHOWN_TEXT = 40
SHOWN_EVENT = 100
"""Characters of a text, and of an event."""


def rows_to_show(output: str) -> int:
    """Return how many rows of an output are shown where nobody says how many; an event takes a line of its own."""
    return 8 if output == "events" else 20


def preview(rows: pa.Table, width: int | None) -> str:
    """Return rows as a table.

    Parameters
    ----------
    rows
        Of any of the outputs.
    width
        In characters; None: that of the terminal.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    columns = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        kind = column.type
        values = column.combine_chunks()
        if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
            table.add_column(_readable(name))
            columns.append(_events(values))
        elif pa.types.is_list(kind):
            table.add_column(_readable(name))
            columns.append([_positions(items) for items in values.to_pylist()])
        else:
            is_number = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
            table.add_column(_readable(name), justify="right" if is_number else "left", no_wrap=True)
            columns.append(_cells(values))
    for row in zip(*columns, strict=True):
        table.add_row(*map(Text, row))
    console = Console(width=width)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n")


def _cells(values: pa.Array) -> list[str]:
    return ["null" if text is None else _readable(text) for text in plain(values).to_pylist()]


def _readable(text: str) -> str:
    """Return the beginning of a text, with nothing in it that moves the cursor."""
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: SHOWN_TEXT + 1])
    return _cut(text, SHOWN_TEXT)


def _cut(text: str, n: int) -> str:
    return text if len(text) <= n else text[: n - 1] + "…"


def _positions(items: list[int]) -> str:
    shown = [str(items[i]) for i in _shown(len(items))]
    if len(items) > SHOWN_ITEMS:
        shown[-1:] = ["...", shown[-1], f"({len(items)} events)"]
    return " ".join(shown)


def _events(values: pa.Array) -> list[str]:
    """Return the events of each row, each on a line."""
    lengths = pc.list_value_length(values).fill_null(0).to_pylist()
    firsts = [0, *itertools.accumulate(lengths)]
    shown = [first + i for first, n in zip(firsts, lengths, strict=False) for i in _shown(n)]
    events = values.flatten().take(pa.array(shown, pa.int64()))
    columns = [
        [f"{_readable(f.name)}: {text}" for text in _cells(c)]
        for f, c in zip(events.type, events.flatten(), strict=True)
    ]
    lines = iter(_cut(", ".join(attributes), SHOWN_EVENT) for attributes in zip(*columns, strict=True))
    texts = []
    for n in lengths:
        own = list(itertools.islice(lines, len(_shown(n))))
        if n > SHOWN_ITEMS:
            own[-1:] = [f"... ({n} events)", own[-1]]
        texts.append("\n".join(own))
    return texts


def _shown(n: int) -> list[int]:
    """Return which of n items are shown: all, or the first ones and the last."""
    return list(range(n)) if n <= SHOWN_ITEMS else [*range(SHOWN_ITEMS - 2), n - 1]
