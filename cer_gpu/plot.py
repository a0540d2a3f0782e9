"""Pictures of complex events with Matplotlib (the extra ``plot``): a timeline, and how long they last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.errors import CerError, OptionError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LINES = 20_000
"""Complex events that are drawn one by one; of more, so many spread evenly."""


def timeline(matches: pa.Table, ax: Axes | None = None, *, by: str | None = None, **style: Any) -> Axes:
    """Draw each complex event as a line from its start to its end.

    Parameters
    ----------
    matches
        What `cer_gpu.Query.evaluate` returns, for any output but "count".  Drawn by the times where there are any, by
        the positions otherwise.  Of more than 20,000, so many are drawn, spread evenly, and the title says so.
    ax
        Where to draw; None: a new figure.
    by
        A column, such as a key of PARTITION BY: a row for each of its values, in the order in which they first occur.
        None: one row for all, each complex event a little above the one before, in the order of their ends.
    **style
        For `matplotlib.axes.Axes.hlines`, such as ``color``.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    OptionError
        When the table holds no complex events by their starts and ends, or has no column `by`.
    CerError
        When Matplotlib is not installed.

    Examples
    --------
    >>> import cer_gpu, cer_gpu.plot, pyarrow as pa
    >>> query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
    >>> ax = cer_gpu.plot.timeline(query.evaluate(pa.table({"type": ["A", "A", "B"]})))
    >>> ax.get_xlabel()
    'position'
    """
    ax = _axes(ax)
    begins, ends, label = _spans(matches)
    n = len(begins)
    shown = np.arange(n) if n <= MOST_LINES else np.unique(np.linspace(0, n - 1, MOST_LINES).astype(np.int64))
    if by is None:
        heights = shown
        ax.set_ylabel("complex event")
    else:
        if by not in matches.column_names:
            raise OptionError(f"no column {by!r}\nhint: the columns are {', '.join(matches.column_names)}")
        coded = matches[by].combine_chunks().dictionary_encode()
        heights = coded.indices.to_numpy()[shown]
        names = [str(name) for name in coded.dictionary.to_pylist()]
        if len(names) <= 40:
            ax.set_yticks(range(len(names)), names)
        ax.set_ylabel(by)
    ax.hlines(heights, begins[shown], ends[shown], **{"linewidth": 2} | style)
    ax.plot(begins[shown], heights, "|", color=style.get("color", "C0"), markersize=5)
    ax.set_xlabel(label)
    if len(shown) < n:
        ax.set_title(f"{len(shown):,} of {n:,} complex events")
    return ax


def durations(matches: pa.Table, ax: Axes | None = None, **style: Any) -> Axes:
    """Draw how long complex events last, as a histogram.

    Parameters
    ----------
    matches
        What `cer_gpu.Query.evaluate` returns, for any output but "count".
    ax
        Where to draw; None: a new figure.
    **style
        For `matplotlib.axes.Axes.hist`, such as ``bins``.

    Returns
    -------
    matplotlib.axes.Axes
        In seconds where there are times, in the unit of the column where those are integers, and in positions where
        there are none.

    Raises
    ------
    OptionError, CerError
        As for `timeline`.

    Examples
    --------
    >>> import cer_gpu, cer_gpu.plot, pyarrow as pa
    >>> query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
    >>> cer_gpu.plot.durations(query.evaluate(pa.table({"type": ["A", "A", "B"]}))).get_xlabel()
    'duration (positions)'
    """
    ax = _axes(ax)
    begins, ends, label = _spans(matches)
    lengths = ends - begins
    unit = {"position": "positions", "time": "units of the time column"}[label]
    if lengths.dtype.kind == "m":
        lengths, unit = lengths / np.timedelta64(1, "s"), "seconds"
    ax.hist(lengths, **{"bins": 40} | style)
    ax.set_xlabel(f"duration ({unit})")
    ax.set_ylabel("complex events")
    return ax


def _axes(ax: Axes | None) -> Axes:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise CerError(
            "pictures need Matplotlib\nhint: pip install 'cer-gpu[plot]', or pip install matplotlib"
        ) from None
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def _spans(matches: pa.Table) -> tuple[npt.NDArray[Any], npt.NDArray[Any], str]:
    """Return where complex events start and end, as numbers or moments, and what the axis is."""
    names = matches.column_names
    timed = "start_time" in names
    wanted = ["start_time", "end_time"] if timed else ["start", "end"]
    for name in wanted:
        if name not in names:
            raise OptionError(f"expected complex events with a column {name!r}, got {', '.join(names) or 'no columns'}")
    begins, ends = (_numbers(matches[name].combine_chunks()) for name in wanted)
    return begins, ends, "time" if timed else "position"


def _numbers(values: pa.Array) -> npt.NDArray[Any]:
    kind = values.type
    if pa.types.is_date32(kind):
        values = values.cast(pa.timestamp("s"))
    elif pa.types.is_date64(kind):
        values = values.cast(pa.timestamp("ms"))
    return values.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
