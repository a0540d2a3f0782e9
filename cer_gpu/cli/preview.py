"""Previews of results as tables to read: the first rows, and the funnel that ``--output funnel`` shows."""

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
"""Width of a preview that goes to a file or another program, in characters."""
SHOWN_ITEMS = 6
"""Largest number of positions or events shown of one row."""
SHOWN_TEXT = 40
"""Largest number of characters shown of a text."""
NARROW = 120
"""Smallest width at which a table of events shows start_time and end_time, which the events hold too."""
MIN_EVENT = 20
"""Smallest width of an event, even where the table then exceeds its own."""
WORD = 10
"""Smallest width of a column that may wrap, such as positions."""
GAP = 3
"""Characters between two columns."""
CUT = "(cut to the terminal width: COLUMNS=200 shows more)"
CUT_EVENTS = "(events are cut: select columns with SELECT x[a, b], widen with COLUMNS=300, or write all with -o FILE)"


def rows_to_show(output: str) -> int:
    """Return the default number of rows in a preview: fewer for "events", since each event takes a line."""
    made = FORMS[output]
    return 8 if made.keeps_events and made.row_each else 20


def table_width() -> int | None:
    """Return the width of a table, or None for that of the terminal or of COLUMNS."""
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else _TEXT_WIDTH


class Preview(ABC):
    """The part of the results that a run without a file shows.

    Attributes
    ----------
    is_shown : bool
        True if rows are printed already.
    """

    is_shown: bool = False

    @abstractmethod
    def take(self, name: str, batch: pa.RecordBatch) -> bool:
        """Take results of a query; return True when there are enough to show."""

    @abstractmethod
    def take_counts(self, name: str, batch: pa.RecordBatch) -> None:
        """Take rows of output "count", in place of results that are no longer listed."""

    @abstractmethod
    def show(self) -> None:
        """Print them, once."""

    @abstractmethod
    def finish(self, totals: Totals, so_far: str = "") -> None:
        """Print them, unless that is done, and how much there is of all."""


