"""Options of an evaluation: one record, the same in every call, checked before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, ParamSpec, TypeVar

from cer_gpu.columnar.memory_limit import size_in_bytes
from cer_gpu.errors import OptionError, did_you_mean
from cer_gpu.order.reorder_buffer import LATE
from cer_gpu.output.form import Output
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.predicates.placement import check_device
from cer_gpu.stages import NO_STAGES, Stages

DEVICES = ("auto", "cpu", "cuda")
RAISE, SKIP = "raise", "skip"
"""Treatments of queries of a set that are wrong."""


class OverridableDefault(str):
    """Default of an option that the caller did not set; a language may substitute its own."""

    __slots__ = ()


Lateness = str | int | float | timedelta
_OF_MACHINE = ("device", "stages", "sort", "threads", "max_memory", "forecast", "threshold", "event_taker")
_SHOWN = 3
"""Most options that a message on arguments by position shows."""
Sort = bool | str | Sequence[str]
REPORT, HOLD = UNDECIDED = ("report", "hold")
_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True)
class CommandOption:
    """Declaration of an option for all commands that have it (`cer_gpu.cli.shared_options`), and the notebook's magic.

    Attributes
    ----------
    help : str
    metavar : str or None
    choices : tuple of str
        Values that it takes; () for any.
    least : int or None
        Least number that it takes, or None if it takes no number.
    timed : bool
        True if it needs a time column.
    of_tables : bool
        True if queries over whole tables have it.
    of_live : bool
        True if live runs have it.
    """

    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: int | None = None
    timed: bool = False
    of_tables: bool = False
    of_live: bool = False


_IN_COMMANDS = "command option"


def _in_commands(text: str, **declared: Any) -> dict[str, CommandOption]:
    """Return the metadata of a field that is an option of commands, too."""
    return {_IN_COMMANDS: CommandOption(help=text, **declared)}


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
        CPU, unless a GPU is requested.
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
        a timedelta, or a number of units of the time column.  They are buffered for as long.
    late
        Treatment of events that come later than that: "raise" (an error) or "drop".
    threads
        Number of threads that evaluate ranges of the stream, each with the window before it; None: as many as
        help (one for a stream of unknown length, whose results should not wait for a whole range).  With
        PARTITION BY, a query without WITHIN, with WITHIN n EVENTS, CONSUME BY PARTITION, LIMIT or a selection
        strategy other than STRICT is evaluated by shards of the keys.  Without PARTITION BY such a query is
        evaluated on one thread, and so are a shard, and CONSUME BY ANY.  A set goes by ranges if all of its queries can
        and measure their windows alike, else by shards of the queries, or of the keys of each where there are few
        queries; None: a set of more than 16 is evaluated on one thread.
    shard
        ``(k, n)``: read everything, and list only shard k (from 0) of n of the matches.  The shards are
        disjoint, of similar size, and together complete; none depends on another.
    limit
        Stop after so many results: matches (of "bindings" and "measures", rows), or ends for "count" and
        "ends".  ``LIMIT n`` in the query is another thing: at most n at each end.  Each query of a set has its own.
    offset
        Leave out the first so many results of each query, as `limit` counts them; ``limit`` then counts those that
        follow.  Not for "count", "ends" and "funnel", whose rows are no matches, nor for a shard.
    aggregate
        For "count": what is shown of the matches of an end in place of their number, in a column of this
        name: ``"SUM(c.amount - a.amount)"``, or AVG, MIN or MAX of an expression over the events of variables that
        SELECT keeps; or ``"COUNT(*)"``.  It is over the rows of "bindings", which are listed for it, and not stored.
    errors
        Treatment of a query of a set that does not fit the events: "raise", or "skip": it is left out, and named with
        the reason in `skipped` of the set and of the evaluator.  None: as passed to `compile_all`.
    undecided
        Matches that only the end of the input completes, as no event came that shows that the window of an
        absence has passed: "report", or "hold", which leaves them out and counts them in a note.
    max_memory
        Most memory, for each query and thread, for matches that are needed all at once, as those of one end
        are for a choice among them, and for those that wait until a window has passed: ``"2GiB"``, ``"500MB"`` or a
        number of bytes; None: half of what the machine, or a limit of the process, allows.  More is an
        `OutOfMemoryError` that names the end.  Results, and the events of a window, are not counted.
    position_column
        For `evaluator`, and events taken from a larger stream: an int64 column with the position of each event,
        which is reported; positions ascend.  It is no attribute.  `WITHIN n EVENTS` and contiguity go by it, so that
        events that the query does not need may be left out; with PARTITION BY, they count the events of a partition as
        they come.
    report_from
        For `evaluator`: matches that end before this position are not listed, though their events are read.
    stages
        For `evaluator`: the hook that is called when a stage of the evaluation begins and ends (`cer_gpu.stages`), on
        one thread.
    forecast
        For `evaluator`: a `cer_gpu.Forecast` of the query; it then returns the events after which the probability of a
        match first passes the threshold (`cer_gpu.Forecast.forecast`), in place of matches; for a set, a
        mapping from names of queries to forecasts.
    threshold
        For `evaluator` with `forecast`: the probability, above 0 and below 1; None: 0.5.
    start_position, key_shard
        Number of the first event, and shard (k, n) of the keys to evaluate: of evaluations of a part of the stream.
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

    device: str = field(
        default="auto",
        metadata=_in_commands(
            "Device that evaluates predicates.  [default: auto]",
            choices=DEVICES,
            of_tables=True,
            of_live=True,
        ),
    )
    output: str | None = field(
        default=None,
        metadata=_in_commands(
            "Content of a row.  [default: measures if SELECT has some, else positions]",
            choices=tuple(OUTPUTS),
            of_live=True,
        ),
    )
    sort: Sort = field(
        default=False,
        metadata=_in_commands(
            "Sort the events by time; with columns, break ties by these: --sort ts,sequence.",
            metavar="[COLUMN,...]",
            timed=True,
        ),
    )
    lateness: Lateness | None = field(
        default=None,
        metadata=_in_commands(
            "Watermark delay: how late events may arrive, such as 5s or 200ms.",
            metavar="TIME",
            timed=True,
            of_live=True,
        ),
    )
    late: str = field(
        default="raise",
        metadata=_in_commands(
            "What to do with events that arrive later than --lateness.  [default: raise]",
            choices=LATE,
            timed=True,
            of_live=True,
        ),
    )
    threads: int | None = field(
        default=None,
        metadata=_in_commands("Number of threads.  [default: by the size of the input]", metavar="N", least=1),
    )
    shard: tuple[int, int] | None = None
    limit: int | None = field(
        default=None,
        metadata=_in_commands(
            "Stop after N rows of each query (for --output rows, after N matches).",
            metavar="N",
            least=1,
            of_tables=True,
        ),
    )
    offset: int = field(
        default=0,
        metadata=_in_commands(
            "Skip the first N matches of each query; --limit counts those that follow.",
            metavar="N",
            least=0,
            of_tables=True,
        ),
    )
    aggregate: str | None = None
    errors: str | None = None
    undecided: str = field(
        default=REPORT,
        metadata=_in_commands(
            "Matches that are complete only because the input ends: report or hold them back.  [default: report]",
            choices=UNDECIDED,
            of_live=True,
        ),
    )
    max_memory: str | int | None = field(
        default=None,
        metadata=_in_commands(
            "Memory limit, such as 2GiB or 500MB, for matches that must be gathered: those of one end where a strategy "
            "compares them, and those pending until a window has passed.  [default: half of the machine's]",
            metavar="SIZE",
            of_live=True,
        ),
    )
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
        self._check_offset()
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

    def _check_offset(self) -> None:
        """Refuse an offset that is no number, and where matches are not listed, or not all of them.

        Raises
        ------
        OptionError
        """
        if type(self.offset) is not int or self.offset < 0:
            raise OptionError(f"offset must be a number from 0 on, got {self.offset!r}")
        output = OUTPUTS.get(self.output or "")
        if self.offset and output is not None and not lists_matches(output):
            raise OptionError(
                f"offset leaves out matches, which the output {output.name!r} does not list\n"
                f"hint: output={', '.join(repr(name) for name, each in OUTPUTS.items() if lists_matches(each))}"
            )
        if self.offset and self.shard is not None:
            raise OptionError(
                "offset counts all matches, and a shard lists a part of them\nhint: leave one of them out"
            )

    @property
    def last_result(self) -> int | None:
        """Number of results of a query after which no event is read, or None for all."""
        return None if self.limit is None else self.limit + self.offset

    @property
    def lists_some(self) -> bool:
        """True if not all results may be listed."""
        return self.limit is not None or self.offset > 0

    @property
    def of_first_part(self) -> dict[str, Any]:
        """Options of an evaluation of a part of the stream, whose results are limited together with those of others."""
        return {"limit": self.last_result, "offset": 0}

    @property
    def stored(self) -> dict[str, Any]:
        """Options as a checkpoint stores them, in JSON: another machine need not have the device."""
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
    def from_names(cls, options: Mapping[str, Any], names: tuple[str, ...]) -> EvaluationOptions:
        """Return options from values by name; only `names` are accepted.

        Raises
        ------
        OptionError
            For an unknown name, with the nearest one, and for a value that an option cannot have.
        """
        _check_names(options, names)
        return cls(**options) if options else USUAL_OPTIONS


def lists_matches(output: type[Output]) -> bool:
    """Return True if the rows of an output are matches."""
    return not output.counted and not output.by_starts and output.most_at_an_end != 1


def check_errors(value: str) -> None:
    """Raise OptionError for an unknown treatment of invalid queries."""
    if value not in (RAISE, SKIP):
        raise OptionError(f"errors must be {RAISE!r} or {SKIP!r}, got {value!r}")


USUAL_OPTIONS = EvaluationOptions()
"""Default options of an evaluation."""
FIELDS = {field.name: field for field in fields(EvaluationOptions)}
OF_COMMANDS: dict[str, CommandOption] = {
    name: option.metadata[_IN_COMMANDS] for name, option in FIELDS.items() if _IN_COMMANDS in option.metadata
}
"""Options that commands have."""
OF_EVENTS = tuple(FIELDS)[: tuple(FIELDS).index("position_column")]
"""Options of an evaluation of events at hand."""
OF_ARRIVALS = tuple(name for name in FIELDS if name not in ("sort", "start_position", "key_shard", "event_taker"))
"""Options over events that arrive batch by batch."""
OF_LISTS = ("output", "limit", "offset", "aggregate")
"""Options of listed results, which counts and forecasts do not have."""
OF_COUNTS = tuple(name for name in OF_EVENTS if name not in OF_LISTS)
"""Options of a count."""


def _check_names(options: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in options:
        if name not in names:
            raise OptionError(f"no option {name!r} here\nhint: {did_you_mean(name, names, 'options')}")


def options_by_name(function: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
    """Let a function raise an `OptionError` if options are passed by position, not by name."""
    parameters = list(signature(function).parameters.values())

    @wraps(function)
    def wrapper(*arguments: _Params.args, **options: _Params.kwargs) -> _Result:
        check_positions(function.__name__, parameters, arguments)
        return function(*arguments, **options)

    return wrapper


def check_positions(name: str, parameters: Iterable[Parameter], arguments: Sequence[object]) -> None:
    """Refuse more arguments by position than a function takes, with a message that names its options.

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


