"""Options of an evaluation, and their check before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from cer_gpu.engine.pipeline import PartRead
from cer_gpu.errors import OptionError
from cer_gpu.order.reorder import LATE
from cer_gpu.predicates.placement import check_device

DEVICES = ("auto", "cpu", "cuda")
Lateness = str | int | float | timedelta


@dataclass(frozen=True)
class EvaluatorOptions:
    """Options of an evaluator; see `cer_gpu.Query.evaluator`.

    `begin` is the number of the first event; `deal` (k, n) restricts the evaluation to share k of n of the keys;
    `limit` is the number of results after which it ends; `aggregate` is the text of an aggregate for "count".
    """

    output: str = "positions"
    lateness: Lateness | None = None
    late: str = "refuse"
    share: tuple[int, int] | None = None
    position_column: str | None = None
    first_end: int = 0
    begin: int = 0
    deal: tuple[int, int] | None = None
    device: str = "auto"
    limit: int | None = None
    aggregate: str | None = None

    @property
    def reading(self) -> PartRead:
        """Part of the stream to read, and of its complex events to list."""
        return PartRead(self.first_end, self.share, self.deal)


def check_options(
    *,
    device: str = "auto",
    threads: int | None = None,
    share: tuple[int, int] | None = None,
    limit: int | None = None,
) -> None:
    """Raise OptionError for an option that has no such value."""
    if device not in DEVICES:
        raise OptionError(f"device must be one of {', '.join(DEVICES)}, got {device!r}")
    check_device(device)
    if threads is not None and (type(threads) is not int or threads < 1):
        raise OptionError(f"threads must be a positive number, or None for as many as help, got {threads!r}")
    if limit is not None and (type(limit) is not int or limit < 0):
        raise OptionError(f"limit must be a number from 0 on, or None for all, got {limit!r}")
    if share is not None:
        is_pair = isinstance(share, tuple) and len(share) == 2 and all(type(number) is int for number in share)
        if not is_pair or not 0 <= share[0] < share[1]:
            raise OptionError(f"share must be (k, n) with 0 <= k < n, got {share!r}")


def check_lateness(lateness: Lateness | None, late: str, time_column: str | None) -> None:
    """Raise OptionError unless late events can be treated as asked for."""
    if late not in LATE:
        raise OptionError(f"late must be one of {', '.join(LATE)}, got {late!r}")
    if lateness is not None and time_column is None:
        raise OptionError("lateness is measured in time: name the time column\nhint: time_column=... (--time-column)")
