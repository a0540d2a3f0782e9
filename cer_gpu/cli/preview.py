"""Previews of the output as tables: the first rows, and the funnel of ``--output funnel``."""

from __future__ import annotations

import itertools
import os
import sys
from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cer_gpu.cli.command_line import show_text
from cer_gpu.cli.tally import FORMS, Tally, Totals
from cer_gpu.io.value_strings import plain_values
from cer_gpu.output.funnel_counts import STOPS, FunnelCounts
from cer_gpu.printable import counted, printable

_TEXT_WIDTH = 200
"""Width in characters of a preview that is written to a file or another program."""
SHOWN_ITEMS = 6
"""Maximum number of positions or events shown of one row."""
SHOWN_TEXT = 40
"""Maximum number of characters shown of a string."""
NARROW = 120
"""Minimum width at which a table of events shows start_time and end_time, which the events contain too."""
MIN_EVENT = 20
"""Minimum width of an event, even if the table then exceeds its width."""
WORD = 10
"""Minimum width of a column that may wrap, such as positions."""
GAP = 3
"""Characters between two columns."""
CUT = "(cut to the terminal width: COLUMNS=200 shows more)"
CUT_EVENTS = "(events are cut: select columns with SELECT x[a, b], widen with COLUMNS=300, or write all with -o FILE)"


def rows_to_show(output: str) -> int:
    """Return the default number of rows in a preview: fewer for "events", since each event takes a line."""
    form = FORMS[output]
    return 8 if form.keeps_events and form.row_each else 20


def table_width() -> int | None:
    """Return the width of a table, or None for the width of the terminal or COLUMNS."""
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else _TEXT_WIDTH


class Preview(ABC):
    """The part of the output that a run without a file shows.

    Attributes
    ----------
    is_shown : bool
        True if rows are printed already.
    """

    is_shown: bool = False

    @abstractmethod
    def take(self, name: str, batch: pa.RecordBatch) -> bool:
        """Take rows of a query; return True when there are enough to show."""

    @abstractmethod
    def take_counts(self, name: str, batch: pa.RecordBatch) -> None:
        """Take rows of output "count", in place of matches that are no longer listed."""

    @abstractmethod
    def show(self) -> None:
        """Print the rows, once."""

    @abstractmethod
    def finish(self, totals: Totals, so_far: str = "") -> None:
        """Print the rows, unless printed already, and the totals."""


class FirstRows(Preview):
    """The first rows of the output, shown as soon as there are enough of them.

    Parameters
    ----------
    n_wanted
        Number of rows to show.
    schema
        Schema of the rows.
    """

    def __init__(self, n_wanted: int, schema: pa.Schema) -> None:
        self._n_rows = 0
        self._n_wanted = n_wanted
        self._schema = schema
        self._pieces: list[pa.RecordBatch] = []

    def take(self, name: str, batch: pa.RecordBatch) -> bool:
        """Take the rows of a batch that are still needed; return True with the last one."""
        if self._n_rows >= self._n_wanted:
            return False
        self._pieces.append(batch.slice(0, self._n_wanted - self._n_rows))
        self._n_rows += self._pieces[-1].num_rows
        return self._n_rows == self._n_wanted

    def take_counts(self, name: str, batch: pa.RecordBatch) -> None:
        """Do nothing: the first rows remain."""

    def show(self) -> None:
        """Print the rows as a table, once."""
        if not self.is_shown:
            self.is_shown = True
            show_text(preview(pa.Table.from_batches(self._pieces, self._schema), table_width()))
            self._pieces.clear()

    def finish(self, totals: Totals, so_far: str = "") -> None:
        """Print the rows as a table, unless printed already, and the total number."""
        (tally,) = totals.of.values()
        if tally.n_rows == 0:
            show_text(f"{tally.nothing}{so_far}")
            return
        self.show()
        if self._n_rows < tally.n_rows:
            show_text(f"the first {self._n_rows:,} of {tally.rows}{so_far}")
        else:
            show_text(str(tally) + so_far + (", possibly more" if tally.limit_reached else ""))