def checking_names(function: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
    """Let a function raise an `OptionError` for an unknown option, with the nearest name."""
    by_name = options_by_name(function)
    names = tuple(signature(function).parameters)

    @wraps(function)
    def wrapper(*arguments: _Params.args, **options: _Params.kwargs) -> _Result:
        _check_names(options, names)
        return by_name(*arguments, **options)

    return wrapper


def accepts_options(names: tuple[str, ...]) -> Callable[[Callable[..., _Result]], Callable[..., _Result]]:
    """Let a method whose last parameter is a record of options accept `names` as keywords."""

    def decorate(method: Callable[..., _Result]) -> Callable[..., _Result]:
        *positional, record = signature(method).parameters.values()
        named = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=FIELDS[name].default, annotation=FIELDS[name].type)
            for name in names
        ]

        @wraps(method)
        def wrapper(*arguments: Any, **options: Any) -> _Result:
            check_positions(method.__name__, [*positional, *named], arguments)
            events = {each.name: options.pop(each.name) for each in positional if each.name in options}
            return method(*arguments, **events, **{record.name: EvaluationOptions.from_names(options, names)})

        wrapper.__signature__ = Signature(  # type: ignore[attr-defined]
            [*positional, *named], return_annotation=signature(method).return_annotation
        )
        return wrapper

    return decorate
