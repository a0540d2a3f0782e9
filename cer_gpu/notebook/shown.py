"""Results of a query as a cell of a notebook shows them: how many there are, the first as a table, and a timeline."""

from __future__ import annotations

import base64
import io
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.cli.preview import cells, preview
from cer_gpu.cli.tally import Tally, counted
from cer_gpu.frames.matching import CompiledForFrame
from cer_gpu.plot import timeline
from cer_gpu.printable import html_text
from cer_gpu.query import Query

_TEXT_WIDTH = 120
"""Width of the table in a terminal, in characters."""
MAX_LANES = 40
"""Most values of a key that have a line of their own in the picture."""


class Shown:
    """Results of a query, to be displayed.

    Attributes
    ----------
    result
        The results as a frame of the kind of the events.
    """

    def __init__(self, query: CompiledForFrame, result: Any, found: pa.Table, output: str | None, n_rows: int) -> None:
        self.result = result
        self._query = query
        self._found = found
        self._output = output
        self._first = found.slice(0, max(n_rows, 0))

    @property
    def _summary(self) -> str:
        """The number of results, and of those that are shown."""
        n_rows = self._found.num_rows
        if not isinstance(self._query, Query):
            every = counted(n_rows, "row")
        elif n_rows == 0:
            return "no complex events"
        else:
            tally = Tally(self._output or self._query.default_output)
            for batch in self._found.to_batches():
                tally.take(batch)
            every = str(tally)
        n_shown = self._first.num_rows
        return every if n_shown == n_rows else f"the first {n_shown:,} of {every}"

    def __repr__(self) -> str:
        """Show the first results in a terminal."""
        return f"{preview(self._first, _TEXT_WIDTH)}\n{self._summary}" if self._first.num_rows else self._summary

    def _repr_html_(self) -> str:
        """Show the first results and the timeline in a notebook."""
        return f"<div>{self._table()}<p>{html_text(self._summary)}</p>{self._picture()}</div>"

    def _table(self) -> str:
        if not self._first.num_rows:
            return ""
        columns = [cells(column.combine_chunks()) for column in self._first.columns]
        heads = "".join(f"<th>{html_text(name)}</th>" for name in self._first.column_names)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html_text(cell).replace(chr(10), '<br>')}</td>" for cell in row) + "</tr>"
            for row in zip(*columns, strict=True)
        )
        return f'<div style="overflow-x: auto"><table><tr>{heads}</tr>{rows}</table></div>'

    def _picture(self) -> str:
        """Return the timeline as an element of HTML; "" without one, or without Matplotlib."""
        found = self._found
        if not isinstance(self._query, Query) or not {"start", "end"} <= {*found.column_names} or not found.num_rows:
            return ""
        if find_spec("matplotlib") is None:
            return ""
        from matplotlib.figure import Figure

        keys = [names[0] for names in self._query.partition_keys if names[0] in found.column_names]
        by = keys[0] if keys and pc.count_distinct(found[keys[0]], mode="all").as_py() <= MAX_LANES else None
        figure = Figure(figsize=(8, 2.5), layout="constrained")
        timeline(found, figure.subplots(), by=by)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=96)
        return f'<img alt="timeline" src="data:image/png;base64,{base64.b64encode(file.getvalue()).decode("ascii")}">'
