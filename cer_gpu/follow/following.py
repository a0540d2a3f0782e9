"""The loop of a live source: step by step, each of which reads the files that have come, and is committed as a whole.

| a step | |
| --- | --- |
| 1 | evaluates the files, and writes the rows where no reader looks |
| 2 | writes the state of the evaluation after them |
| 3 | appends a line to the log: names of the files, numbers of rows; with it the step is committed |
| 4 | publishes the rows |
| 5 | removes the state before |

A process that begins reads the log.  It does 4 and 5 of the last step in it again, which change nothing where they are
done; all that was written for a further step is removed, and its files are read again.
"""

from __future__ import annotations

import base64
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import pyarrow as pa

from cer_gpu.columnar.columns import is_string
from cer_gpu.columnar.fields import attribute_type
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.errors import CerError, CheckpointError, EventsError, QueryTypeError, TimeOrderError
from cer_gpu.follow.folder_watcher import Arrival, LiveSource
from cer_gpu.follow.log import LOG_VERSION, LONGEST_LOG, CommitLog, locked, write_whole
from cer_gpu.follow.targets import (
    LiveTarget,
    check_events,
    check_nothing_later,
    check_private,
    check_steps,
    last_published,
)
from cer_gpu.io.sinks import Sink
from cer_gpu.io.source import BATCH_ROWS, Source
from cer_gpu.resolution.fields import find_field

LOG = "log.jsonl"
LISTED_FIELDS = 8
"""Maximum number of fields that an error lists."""
_OF_OTHERS = "the checkpoint is of"
_IN_A_COMMAND = {
    "restore it with the set that made it, and the queries that were added": "run it with the rules as they were",
    "restore it with the query that made it": "run it with the query as it was",
}
"""Hints on checkpoints, in the words of a command."""
PASSING = ("rows", "state", "commit", "publish", "clean")
"""Names of the parts of a step, reported to `passed` when they are done."""


