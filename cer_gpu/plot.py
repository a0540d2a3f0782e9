"""Pictures of matches with Matplotlib (the extra ``plot``): a timeline, and a histogram of durations."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array
from cer_gpu.engine.evaluation_options import options_by_name
from cer_gpu.errors import CerError, OptionError
from cer_gpu.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LINES = 20_000
"""Maximum number of matches drawn; of more, an evenly spread sample of about that size is drawn."""
MAX_LANES = 40
"""Maximum number of values of a column that have a row."""
_UNITS = (("seconds", 1), ("minutes", 60), ("hours", 3600), ("days", 86_400))


@options_by_name
def timeline(matches: pa.Table, ax: Axes | None = None, *, by: str | None = None, **style: Any) -> Axes:
    """Draw each match as a line from its start to its end.

    Parameters
    ----------
    matches
        Result of `cer_gpu.Query.evaluate`, for any output but "count" and "ends".  Drawn by times if there are any,
        else by positions.  More than 20,000 matches are thinned to that number, spread evenly, and the title says
        so.
    ax
        Axes to draw on; None for a new figure.
    by
        A column, such as a key of PARTITION BY: a row for each of its values, in the order in which they first occur;
        of more than 40 values, for those with most matches, and the title says so.  None for rows in which no two
        matches overlap, as few as it takes.
    **style
        Options of `matplotlib.axes.Axes.hlines`, such as ``color``.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    OptionError
        When the table lacks the starts and ends of matches, or the column `by`.
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
    shown = np.arange(n) if n <= MAX_LINES else np.unique(np.linspace(0, n - 1, MAX_LINES).astype(np.int64))
    title = "" if len(shown) == n else f"{len(shown):,} of {n:,} matches"
    if by is None:
        heights = _lanes(begins[shown], ends[shown])
        ax.set_ylabel("matches at a time")
    else:
        if by not in matches.column_names:
            raise OptionError(f"no column {by!r}\nhint: the columns are {', '.join(matches.column_names)}")
        coded = matches[by].combine_chunks().dictionary_encode("encode")
        names = [_plain_label(str(name)) for name in coded.dictionary.to_pylist()]
        codes = coded.indices.to_numpy()
        if len(names) > MAX_LANES:
            largest = np.sort(np.argsort(-np.bincount(codes, minlength=len(names)), kind="stable")[:MAX_LANES])
            title = ", ".join([*([title] if title else []), f"the {MAX_LANES} of {len(names):,} with most matches"])
            shown = shown[np.isin(codes[shown], largest)]
            codes, names = np.searchsorted(largest, codes), [names[k] for k in largest]
        heights = codes[shown]
        ax.set_yticks(range(len(names)), names)
        ax.set_ylabel(_plain_label(by))
    ax.hlines(heights, begins[shown], ends[shown], **{"linewidth": 2} | style)
    ax.plot(begins[shown], heights, "|", color=style.get("color", "C0"), markersize=5)
    ax.set_xlabel(label)
    if title:
        ax.set_title(title)
    return ax


def _lanes(begins: Array, ends: Array) -> Array:
    """Return for each match the lowest row in which it overlaps none that begins before it."""
    lanes = np.zeros(len(begins), np.int64)
    free: list[int] = []  # rows that are free again
    busy: list[tuple[Any, int]] = []  # ends, and rows
    n = 0
    for at in np.lexsort((ends, begins)):
        while busy and busy[0][0] < begins[at]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, n = n, n + 1
        lanes[at] = lane
        heapq.heappush(busy, (ends[at], lane))
    return lanes


@options_by_name
def durations(matches: pa.Table, ax: Axes | None = None, **style: Any) -> Axes:
    """Draw a histogram of the durations of matches.

    Parameters
    ----------
    matches
        Result of `cer_gpu.Query.evaluate`, for any output but "count" and "ends".
    ax
        Axes to draw on; None for a new figure.
    **style
        Options of `matplotlib.axes.Axes.hist`, such as ``bins``.

    Returns
    -------
    matplotlib.axes.Axes
        Durations are in seconds, minutes, hours or days, in the unit of the time column if it holds integers, or in
        positions without one.

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
        lengths = lengths / np.timedelta64(1, "s")
        median = np.median(lengths) if len(lengths) else 0.0
        unit, seconds = next((each for each in reversed(_UNITS) if median >= 2 * each[1]), _UNITS[0])
        lengths = lengths / seconds
    ax.hist(lengths, **{"bins": 40} | style)
    ax.set_xlabel(f"duration ({unit})")
    ax.set_ylabel("matches")
    return ax


def _axes(ax: Axes | None) -> Axes:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise CerError(
            "pictures need Matplotlib\nhint: pip install 'cer-gpu[plot]', or pip install matplotlib"
        ) from None
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def _spans(matches: pa.Table) -> tuple[Array, Array, str]:
    """Return the starts and ends of matches, as numbers or timestamps, and the name of the axis."""
    names = matches.column_names
    timed = "start_time" in names
    wanted = ["start_time", "end_time"] if timed else ["start", "end"]
    for name in wanted:
        if name not in names:
            raise OptionError(f"expected matches with a column {name!r}, got {', '.join(names) or 'no columns'}")
    begins, ends = (_plot_numbers(matches[name].combine_chunks()) for name in wanted)
    return begins, ends, "time" if timed else "position"


def _plot_numbers(values: pa.Array) -> Array:
    kind = values.type
    if pa.types.is_date32(kind):
        values = values.cast(pa.timestamp("s"))
    elif pa.types.is_date64(kind):
        values = values.cast(pa.timestamp("ms"))
    return values.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _plain_label(text: str) -> str:
    """Return a text that Matplotlib draws as it is; between two dollars it would read a formula."""
    return printable(text).replace("$", r"\$")
