"""Moments of alerts on one axis of time, drawn as bars."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int64
from cer_gpu.io.texts import plain_values
from cer_gpu.printable import html_text

_NO_FRACTION = re.compile(r"(:\d\d)\.0+(?!\d)")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*")
_DAY, _MINUTE, _SECOND = 10, 16, 19
_BINS = 120
_LABELS = 5
_TALL, _LOW = 40, 24


class TimeLine:
    """Axis of the ends of alerts.

    Parameters
    ----------
    moments
        All of them.
    kind
        Type of the time column; None: they are positions.
    """

    def __init__(self, moments: Int64, kind: pa.DataType | None) -> None:
        self._low, self._high = (int(moments.min()), int(moments.max())) if len(moments) else (0, 0)
        self._kind = kind

    def bars(self, moments: Int64) -> str:
        """Return a picture of numbers over time; each bar tells its moment and number."""
        counts = self._counts(moments)
        most = max(int(counts.max()), 1)
        bars = []
        for i in np.flatnonzero(counts).tolist():
            tall = max(_TALL * int(counts[i]) / most, 2)
            begin = self._low + int((self._high - self._low) * i / _BINS)
            told = f"{int(counts[i]):,} from {self._text(begin)}"
            bars.append(
                f'<rect x="{i * 10}" y="{_TALL - tall:.1f}" width="9" height="{tall:.1f}">'
                f"<title>{html_text(told)}</title></rect>"
            )
        drawn = f'<svg viewBox="0 0 {_BINS * 10} {_TALL}" preserveAspectRatio="none" role="img" aria-label="over time">'
        return f"{drawn}{''.join(bars)}</svg>"

    def outline(self, moments: Int64) -> str:
        """Return a small picture of numbers over time, with words on all of it; "" where there are no moments."""
        if not len(moments):
            return ""
        counts = self._counts(moments)
        heights = np.maximum(_LOW * counts / counts.max(), 2).round().astype(int).tolist()
        bars = "".join(f"M{i * 10} {_LOW}v-{heights[i]}h9v{heights[i]}z" for i in np.flatnonzero(counts).tolist())
        first, last = self.edges(moments)
        when = f"at {first}" if first == last else f"from {first} to {last}"
        return (
            f'<svg viewBox="0 0 {_BINS * 10} {_LOW}" preserveAspectRatio="none" role="img">'
            f'<title>{len(moments):,} {html_text(when)}</title><path d="{bars}"/></svg>'
        )

    def edges(self, moments: Int64) -> tuple[str, str]:
        """Return the texts of the first and the last of some moments; "" where there are none."""
        return (self._text(int(moments.min())), self._text(int(moments.max()))) if len(moments) else ("", "")

    def labels(self, n_before: int) -> str:
        """Return a row of a table, with moments that lie evenly on the axis below its last column."""
        n = 1 if self._low == self._high else _LABELS
        texts = _as_short_as_distinct(self._texts(np.linspace(self._low, self._high, n).astype(np.int64)))
        labels = "".join(f"<span>{html_text(text)}</span>" for text in texts)
        return f'<tr class="axis">{"<td></td>" * n_before}<td><div class="labels">{labels}</div></td></tr>'

    def _counts(self, moments: Int64) -> Int64:
        """Return the number of moments in each of `_BINS` parts of the axis."""
        width = max(self._high - self._low, 1) / _BINS
        bins = np.minimum(((moments - self._low) / width).astype(np.int64), _BINS - 1)
        return np.bincount(bins, minlength=_BINS)

    def _text(self, moment: int) -> str:
        return self._texts(np.array([moment]))[0]

    def _texts(self, moments: Int64) -> list[str]:
        if self._kind is None:
            return [f"{moment:,}" for moment in moments.tolist()]
        values = pa.array(moments)
        if self._kind.bit_width == 32:
            values = values.cast(pa.int32())
        texts: list[str] = plain_values(values.cast(self._kind)).to_pylist()
        return [_NO_FRACTION.sub(r"\1", text) for text in texts]


def _as_short_as_distinct(texts: list[str]) -> list[str]:
    """Return moments to the day, the minute or the second, whichever tells them apart."""
    if all(_MOMENT.fullmatch(text) for text in texts):
        for length in (_DAY, _MINUTE, _SECOND):
            if len(texts) > 1 and len({text[:length] for text in texts}) == len(texts):
                return [text[:length] for text in texts]
    return texts