class LiveEvaluation(Protocol):
    """Evaluation of one query or of several, before their first event.

    Attributes
    ----------
    evaluator : cer_gpu.engine.evaluator.BaseEvaluator
    missing : set of str
        Fields that queries name, the events have not, and that are taken for NULL.
    """

    evaluator: Any
    missing: frozenset[str]

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""

    def rows(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return results of a query as rows."""

    def ordered(self, sink: Sink) -> AbstractContextManager[Sink]:
        """Return a context with the sink that takes the rows of a step, and gives them to `sink` in their order."""


@dataclass(frozen=True)
class MicroBatch:
    """A step that was committed.

    Attributes
    ----------
    number : int
    files : sequence of str
        Names of the files that were read.
    n_events : int
    n_rows : dict from str to int
        Number of rows of each query that has some.
    target : str or None
        Name of the file that has them, or None without rows.
    skipped : dict from str to str
        Errors of files that were left out, by their names.
    """

    number: int
    files: Sequence[str]
    n_events: int
    n_rows: Mapping[str, int]
    target: str | None
    skipped: Mapping[str, str]


class UnreadableFile(Exception):
    """File that cannot be read, or does not match the schema of earlier files."""

    def __init__(self, arrival: Arrival, error: CerError) -> None:
        self.arrival: Arrival
        self.error: CerError
        self.arrival, self.error = arrival, error


def _nothing(_: Any) -> None:
    """Do nothing."""


@dataclass
class Follower:
    """The state of a live source on the disk, and the evaluation in memory.

    Parameters
    ----------
    arrivals
    target
    begin
        Returns an evaluation for events of a schema.
    facts
        Options that a state depends on, by their names on the command line.
    expected
        Schema of the events; by default (None) that of the first file.
    skip
        True to skip files that cannot be read.
    whole
        Makes a context that defers interrupts: steps are committed within such contexts.
    tick
        Called before each batch of events.
    on_step
        Called with each step as soon as it is committed.
    passed
        Called with the names of `PASSING`.
    options
        Names of options in messages, by those in the facts, where a command calls them otherwise.
    complete
        Returns the schema of the events, given that of the first file: with columns that only later files have.
    """

    arrivals: LiveSource
    target: LiveTarget
    begin: Callable[[pa.Schema], LiveEvaluation]
    facts: Mapping[str, Any] = field(default_factory=dict)
    expected: pa.Schema | None = None
    skip: bool = False
    whole: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    tick: Callable[[], None] = lambda: None
    on_step: Callable[[MicroBatch], None] = _nothing
    passed: Callable[[str], None] = _nothing
    options: Mapping[str, str] = field(default_factory=dict)
    complete: Callable[[pa.Schema], pa.Schema] = lambda schema: schema

    def __post_init__(self) -> None:
        """Begin with nothing read."""
        self.evaluation: LiveEvaluation | None = None
        self.read: dict[str, int] = {}
        self.skipped: dict[str, str] = {}
        self.new_fields: dict[str, str] = {}
        self.file_notes: list[str] = []
        """Fields that are taken for NULL, and that a later file has, with the name of the first such file."""
        self.unread: dict[str, str] = {}
        """The first column of strings that a later file has and the schema has not, with the name of the file."""
        self.waiting: Sequence[str] = ()
        self.grown: Sequence[str] = ()
        self._schema: pa.Schema | None = None
        self._log: CommitLog

    @contextlib.contextmanager
    def opened(self) -> Iterator[Follower]:
        """Lock the state during the block: it is created, or read and repaired.

        Raises
        ------
        OptionError
            When another process has it, or there are results without a state.
        EventsError
            When there is no such folder of events.
        CheckpointError
            When it is of something else, or damaged.
        """
        self.arrivals.check()
        if not (self.target.state / LOG).exists():
            self.target.check_new()
        self.target.state.parent.mkdir(parents=True, exist_ok=True)
        self.target.state.mkdir(mode=0o755, exist_ok=True)  # whatever the umask lets the group do
        check_private(self.target.state)
        with locked(self.target.state):
            self.target.claim()
            log = self.target.state / LOG
            was_there = log.exists()
            self._log = CommitLog(log)
            if was_there and not self._log.entries:  # its first line was cut off
                self.target.check_new()
            check_steps(log, self._log.entries)
            check_nothing_later(log, self._log.entries, self.target)
            self._recover()
            yield self

    def _recover(self) -> None:
        for entry in self._log.entries[1:]:
            files = {each["name"]: each["size"] for each in entry.get("files", ())}
            self.read |= entry.get("read", files)  # of the line that replaces many, or of a step
            self.skipped |= entry["skipped"]
        if self._log.entries:
            self._schema = self._check_header(self._log.entries[0])
            self.target.resume(self._log.entries)
        if self.number:
            self._publish(self._log.entries[-1])
        if self._schema is not None:
            self._restore(self._schema)
        for each in self.target.state.glob("state-*"):
            if each != self._state_after(self.number):
                each.unlink()
        for each in self.target.state.glob(".*.part"):  # files of the state that were not written as a whole
            each.unlink()
        self.target.drop_pending()  # the last: a later state without rows shows that its step was committed
        if len(self._log.entries) > LONGEST_LOG:
            self._shorten()

    def _shorten(self) -> None:
        """Replace the lines of most steps in the log by one."""
        *before, last = self._log.entries[1:]
        own = {each["name"] for each in last["files"]}
        read = self.arrivals.unacknowledged({name: size for name, size in self.read.items() if name not in own})
        skipped = {name: error for name, error in self.skipped.items() if name not in last["skipped"]}
        numbers = Counter[str]()
        for entry in before:
            numbers.update(entry["n_rows"])
        facts = {"read": read, "skipped": skipped, "n_rows": numbers, "published": last_published(before)}
        self._log.shorten({"step": before[-1]["step"], **facts})

    def _check_header(self, header: Mapping[str, Any]) -> pa.Schema:
        """Return the schema of the events; refuse a state of another version, folder or options."""
        version = header.get("version")
        if version not in range(1, LOG_VERSION + 1):
            raise CheckpointError(
                f"{self.target.state}: the state has version {version}, and this cer_gpu reads {LOG_VERSION}\n"
                "hint: go on with the cer_gpu that made it, or write to another place"
            )
        for name, value in self._facts.items():
            if header["facts"].get(name) != value:
                option, logged = self.options.get(name, name), header["facts"].get(name)
                now = f"{'' if logged is not None else f'{option} '}{value!r}" if value is not None else f"no {option}"
                was = f"{option} {logged!r}" if logged is not None else f"no {option}"
                raise CheckpointError(
                    f"{self.target.state}: the state is of {was}, and not of {now}\n"
                    f"hint: the same {option}, or results and state in another place"
                )
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(header["schema"])))
        if self.expected is not None and not self.expected.equals(schema):
            raise CheckpointError(
                f"{self.target.state}: the state is of events with another schema\n"
                f"hint: leave the option out, or write to another place; its schema: {schema.to_string()}"
            )
        return schema

    @property
    def _facts(self) -> dict[str, Any]:
        return {"--follow": self.arrivals.identity, **self.target.facts, **self.facts}

    @property
    def number(self) -> int:
        """Number of the last step; 0: there was none."""
        return int(self._log.entries[-1]["step"]) if self._log.entries[1:] else 0

    @property
    def n_events(self) -> int:
        """Number of events that were read."""
        return 0 if self.evaluation is None else int(self.evaluation.evaluator.n_pushed)

    def _state_after(self, step: int) -> Any:
        return self.target.state / f"state-{step:09}"

    def _restore(self, schema: pa.Schema) -> None:
        """Begin an evaluation, and take over the state of the last step."""
        self.evaluation = self.begin(schema)
        evaluator = self.evaluation.evaluator
        if not self.number:
            evaluator.expect(schema)
            return
        try:
            blob = self._state_after(self.number).read_bytes()
            evaluator._restore(NamedState.from_bytes(evaluator.identities, blob))
            check_events(self._log.entries[-1], evaluator.n_pushed)
        except FileNotFoundError as error:
            raise CheckpointError(
                f"{error.filename}: is not there, and the log says that it is\nhint: restore the folder from a copy"
            ) from None
        except CheckpointError as error:
            said, anew = str(error), "begin again with results and state in another place (-o)"
            if said.startswith(_OF_OTHERS):
                said = said.replace(_OF_OTHERS, "the state is of", 1)
                for words, instead in _IN_A_COMMAND.items():
                    said = said.replace(words, instead)
                said += f"; or {anew}"
            elif "hint: " not in said:
                said += f"\nhint: restore the folder from a copy, or {anew}"
            raise CheckpointError(f"{self._state_after(self.number)}: {said}") from None

    # ---- steps ------------------------------------------------------------------------------------------------

    def step(self) -> MicroBatch | None:
        """Read the files that have come, and commit their results; return None if no file has come.

        Raises
        ------
        EventsError, QueryTypeError
            When a file cannot be read, does not match the schema, or has late events; nothing of the step is stored.
        OSError
            When the results cannot be written; nothing of the step is stored, unless it is committed already.
        """
        poll = self.arrivals.poll(self.read, self.skipped)
        self.waiting, self.grown = poll.waiting, poll.grown
        skipped: dict[str, str] = {}
        while True:
            files = [each for each in poll.finished if each.name not in skipped]
            if not files and not skipped:
                return None
            try:
                return self._run_step(files, skipped)
            except UnreadableFile as unreadable:
                if not self.skip:
                    raise unreadable.error from unreadable.error.__cause__
                skipped[unreadable.arrival.name] = str(unreadable.error)
                self.evaluation = None  # which may have read a part of the file

    def _run_step(self, files: Sequence[Arrival], skipped: Mapping[str, str]) -> MicroBatch | None:
        step = self.number + 1
        read, numbers = list[dict[str, Any]](), dict[str, int]()
        evaluation = self._evaluation(files)
        if evaluation is None:
            if skipped and not files:
                self.skipped |= skipped  # reported again after a restart: there is no log yet
                self.on_step(nothing := MicroBatch(0, [], 0, {}, None, skipped))
                return nothing
            return None
        evaluator = evaluation.evaluator
        begin = evaluator.n_pushed
        with self.target.writing(step, evaluation.schema) as file, evaluation.ordered(file) as sink:
            for name, batch in self._results_of_files(files, evaluator, read):
                rows = evaluation.rows(name, batch)
                if rows.num_rows:
                    numbers[name] = numbers.get(name, 0) + rows.num_rows
                    sink.write(rows)
        try:
            self.passed("rows")
            place = self.target.place(any_rows=bool(numbers))
            published = self.target.published(step) if numbers else None
            entry = {"step": step, "files": read, "skipped": dict(skipped), "n_rows": numbers, "target": published}
            entry |= {"rows": self.target.rows, **place}
            state = evaluator.checkpoint()
        except BaseException:  # a signal, most often
            self.target.drop_pending()
            raise
        with self.whole():
            write_whole(self._state_after(step), state)
            self.passed("state")
            self._log.append(entry)
            self.read |= {each.name: each.size for each in files}
            self.skipped |= skipped
            self.passed("commit")
            n_events = evaluator.n_pushed - begin
            done = MicroBatch(step, [each.name for each in files], n_events, numbers, published, skipped)
            self.on_step(done)
            self._settle(entry)
        return done

    def _settle(self, entry: Mapping[str, Any]) -> None:
        """Publish the rows of a committed step, and remove the state before."""
        self._publish(entry)
        self._state_after(entry["step"] - 1).unlink(missing_ok=True)
        self.passed("clean")

    def _publish(self, entry: Mapping[str, Any]) -> None:
        if entry["target"] is not None:
            self.target.publish(entry)
        elif rows := self.target.rows_of(entry):
            rows.unlink()
        self.passed("publish")

    def _evaluation(self, files: Sequence[Arrival]) -> LiveEvaluation | None:
        """Return the evaluation, which the first file with a schema begins, or None before that."""
        if self._schema is None:
            self._schema = self.expected
            for arrival in files if self._schema is None else ():
                source = self._open_arrival(arrival)
                if source is not None and source.schema.names:  # an event log without records has no columns
                    self._schema = self.complete(source.schema)
                    break
            if self._schema is None:
                return None
            self._restore(self._schema)  # queries that do not match the schema leave no state
        if not self._log.entries:
            schema = base64.b64encode(self._schema.serialize().to_pybytes()).decode()
            self._log.append({"version": LOG_VERSION, "facts": self._facts, "schema": schema, **self.target.header})
        if self.evaluation is None:
            self._restore(self._schema)
        return self.evaluation

    def _open_arrival(self, arrival: Arrival, first: int = 0) -> Source | None:
        """Open a file, or return None if it has no events and no schema."""
        try:
            return self.arrivals.open(arrival, first, self._schema)
        except EventsError as error:
            raise UnreadableFile(arrival, error) from error

    def _results_of_files(
        self, files: Sequence[Arrival], evaluator: Any, read: list[dict[str, Any]]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the results of files, and add facts on each file to `read`."""
        schema, origins = self._schema, list[tuple[int, str]]()
        assert schema is not None
        names = [name for name in evaluator.attributes(schema) if attribute_type(schema, name) is not None]
        together = Source(schema, iter, origins=origins)  # which only says where an event is from
        with together.locating(lambda: evaluator.n_events):
            for arrival, batch in coalesced(self._batches(files, names, evaluator.n_pushed, origins, read)):
                self.tick()
                try:
                    results = evaluator._group.push(batch)
                except QueryTypeError as error:
                    raise UnreadableFile(arrival, EventsError(f"{arrival.file}: {error}")) from error
                yield from results

    def _batches(
        self,
        files: Sequence[Arrival],
        names: list[str],
        first: int,
        origins: list[tuple[int, str]],
        read: list[dict[str, Any]],
    ) -> Iterator[tuple[Arrival, pa.RecordBatch]]:
        """Yield the events of files with their files; the first of all is event `first`."""
        assert self.evaluation is not None
        assert self._schema is not None
        for arrival in files:
            origins.append((first, str(arrival.file)))
            source, n_events = self._open_arrival(arrival, first), 0
            self.file_notes += () if source is None else source.notes
            if source is not None and not source.schema.equals(self._schema):
                self._note_new_fields(arrival, source.schema)
            for batch in () if source is None else _batches_naming_file(arrival, source.batches(names)):
                n_events += batch.num_rows
                yield arrival, batch
            read.append({"name": arrival.name, "size": arrival.size, "first": first, "n_events": n_events})
            first += n_events

    def _note_new_fields(self, arrival: Arrival, schema: pa.Schema) -> None:
        """Raise EventsError for fields that are taken for NULL and that a file has; of a table, they become notes."""
        assert self.evaluation is not None
        if not self.unread:
            assert self._schema is not None
            names = set(self._schema.names)
            new = (each.name for each in schema if is_string(each.type) and each.name not in names)
            self.unread = dict.fromkeys(islice(new, 1), arrival.name)
        places = {name: find_field(schema, tuple(name.split("."))) for name in sorted(self.evaluation.missing)}
        lost = [name for name, place in places.items() if place is not None and not pa.types.is_null(place.type)]
        if self.arrivals.noun != "file":
            self.new_fields = {**dict.fromkeys(lost, arrival.name), **self.new_fields}
        elif lost:
            listed = ", ".join(map(repr, lost[:LISTED_FIELDS])) + (", ..." if len(lost) > LISTED_FIELDS else "")
            first = "the file of --schema-of does" if self.expected is not None else "the first file did"
            raise EventsError(
                f"{arrival.file}: has fields that the queries read and {first} not have, so that matches would be "
                f"lost: {listed}\n"
                "hint: --schema-of FOLDER, with a sample of each kind of file, and results and state in another place"
            )


def coalesced(batches: Iterable[tuple[Arrival, pa.RecordBatch]]) -> Iterator[tuple[Arrival, pa.RecordBatch]]:
    """Yield the events of small files together, with the first of these: each batch costs some calls for every query.

    The events of files whose columns have other types are not concatenated.
    """
    buffered: list[tuple[Arrival, pa.RecordBatch]] = []
    n_rows = 0
    for arrival, batch in batches:
        if buffered and (n_rows + batch.num_rows > BATCH_ROWS or not batch.schema.equals(buffered[0][1].schema)):
            yield from _together(buffered)
            buffered, n_rows = [], 0
        buffered.append((arrival, batch))
        n_rows += batch.num_rows
    yield from _together(buffered)


def _together(buffered: list[tuple[Arrival, pa.RecordBatch]]) -> Iterator[tuple[Arrival, pa.RecordBatch]]:
    if len(buffered) > 1:
        with contextlib.suppress(pa.ArrowException):  # dictionaries with too many values for one
            buffered = [(buffered[0][0], pa.concat_batches([batch for _, batch in buffered]))]
    yield from buffered


def _batches_naming_file(arrival: Arrival, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches; errors while reading them name the file."""
    while True:
        try:
            batch = next(batches, None)
        except TimeOrderError:
            raise
        except EventsError as error:
            raise UnreadableFile(arrival, error) from error
        if batch is None:
            return
        yield batch
