"""Options of an evaluation: one record, the same in every call, checked before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, ParamSpec, TypeVar

from cer_gpu.columnar.memory_limit import size_in_bytes
from cer_gpu.errors import OptionError, did_you_mean
from cer_gpu.order.reorder import LATE
from cer_gpu.predicates.placement import check_device
from cer_gpu.stages import NO_STAGES, Stages

DEVICES = ("auto", "cpu", "cuda")
RAISE, SKIP = "raise", "skip"
"""Treatments of queries of a set that are wrong."""


class Default(str):
    """A text that nobody gave: where a language has another one of its own, that stands in its place."""

    __slots__ = ()


Lateness = str | int | float | timedelta
_OF_MACHINE = ("device", "stages", "sort", "threads", "max_memory", "forecast", "threshold", "event_taker")
_SHOWN = 3
"""Most options that a message on arguments by position shows."""
Sort = bool | str | Sequence[str]
REPORT, HOLD = UNDECIDED = ("report", "hold")
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """Options of an evaluation, which `evaluate`, `stream`, `count` and `evaluator` take by their names.

    They are the same for a `cer_gpu.Query`, for a `cer_gpu.QuerySet`, whose queries they hold for, for frames, and, as
    far as they make sense there, on the command line and on Spark.

    Parameters
    ----------
    device
        Device that evaluates predicates: "cpu", "cuda" (an error without a GPU), or "auto": the CPU, or a GPU if
        there is one and it is measured to take less time.  Predicates that queries of a set share are evaluated by the
        CPU, unless a GPU is asked for.
    output
        "positions", "bindings", "events", "count", "ends", "measures", "rows" or "funnel"; None: "measures" where
        SELECT has some, else "positions".
    sort
        Sort the events by the time column first, on disk where they do not fit into memory; equal times keep
        their order.  Names of columns, the time column first: equal times are in the order of the others
        (``["ts", "sequence"]``), ascending, NULL last.  Each stream of a mapping is sorted by itself.  Not for
        `evaluator`, whose events come in order.
    lateness
        Put events in order that arrive out of order by at most so much: ``"5s"`` (also ms, us, ns, min, h, d),
        a timedelta, or a number of units of the time column.  They are held back for as long.
    late
        Treatment of events that come later than that: "raise" (an error) or "drop".
    threads
        Number of threads that evaluate ranges of the stream, each with the window before it; None: as many as
        help (one for a stream of unknown length, whose results should not wait for a whole range).  With
        PARTITION BY, a query without WITHIN, with WITHIN n EVENTS, CONSUME BY PARTITION, LIMIT or a selection
        strategy other than STRICT is evaluated by shares of the keys.  Without PARTITION BY such a query is
        evaluated on one thread, and so are a shard, and CONSUME BY ANY.  A set goes by ranges if all of its queries can
        and measure their windows alike, else by shares of the queries, or of the keys of each where there are few
        queries; None: a set of more than 16 is evaluated on one thread.
    share
        ``(k, n)``: read everything, and list only share k (from 0) of n of the complex events.  The shares are
        disjoint, make up the whole together, and are of like size; no share needs to know of another.
    limit
        Stop after so many results: complex events (of "bindings" and "measures", rows), or ends for "count" and
        "ends".  ``LIMIT n`` in the query is another thing: at most n at each end.  Each query of a set has its own.
    aggregate
        For "count": what is shown of the complex events of an end in place of their number, in a column of this
        name: ``"SUM(c.amount - a.amount)"``, or AVG, MIN or MAX of an expression over the events of variables that
        SELECT keeps; or ``"COUNT(*)"``.  It is over the rows of "bindings", which are listed for it, and not kept.
    errors
        Treatment of a query of a set that does not fit the events: "raise", or "skip": it is left out, and named with
        the reason in `skipped` of the set and of the evaluator.  None: as `compile_all` was asked.
    undecided
        Complex events that only the end of the input completes, as no event came that shows that the window of an
        absence has passed: "report", or "hold", which leaves them out and counts them in a note.
    max_memory
        Most memory, for each query and thread, for complex events that are needed all at once, as those of one end
        are for a choice among them, and for those that wait until a window has passed: ``"2GiB"``, ``"500MB"`` or a
        number of bytes; None: half of what the machine, or a limit of the process, allows.  More is an
        `OutOfMemoryError` that names the end.  Results, and the events of a window, are not counted.
    position_column
        For `evaluator`, and events taken from a larger stream: an int64 column that tells the position of each event,
        which is reported; positions ascend.  It is no attribute.  `WITHIN n EVENTS` and contiguity go by it, so that
        events that the query does not need may be left out; with PARTITION BY, they count the events of a partition as
        they come.
    report_from
        For `evaluator`: complex events that end before this position are not listed, though their events are read.
    stages
        For `evaluator`: the hook that is told when a stage of the evaluation begins and ends (`cer_gpu.stages`), on
        one thread.
    forecast
        For `evaluator`: a `cer_gpu.Forecast` of the query; it then returns the events after which the probability of a
        match first passes the threshold (`cer_gpu.Forecast.forecast`), in place of matches; for a set, a
        mapping from names of queries to forecasts.
    threshold
        For `evaluator` with `forecast`: the probability, above 0 and below 1; None: 0.5.
    start_position, key_shard
        Number of the first event, and share (k, n) of the keys to evaluate: of evaluations of a part of the stream.
    event_taker
        Takes all events, of evaluations that follow states (`cer_gpu.forecast`).

    Examples
    --------
    >>> import cer_gpu
    >>> cer_gpu.EvaluationOptions(limit=3).late
    'raise'
    >>> cer_gpu.compile("SELECT * FROM S WHERE A ; B").evaluate("events.csv", limt=3)
    Traceback (most recent call last):
        ...
    cer_gpu.errors.OptionError: no option 'limt' here
    hint: did you mean 'limit'?
    """

    device: str = "auto"
    output: str | None = None
    sort: Sort = False
    lateness: Lateness | None = None
    late: str = "raise"
    threads: int | None = None
    shard: tuple[int, int] | None = None
    limit: int | None = None
    aggregate: str | None = None
    errors: str | None = None
    undecided: str = REPORT
    max_memory: str | int | None = None
    position_column: str | None = None
    report_from: int = 0
    stages: Stages = NO_STAGES
    forecast: Any = None
    threshold: float | None = None
    start_position: int = 0
    key_shard: tuple[int, int] | None = None
    event_taker: Any = None

    def __post_init__(self) -> None:
        """Refuse an option that has no such value.

        Raises
        ------
        OptionError
        """
        if self.device not in DEVICES:
            raise OptionError(f"device must be one of {', '.join(DEVICES)}, got {self.device!r}")
        check_device(self.device)
        if self.threads is not None and (type(self.threads) is not int or self.threads < 1):
            raise OptionError(f"threads must be a positive number, or None for as many as help, got {self.threads!r}")
        if self.limit is not None and (type(self.limit) is not int or self.limit < 0):
            raise OptionError(f"limit must be a number from 0 on, or None for all, got {self.limit!r}")
        if self.shard is not None:
            shard = self.shard
            is_pair = isinstance(shard, tuple) and len(shard) == 2 and all(type(number) is int for number in shard)
            if not is_pair or not 0 <= shard[0] < shard[1]:
                raise OptionError(f"shard must be (k, n) with 0 <= k < n, got {shard!r}")
        if self.errors is not None:
            check_errors(self.errors)
        if self.max_memory is not None:
            size_in_bytes(self.max_memory)
        if self.undecided not in UNDECIDED:
            raise OptionError(f"undecided must be one of {', '.join(UNDECIDED)}, got {self.undecided!r}")
        if self.threshold is not None:
            if self.forecast is None:
                raise OptionError("threshold is that of a forecast\nhint: forecast=query.fit(history, within=...)")
            if not isinstance(self.threshold, int | float) or not 0 < self.threshold < 1:
                raise OptionError(f"threshold must be a probability, above 0 and below 1, got {self.threshold!r}")
        if self.late not in LATE:
            raise OptionError(f"late must be one of {', '.join(LATE)}, got {self.late!r}")

    @property
    def kept(self) -> dict[str, Any]:
        """Options of a checkpoint, as JSON holds them: another machine need not have the device."""
        options = {name: value for name, value in vars(self).items() if name not in _OF_MACHINE}
        if isinstance(self.lateness, timedelta):
            options["lateness"] = f"{self.lateness // timedelta(microseconds=1)}us"
        return options

    def check_time(self, time_column: str | None) -> None:
        """Refuse late events, and a sort, of a stream without a time column.

        Raises
        ------
        OptionError
        """
        hint = "name the time column\nhint: time_column=... (--time-column)"
        if self.lateness is not None and time_column is None:
            raise OptionError(f"lateness is measured in time: {hint}")
        if self.sort and time_column is None:
            raise OptionError(f"events are sorted by time: {hint}")
        if time_column is not None:
            self.ties(time_column)

    def ties(self, time_column: str) -> tuple[str, ...]:
        """Return the columns by which events of one time are sorted.

        Raises
        ------
        OptionError
            When the first name of `sort` is not that of the time column.
        """
        names = () if isinstance(self.sort, bool) else (self.sort,) if isinstance(self.sort, str) else tuple(self.sort)
        if not all(isinstance(name, str) for name in names) or (names and names[0] != time_column):
            raise OptionError(
                f"sort begins with the time column {time_column!r}, got {self.sort!r}\n"
                f"hint: sort=[{time_column!r}, ...] (--sort {time_column},...)"
            )
        return names[1:]

    @classmethod
    def given(cls, options: Mapping[str, Any], known: tuple[str, ...]) -> EvaluationOptions:
        """Return options given by their names, of which some are known.

        Raises
        ------
        OptionError
            For an unknown name, with the nearest one, and for a value that an option cannot have.
        """
        _check_names(options, known)
        return cls(**options) if options else USUAL_OPTIONS


def check_errors(value: str) -> None:
    """Raise OptionError for a treatment of queries that are wrong that there is none of."""
    if value not in (RAISE, SKIP):
        raise OptionError(f"errors must be {RAISE!r} or {SKIP!r}, got {value!r}")


USUAL_OPTIONS = EvaluationOptions()
"""Options of an evaluation of which nothing is said."""
FIELDS = {field.name: field for field in fields(EvaluationOptions)}
OF_EVENTS = tuple(FIELDS)[: tuple(FIELDS).index("position_column")]
"""Options over given events."""
OF_ARRIVALS = tuple(name for name in FIELDS if name not in ("sort", "start_position", "key_shard", "event_taker"))
"""Options over events that arrive batch by batch."""
OF_COUNTS = tuple(name for name in OF_EVENTS if name not in ("output", "limit", "aggregate"))
"""Options of a count."""


def _check_names(options: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in options:
        if name not in known:
            raise OptionError(f"no option {name!r} here\nhint: {did_you_mean(name, known, 'options')}")


def options_by_name(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Let a function say that its options go by name where one is given by position (`OptionError`)."""
    parameters = list(signature(function).parameters.values())

    @wraps(function)
    def checked(*arguments: _Given.args, **options: _Given.kwargs) -> _Result:
        check_positions(function.__name__, parameters, arguments)
        return function(*arguments, **options)

    return checked


