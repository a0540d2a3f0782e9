"""The funnel that ``cer-gpu run --output funnel`` shows."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pyarrow as pa

from cer_gpu.cli.command_line import show_text
from cer_gpu.cli.preview import Preview, preview, table_width
from cer_gpu.cli.tally import Totals
from cer_gpu.output.funnel_counts import STOPS, FunnelCounts


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
        show_text(str(tally) + so_far + (", and maybe more" if tally.limit_reached else ""))


def funnel_table(counts: FunnelCounts) -> pa.Table:
    """Return the steps as a table of texts to read."""
    rows = counts.rows
    columns: dict[str, Any] = {
        "step": [f"{k}. {row.name}" for k, row in enumerate(rows, 1)],
        "starts": right([f"{row.n_reached:,}" for row in rows]),
        "of step before": right([_share(row.of_previous) for row in rows]),
        "of first": right([_share(row.of_first) for row in rows]),
        "median from start": right([counts.told(row.median) for row in rows]),
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