class QueryTable(Preview):
    """The number of matches of each query, with the first and the last end, shown at the end."""

    def __init__(self) -> None:
        self._firsts: dict[str, pa.RecordBatch] = {}
        self._lasts: dict[str, pa.RecordBatch] = {}

    def take(self, name: str, batch: pa.RecordBatch) -> bool:
        """Store the first row and the last one."""
        if batch.num_rows:
            self._firsts.setdefault(name, batch.slice(0, 1))
            self._lasts[name] = batch.slice(batch.num_rows - 1)
        return False

    def take_counts(self, name: str, batch: pa.RecordBatch) -> None:
        """Store the last row."""
        self.take(name, batch)

    def show(self) -> None:
        """Print nothing before the end."""

    def finish(self, totals: Totals, so_far: str = "") -> None:
        """Print the table of the queries."""
        numbers = {name: _heading_of_tally(tally) for name, tally in totals.of.items()}
        width = max(map(len, numbers.values()))
        table = {"query": list(numbers), "found": [number.rjust(width) for number in numbers.values()]}
        if self._firsts:
            table["first end"] = [end_of(self._firsts.get(name)) for name in numbers]
            table["last end"] = [end_of(self._lasts.get(name)) for name in numbers]
        show_text(preview(pa.table(table), table_width()))
        n_finding = sum(tally.n_rows > 0 for tally in totals.of.values())
        matches = totals.counts_in_words if n_finding else "no matches"
        show_text(f"{n_finding:,} of {counted(len(numbers), 'query')} found {matches}{so_far}")


def _heading_of_tally(tally: Tally) -> str:
    n = tally.n_rows if tally.n_matches is None else tally.n_matches
    return f"{n:,}{'+' if tally.limit_reached else ''}"


def end_of(row: pa.RecordBatch | None) -> str:
    """Return the time, or else the position, of the end of a row, or "" if there is none."""
    names = [] if row is None else [name for name in ("end_time", "end") if name in row.schema.names]
    return _cells(row.column(names[0]))[0] if row is not None and names else ""


def preview(rows: pa.Table, width: int | None) -> str:
    """Return rows as a table, followed by a note if cells are cut to fit its width.

    Parameters
    ----------
    rows
        Rows of any output.
    width
        Number of characters; None for the width of the terminal or of COLUMNS.
    """
    console = Console(width=width)
    hidden = []
    if "events" in rows.column_names and console.width < NARROW:
        hidden = [name for name in ("start_time", "end_time") if name in rows.column_names]
        rows = rows.drop_columns(hidden)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    columns, events = list[list[str]](), dict[int, pa.Array]()
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        kind = column.type
        values = column.combine_chunks()
        if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
            table.add_column(Text(_escaped_beginning(name)))
            events[len(columns)] = values
            columns.append([])
        elif pa.types.is_list(kind):
            table.add_column(Text(_escaped_beginning(name)))
            columns.append(_list_strings(values))
        else:
            is_number = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
            table.add_column(Text(_escaped_beginning(name)), justify="right" if is_number else "left", no_wrap=True)
            columns.append(_cells(values))
    widths = [max(map(cell_len, [str(c.header), *cells])) for c, cells in zip(table.columns, columns, strict=True)]
    n_free = console.width - 2 - sum(widths) - GAP * (len(columns) - 1)
    least = sum(w if c.no_wrap else min(w, WORD) for c, w in zip(table.columns, widths, strict=True))
    is_cut = n_free + sum(widths) < least
    for i, values in events.items():
        length = max(n_free + widths[i], MIN_EVENT)
        columns[i], some_cut = _event_lines(values, length)
        is_cut |= some_cut
    for row in zip(*columns, strict=True):
        table.add_row(*map(Text, row))
    with console.capture() as captured:
        console.print(table)
    text = "\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n")
    without = f"\n(without {' and '.join(hidden)}: COLUMNS={NARROW} shows them)" if hidden else ""
    return text + without + (f"\n{CUT_EVENTS if events else CUT}" if is_cut else "")


def cells(values: pa.Array) -> list[str]:
    """Return a column as strings, with long strings and lists truncated, and each event on a line."""
    kind = values.type
    if pa.types.is_list(kind):
        return _event_lines(values, _TEXT_WIDTH)[0] if pa.types.is_struct(kind.value_type) else _list_strings(values)
    return _cells(values)


def _cells(values: pa.Array) -> list[str]:
    return ["null" if text is None else _escaped_beginning(text) for text in plain_values(values).to_pylist()]


def _escaped_beginning(text: str) -> str:
    """Return the beginning of a string, with control characters escaped."""
    return _cut(printable(text[: SHOWN_TEXT + 1]), SHOWN_TEXT)