def check_positions(name: str, parameters: Iterable[Parameter], arguments: Sequence[object]) -> None:
    """Refuse arguments by position that are more than a function takes, in one line that names its options.

    Raises
    ------
    OptionError
    """
    parameters = list(parameters)
    places = [each.name for each in parameters if each.kind == Parameter.POSITIONAL_OR_KEYWORD]
    if len(arguments) <= len(places):
        return
    is_method = places[:1] == ["self"]
    named = [f"{each.name}=" for each in parameters if each.kind == Parameter.KEYWORD_ONLY]
    shown = ", ".join(named[:_SHOWN]) + (", ..." if len(named) > _SHOWN else "")
    taken = ", ".join(places[is_method:]) or "nothing"
    n = len(arguments) - is_method
    raise OptionError(
        f"{name}() takes {taken} by position, got {n} argument{'' if n == 1 else 's'}: its options go by name"
        + (f" ({shown})" if shown else "")
    )


def checking_names(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Let a function name the nearest of its options for one that it does not have (`OptionError`)."""
    by_name = options_by_name(function)
    known = tuple(signature(function).parameters)

    @wraps(function)
    def checked(*arguments: _Given.args, **options: _Given.kwargs) -> _Result:
        _check_names(options, known)
        return by_name(*arguments, **options)

    return checked


def taking(known: tuple[str, ...]) -> Callable[[Callable[..., _Result]], Callable[..., _Result]]:
    """Let a method whose last parameter is a record of options take the known ones by their names."""

    def decorate(method: Callable[..., _Result]) -> Callable[..., _Result]:
        *given, record = signature(method).parameters.values()
        named = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=FIELDS[name].default, annotation=FIELDS[name].type)
            for name in known
        ]

        @wraps(method)
        def taking_options(*arguments: Any, **options: Any) -> _Result:
            check_positions(method.__name__, [*given, *named], arguments)
            events = {each.name: options.pop(each.name) for each in given if each.name in options}
            return method(*arguments, **events, **{record.name: EvaluationOptions.given(options, known)})

        taking_options.__signature__ = Signature(  # type: ignore[attr-defined]
            [*given, *named], return_annotation=signature(method).return_annotation
        )
        return taking_options

    return decorate
