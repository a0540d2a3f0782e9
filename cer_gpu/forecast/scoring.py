"""Scores of forecasts over events whose outcome is known, with those of the base rate, and their calibration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int64
from cer_gpu.forecast.estimates import NORMAL_99, Floats, wilson

_GROUPS = 10
"""Groups of a table of calibration: deciles of the probabilities."""


@dataclass(frozen=True)
class Score:
    """Scores of forecasts; `str()` shows them.

    Attributes
    ----------
    table : pyarrow.Table
        A row for each length: ``within``, ``cases`` (events whose outcome is known), ``ended`` (those after which a
        match ended within the length), ``base_rate`` (that of the history), and ``brier``, ``log_loss`` and ``auc``
        (the area under the curve), each of the first two followed by the same of the base rate: ``brier_base``,
        ``log_loss_base``.  The area under the curve of a base rate is 0.5; it is NULL where all outcomes are alike.
    calibration : pyarrow.Table
        For each length and decile of the probabilities: ``within``, ``cases``, ``predicted`` (their mean), ``observed``
        (the fraction after which a match ended), and ``low`` and ``high``, the 99% interval of that fraction.  Events
        of one state are not split, so that there may be fewer rows than ten.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa
    >>> events = pa.table({"type": ["A", "C", "B", "C"] * 500})
    >>> score = cer_gpu.compile("SELECT * FROM S WHERE A ; B").fit(events, within=["2 events"]).score(events)
    >>> row = score.table.to_pylist()[0]
    >>> row["cases"], row["ended"], row["log_loss"] < row["log_loss_base"]
    (1998, 1000, True)
    """

    table: pa.Table
    calibration: pa.Table

    def __str__(self) -> str:
        """Return the scores as lines of text."""
        lines = []
        for row in self.table.to_pylist():
            auc = "-" if row["auc"] is None else f"{row['auc']:.3f}"
            lines.append(
                f"within {row['within']}: {row['ended']:,} of {row['cases']:,} events; log loss {row['log_loss']:.5f} "
                f"(base rate {row['log_loss_base']:.5f}), Brier {row['brier']:.5f} ({row['brier_base']:.5f}), AUC {auc}"
            )
            for group in self.calibration.to_pylist():
                if group["within"] == row["within"]:
                    lines.append(
                        f"  predicted {group['predicted']:.4f}, observed {group['observed']:.4f} "
                        f"({group['low']:.4f} to {group['high']:.4f}; {group['cases']:,} events)"
                    )
        return "\n".join(lines)


def score_rows(within: str, probabilities: Floats, ended: Int64, others: Int64) -> tuple[dict[str, object], pa.Table]:
    """Return the scores for one length, and its table of calibration.

    Parameters
    ----------
    within
    probabilities : float64, shape (n,)
        Probabilities of the contexts; the first one is the base rate.
    ended, others : int64, shape (n,)
        Events for which each context answered: those after which a match ended in time, and the others whose outcome is
        known.
    """
    cases = ended + others
    n = max(int(cases.sum()), 1)
    base = np.full(len(probabilities), probabilities[0])
    row: dict[str, object] = {
        "within": within,
        "cases": int(cases.sum()),
        "ended": int(ended.sum()),
        "base_rate": float(probabilities[0]),
        "brier": _brier(probabilities, ended, others) / n,
        "brier_base": _brier(base, ended, others) / n,
        "log_loss": _log_loss(probabilities, ended, others) / n,
        "log_loss_base": _log_loss(base, ended, others) / n,
        "auc": _area(probabilities, ended, others),
    }
    order = np.argsort(probabilities, kind="stable")
    order = order[cases[order] > 0]
    begins = np.cumsum(cases[order]) - cases[order]
    groups = np.minimum(begins * _GROUPS // n, _GROUPS - 1)
    _, firsts = np.unique(groups, return_index=True)
    if not len(order):
        return row, CALIBRATION.empty_table()
    n_group, n_ended = np.add.reduceat(cases[order], firsts), np.add.reduceat(ended[order], firsts)
    predicted = np.add.reduceat(probabilities[order] * cases[order], firsts) / n_group
    low, high = wilson(n_ended / n_group, n_group, NORMAL_99)
    columns = [[within] * len(firsts), n_group, predicted, n_ended / n_group, low, high]
    return row, pa.table([pa.array(each) for each in columns], schema=CALIBRATION)


CALIBRATION = pa.schema(
    {
        "within": pa.string(),
        "cases": pa.int64(),
        "predicted": pa.float64(),
        "observed": pa.float64(),
        "low": pa.float64(),
        "high": pa.float64(),
    }
)
SCORES = pa.schema(
    {
        "within": pa.string(),
        "cases": pa.int64(),
        "ended": pa.int64(),
        **dict.fromkeys(
            ("base_rate", "brier", "brier_base", "log_loss", "log_loss_base", "auc"),
            pa.float64(),
        ),
    }
)


def _brier(probabilities: Floats, ended: Int64, others: Int64) -> float:
    return float((ended * (1 - probabilities) ** 2 + others * probabilities**2).sum())


def _log_loss(probabilities: Floats, ended: Int64, others: Int64) -> float:
    return float(-(ended * np.log(probabilities) + others * np.log1p(-probabilities)).sum())


def _area(probabilities: Floats, ended: Int64, others: Int64) -> float | None:
    """Return the chance that an event before the end of a match had the greater probability of two; half if equal."""
    n_pairs = float(ended.sum()) * float(others.sum())
    if not n_pairs:
        return None
    values, which = np.unique(probabilities, return_inverse=True)
    won, lost = (np.bincount(which, each, len(values)) for each in (ended, others))
    below = np.cumsum(lost) - lost
    return float((won * (below + lost / 2)).sum() / n_pairs)