def _cut(text: str, n: int) -> str:
    return text if len(text) <= n else text[: n - 1] + "…"


def _list_strings(values: pa.Array) -> list[str]:
    """Return lists of positions, or of values of events, as strings."""
    gap = " " if pa.types.is_integer(values.type.value_type) else ", "
    cells, bounds = _cells(values.values), values.offsets.to_pylist()
    strings = []
    for first, last, is_valid in zip(bounds, bounds[1:], values.is_valid().to_pylist(), strict=False):
        shown = [cells[first + i] for i in _shown_indices(last - first)]
        if last - first > SHOWN_ITEMS:
            shown[-1:] = ["...", shown[-1], f"({last - first} events)"]
        strings.append(gap.join(shown) if is_valid else "null")
    return strings


def _event_lines(values: pa.Array, length: int) -> tuple[list[str], bool]:
    """Return the events of each row, one per line of at most `length` characters, and True if a line was cut."""
    lengths = pc.list_value_length(values).fill_null(0).to_pylist()
    firsts = [0, *itertools.accumulate(lengths)]
    shown = [first + i for first, n in zip(firsts, lengths, strict=False) for i in _shown_indices(n)]
    events = values.flatten().take(pa.array(shown, pa.int64()))
    columns = [
        [f"{_escaped_beginning(f.name)}: {text}" for text in _cells(c)]
        for f, c in zip(events.type, events.flatten(), strict=True)
    ]
    whole = [", ".join(attributes) for attributes in zip(*columns, strict=True)]
    lines = iter([_cut(line, length) for line in whole])
    strings = []
    for n in lengths:
        own = list(itertools.islice(lines, len(_shown_indices(n))))
        if n > SHOWN_ITEMS:
            own[-1:] = [f"... ({n} events)", own[-1]]
        strings.append("\n".join(own))
    return strings, any(len(line) > length for line in whole)


def _shown_indices(n: int) -> list[int]:
    """Return the indices of the items shown out of n: all, or the first ones and the last."""
    return list(range(n)) if n <= SHOWN_ITEMS else [*range(SHOWN_ITEMS - 2), n - 1]


class FunnelPreview(Preview):
    """The steps of a funnel, shown at the end: starts that reached each, median time to it, and what stopped them.

    Parameters
    ----------
    counts
        Counts of the rows so far; the run updates them.
    """

    def __init__(self, counts: FunnelCounts) -> None:
        self._counts = counts

    def take(self, name: str, batch: pa.RecordBatch) -> bool:
        """Show nothing before the end."""
        return False

    def take_counts(self, name: str, batch: pa.RecordBatch) -> None:
        """Do nothing: starts are listed to the end."""

    def show(self) -> None:
        """Print nothing before the end."""

    def finish(self, totals: Totals, so_far: str = "") -> None:
        """Print the table of the steps."""
        (tally,) = totals.of.values()
        if not tally.n_rows:
            show_text(f"no starts{so_far}")
            return
        show_text(preview(funnel_table(self._counts), table_width()))
        show_text(str(tally) + so_far + (", possibly more" if tally.limit_reached else ""))


def funnel_table(counts: FunnelCounts) -> pa.Table:
    """Return the steps as a table of strings."""
    rows = counts.rows
    columns: dict[str, Any] = {
        "step": [f"{k}. {row.name}" for k, row in enumerate(rows, 1)],
        "starts": right([f"{row.n_reached:,}" for row in rows]),
        "of previous step": right([_percentage(row.of_previous) for row in rows]),
        "of first": right([_percentage(row.of_first) for row in rows]),
        "median from start": right([counts.median_in_words(row.median) for row in rows]),
    }
    for ending in STOPS:
        columns[ending] = right([f"{n:,}" if n else "" for n in (row.stopped[ending] for row in rows)])
    return pa.table(columns)


def funnel_facts(counts: FunnelCounts) -> dict[str, Any]:
    """Return the steps as plain data; medians are in `unit`."""
    return {"unit": counts.unit, "steps": [asdict(row) for row in counts.rows]}


def right(strings: list[str]) -> list[str]:
    """Return strings right-aligned to the width of the longest."""
    width = max(map(len, strings), default=0)
    return [text.rjust(width) for text in strings]


def _percentage(fraction: float | None) -> str:
    return "" if fraction is None else f"{fraction:.1%}"