class FirstRows(Preview):
    """The first rows of a result, shown as soon as there are enough of them.

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
        """Take the rows of a batch that are wanted; return True with the last one."""
        if self._n_rows >= self._n_wanted:
            return False
        self._pieces.append(batch.slice(0, self._n_wanted - self._n_rows))
        self._n_rows += self._pieces[-1].num_rows
        return self._n_rows == self._n_wanted

    def take_counts(self, name: str, batch: pa.RecordBatch) -> None:
        """Leave the first rows as they are."""

    def show(self) -> None:
        """Print the rows as a table, once."""
        if not self.is_shown:
            self.is_shown = True
            show_text(preview(pa.Table.from_batches(self._pieces, self._schema), table_width()))
            self._pieces.clear()

    def finish(self, totals: Totals, so_far: str = "") -> None:
        """Print the rows as a table, unless that is done, and the number of all."""
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
    """The number of results of each query, with the first and the last of them, shown at the end."""

    def __init__(self) -> None:
        self._firsts: dict[str, pa.RecordBatch] = {}
        self._lasts: dict[str, pa.RecordBatch] = {}

    def take(self, name: str, batch: pa.RecordBatch) -> bool:
        """Keep the first row and the last one."""
        if batch.num_rows:
            self._firsts.setdefault(name, batch.slice(0, 1))
            self._lasts[name] = batch.slice(batch.num_rows - 1)
        return False

    def take_counts(self, name: str, batch: pa.RecordBatch) -> None:
        """Keep the last row."""
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
        found = totals.found if n_finding else "no matches"
        show_text(f"{n_finding:,} of {counted(len(numbers), 'query')} found {found}{so_far}")


def _heading_of_tally(tally: Tally) -> str:
    n = tally.n_rows if tally.n_matches is None else tally.n_matches
    return f"{n:,}{'+' if tally.limit_reached else ''}"


def end_of(row: pa.RecordBatch | None) -> str:
    """Return the time, or else the position, of the end of a result; "" where there is none."""
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
    left_out = []
    if "events" in rows.column_names and console.width < NARROW:
        left_out = [name for name in ("start_time", "end_time") if name in rows.column_names]
        rows = rows.drop_columns(left_out)
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
    room = console.width - 2 - sum(widths) - GAP * (len(columns) - 1)
    least = sum(w if c.no_wrap else min(w, WORD) for c, w in zip(table.columns, widths, strict=True))
    is_cut = room + sum(widths) < least
    for i, values in events.items():
        length = max(room + widths[i], MIN_EVENT)
        columns[i], some_cut = _event_lines(values, length)
        is_cut |= some_cut
    for row in zip(*columns, strict=True):
        table.add_row(*map(Text, row))
    with console.capture() as captured:
        console.print(table)
    text = "\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n")
    without = f"\n(without {' and '.join(left_out)}: COLUMNS={NARROW} shows them)" if left_out else ""
    return text + without + (f"\n{CUT_EVENTS if events else CUT}" if is_cut else "")


def cells(values: pa.Array) -> list[str]:
    """Return the texts of a column: beginnings of long texts and lists, and each event on a line."""
    kind = values.type
    if pa.types.is_list(kind):
        return _event_lines(values, _TEXT_WIDTH)[0] if pa.types.is_struct(kind.value_type) else _list_strings(values)
    return _cells(values)


def _cells(values: pa.Array) -> list[str]:
    return ["null" if text is None else _escaped_beginning(text) for text in plain_values(values).to_pylist()]


def _escaped_beginning(text: str) -> str:
    """Return the beginning of a text, with control characters escaped."""
    return _cut(printable(text[: SHOWN_TEXT + 1]), SHOWN_TEXT)


def _cut(text: str, n: int) -> str:
    return text if len(text) <= n else text[: n - 1] + "…"


def _list_strings(values: pa.Array) -> list[str]:
    """Return lists of positions, or of values of events, as texts."""
    gap = " " if pa.types.is_integer(values.type.value_type) else ", "
    cells, bounds = _cells(values.values), values.offsets.to_pylist()
    texts = []
    for first, last, known in zip(bounds, bounds[1:], values.is_valid().to_pylist(), strict=False):
        shown = [cells[first + i] for i in _shown_indices(last - first)]
        if last - first > SHOWN_ITEMS:
            shown[-1:] = ["...", shown[-1], f"({last - first} events)"]
        texts.append(gap.join(shown) if known else "null")
    return texts


def _event_lines(values: pa.Array, length: int) -> tuple[list[str], bool]:
    """Return the events of each row, one on a line of at most `length` characters, and True if a line was cut."""
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
    texts = []
    for n in lengths:
        own = list(itertools.islice(lines, len(_shown_indices(n))))
        if n > SHOWN_ITEMS:
            own[-1:] = [f"... ({n} events)", own[-1]]
        texts.append("\n".join(own))
    return texts, any(len(line) > length for line in whole)


def _shown_indices(n: int) -> list[int]:
    """Return the indices of the shown ones among n items: all, or the first ones and the last."""
    return list(range(n)) if n <= SHOWN_ITEMS else [*range(SHOWN_ITEMS - 2), n - 1]


class FunnelPreview(Preview):
    """The steps, shown at the end: the starts that reached each, the median time to it, and what stopped them there.

    Parameters
    ----------
    counts
        Counts of the rows so far; the run takes them.
    """

    def __init__(self, counts: FunnelCounts) -> None:
        self._counts = counts

    def take(self, name: str, batch: pa.RecordBatch) -> bool:
        """Show nothing before the end."""
        return False

    def take_counts(self, name: str, batch: pa.RecordBatch) -> None:
        """Take nothing: starts are listed to the end."""

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
    """Return the steps as a table of texts to read."""
    rows = counts.rows
    columns: dict[str, Any] = {
        "step": [f"{k}. {row.name}" for k, row in enumerate(rows, 1)],
        "starts": right([f"{row.n_reached:,}" for row in rows]),
        "of previous step": right([_share(row.of_previous) for row in rows]),
        "of first": right([_share(row.of_first) for row in rows]),
        "median from start": right([counts.median_in_words(row.median) for row in rows]),
    }
    for ending in STOPS:
        columns[ending] = right([f"{n:,}" if n else "" for n in (row.stopped[ending] for row in rows)])
    return pa.table(columns)


def funnel_facts(counts: FunnelCounts) -> dict[str, Any]:
    """Return the steps as plain data; medians are in `unit`."""
    return {"unit": counts.unit, "steps": [asdict(row) for row in counts.rows]}


def right(texts: list[str]) -> list[str]:
    """Return texts of one width, moved to its right edge."""
    width = max(map(len, texts), default=0)
    return [text.rjust(width) for text in texts]


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
