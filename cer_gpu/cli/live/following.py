"""A run over a live source: it polls for files, reports each micro-batch, and stops on a signal."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import click
import pyarrow as pa
from rich.console import Console
from rich.text import Text

from cer_gpu.cli.alert_output import by_level, sorted_by_end
from cer_gpu.cli.command_line import say, say_notes, to_json
from cer_gpu.cli.event_arguments import STANDARD, Streams
from cer_gpu.cli.live.follow_options import FollowOptions
from cer_gpu.cli.query_arguments import SIGMA, QueryArguments, Wrong, WrongQueries, first_of, for_each, missing_notes
from cer_gpu.cli.result_streams import AlertEvaluation, CommandEvaluation
from cer_gpu.cli.shared_options import CommandOptions
from cer_gpu.cli.signals import Signals, Stopped
from cer_gpu.cli.tally import FORMS
from cer_gpu.compilation import CompiledQuery
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.errors import EventsError, OptionError, TimeOrderError
from cer_gpu.follow.folder_watcher import FolderWatcher, LiveSource
from cer_gpu.follow.following import Follower, MicroBatch
from cer_gpu.follow.targets import LiveTarget, live_target
from cer_gpu.io.files import open_paths
from cer_gpu.io.sinks import Sink
from cer_gpu.io.text_options import USUAL, TextOptions
from cer_gpu.printable import counted, printable, printable_lines
from cer_gpu.rules.alerts import ALERTS
from cer_gpu.sigma.formulas import ANY_TEXT
from cer_gpu.stages import NO_STAGES


@dataclass(frozen=True)
class ComingEvents(Streams):
    """Events that will arrive.

    Attributes
    ----------
    schema : pyarrow.Schema
    """

    schema: pa.Schema

    def open(self) -> pa.Table:
        """Return a table without rows."""
        return self.schema.empty_table()


class CommandFollowed:
    """Evaluation of the queries of a command over a live source, set up before its first events.

    Parameters
    ----------
    arguments
    compiled
        The compiled queries, which never read whole tables.
    options
    alerts
        True: the output is alerts of rules.
    schema
        Schema of the events.

    Raises
    ------
    WrongQueries
        When queries cannot be bound to the events, and are not skipped.
    """

    def __init__(
        self,
        arguments: QueryArguments,
        compiled: Mapping[str, CompiledQuery],
        options: EvaluationOptions,
        schema: pa.Schema,
        *,
        alerts: bool,
    ) -> None:
        streams, skipped = ComingEvents({None: []}, schema), arguments.skipped
        if alerts:
            self._evaluation: CommandEvaluation = AlertEvaluation(
                arguments.rules, compiled, streams, options, NO_STAGES, skipped=skipped
            )
        else:
            self._evaluation = CommandEvaluation(
                compiled, streams, options, NO_STAGES, is_set=arguments.is_set, skipped=skipped
            )
        self._alerts = alerts
        self.evaluator: Any = self._evaluation.evaluator
        self.missing_fields: Mapping[str, Sequence[str]] = self._evaluation.missing_fields
        self.missing: frozenset[str] = frozenset(field for fields in self.missing_fields.values() for field in fields)
        self.notes: list[str] = missing_notes(self.missing_fields, [schema], arguments.rules)

    @property
    def outputs(self) -> dict[str, str]:
        """The output of each query."""
        return self._evaluation.outputs

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""
        return self._evaluation.schema

    def rows(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return matches of a query as output rows."""
        return self._evaluation.rows(name, batch)

    def ordered(self, sink: Sink) -> AbstractContextManager[Sink]:
        """Return a context with the sink for the rows of a step; alerts are sorted by their ends."""
        return sorted_by_end(sink, self.schema) if self._alerts else _as_they_come(sink)


@contextlib.contextmanager
def _as_they_come(sink: Sink) -> Iterator[Sink]:
    yield sink


def endless(queries: Mapping[str, CompiledQuery], skipped: Wrong | None, option: str) -> dict[str, CompiledQuery]:
    """Return the queries that can be evaluated over one endless stream; errors are handled as by `for_each`.

    `option` is the option that names the stream.
    """

    def checked(query: CompiledQuery) -> CompiledQuery:
        if query.reads_whole_table:
            raise OptionError(f"MATCH_RECOGNIZE needs the whole table, and {option} never ends")
        if query.several_streams:
            raise OptionError(
                f"the query reads the streams {', '.join(query.streams)}, and {option} reads only one\n"
                "hint: use a column that names the stream, and FROM one stream"
            )
        return query

    return for_each(queries, checked, skipped)


_STOPPED_BY = (signal.SIGINT, signal.SIGTERM)


class LiveRun:
    """Run of queries over a live source.

    Parameters
    ----------
    arguments, live, run
    arrivals
        The source.
    target
    reading
        Options for reading text files.
    alerts
        True: the output is alerts of rules.
    out
        The target as written on the command line.
    signals

    Raises
    ------
    WrongQueries
        When queries are invalid or can never have matches, and are not skipped.
    OptionError
        When the target cannot be used.
    """

    def __init__(
        self,
        arguments: QueryArguments,
        live: FollowOptions,
        run: CommandOptions,
        arrivals: LiveSource,
        target: LiveTarget,
        *,
        reading: TextOptions,
        alerts: bool,
        out: str,
        signals: Signals,
    ) -> None:
        options = run.evaluation
        self._arguments, self._live, self._options, self._alerts = arguments, live, options, alerts
        self._signals, self._hidden = signals, run.no_progress or run.as_json
        self._compiled = endless(arguments.compile(Streams({None: []})), arguments.skipped, live.option)
        self._out = out
        self._outputs: dict[str, str] = {}
        self._n_rows: dict[str, int] = {}
        self._n_steps = self._n_files = self._n_events = 0
        self._noted: set[str] = set()
        self._noun = arrivals.noun
        expected = None if live.schema_of is None else open_paths([live.schema_of], reading).schema
        facts: dict[str, Any] = {
            "--output": options.output or (ALERTS if alerts else None),
            "--lateness": _lateness(options),
        }
        facts |= reading.facts()
        self._follower = Follower(
            arrivals,
            target,
            self._start_run,
            facts,
            expected,
            skip=live.skip_unreadable,
            whole=signals.deferred,
            tick=signals.check,
            on_step=self._report_step,
            options={"--follow": live.option},
            complete=self._complete if arrivals.noun == "file" else lambda schema: schema,
        )
        self._console = Console(stderr=True)
        self._status = self._console.status(f"looking for {self._noun}s")

    def _start_run(self, schema: pa.Schema) -> CommandFollowed:
        followed = CommandFollowed(self._arguments, self._compiled, self._options, schema, alerts=self._alerts)
        self._outputs = followed.outputs
        self._note([*self._arguments.notes, *followed.notes])
        return followed

    def _complete(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema with columns of strings, in which Sigma finds all values, for fields that only Sigma reads.

        Fields of structs are not added: an error reports the first file that has one.
        """
        skipped = self._arguments.skipped
        n_skipped = len(skipped or ())
        followed = CommandFollowed(self._arguments, self._compiled, self._options, schema, alerts=self._alerts)
        if skipped is not None:
            del skipped[n_skipped:]  # they are bound again
        readers: dict[str, set[str | None]] = {}
        for name, fields in followed.missing_fields.items():
            for each in fields:
                readers.setdefault(each, set()).add(self._arguments.rules[name].language)
        added = sorted(name for name, languages in readers.items() if languages == {SIGMA} and "." not in name)
        if not added:
            return schema
        rules, names = self._arguments.rules, set(schema.names)
        lacking = {each for name, own in followed.missing_fields.items() for each in rules[name].missing(own, names)}
        if shown := [name for name in added if name in lacking]:  # without those of which an alternative is there
            self._note([
                f"the first file has no column for {counted(len(shown), 'field')} that rules read, which later files "
                f"may have: {first_of(shown)}"
            ])  # fmt: skip
        return pa.schema([*schema, *(pa.field(name, pa.string()) for name in added)])

    def run(self) -> None:
        """Read files until a signal is received, or, with --once, all current files."""
        shows = self._console.is_terminal and not self._hidden
        with self._follower.opened():
            if shows:
                self._status.start()
            try:
                self._until_stopped()
            finally:
                self._status.stop()

    def _until_stopped(self) -> None:
        waited = False
        try:
            while True:
                step = self._follower.step()
                self._print_notes()
                if step is not None:
                    continue
                if self._live.once:
                    if waited or not self._follower.waiting:
                        return
                    waited = True  # for files that arrived just now
                    time.sleep(self._live.settle)
                    continue
                waiting = f"{self.summary()}; waiting for {self._noun}s in {self._live.folder}"
                self._status.update(Text(printable(waiting)))
                time.sleep(self._live.poll)
        except TimeOrderError as error:
            what, _, other = str(error).partition("\nhint: ")
            if other and "sort" not in other:
                raise
            hint = "--lateness TIME puts late events in order, and --late drop drops those that come even later"
            raise TimeOrderError(f"{what}\nhint: {hint}; restart with a new state", error.event) from None
        except EventsError as error:
            if "hint: " in str(error) or self._noun != "file":
                raise
            raise EventsError(f"{error}\nhint: repair or remove it and restart, or use --skip-unreadable") from error

    # ---- messages --------------------------------------------------------------------------------------------------

    def _report_step(self, step: MicroBatch) -> None:
        self._n_steps += 1
        self._n_files += len(step.files)
        self._n_events += step.n_events
        for name, n_rows in step.n_rows.items():
            self._n_rows[name] = self._n_rows.get(name, 0) + n_rows
        for error in step.skipped.values():
            self._note([f"skipped: {error}"])
        if self._hidden or not step.files:
            return
        last = step.files[-1] if len(step.files) == 1 else f"{step.files[0]} to {step.files[-1]}"
        target = "" if step.target is None else f" -> {step.target}"
        self._say(f"{self._part_label(last)}: {counted(step.n_events, 'row')}, {self._count_line(step.n_rows)}{target}")

    def _print_notes(self) -> None:
        follower = self._follower
        for name, file in follower.new_fields.items():
            self._note([
                f"{self._part_label(file)} has the field {name!r}, which the first {self._noun} did not have; it is "
                f"null in all events of this run (to read it, restart with results in another place)"
            ])  # fmt: skip
        keywords = [name for name, rule in self._arguments.rules.items() if ANY_TEXT in rule.text]
        if follower.unread and keywords:
            column, file = next(iter(follower.unread.items()))
            self._note([
                f"{counted(len(keywords), 'rule')} with keywords {'does' if len(keywords) == 1 else 'do'} not read "
                f"columns that the first file did not have, such as {column!r} of {file} (--schema-of names files that "
                f"have all): {first_of(keywords)}"
            ])  # fmt: skip
        self._note(follower.file_notes)
        follower.file_notes.clear()
        for name in follower.grown:
            self._note([f"{name} has changed since it was read; additions are not read (--settle)"])

    def _part_label(self, part: str) -> str:
        return part if self._noun == "file" else f"{self._noun} {part}"

    def _note(self, notes: Sequence[str]) -> None:
        for note in notes:
            if note not in self._noted:
                self._noted.add(note)
                self._say(f"note: {note}")

    def _say(self, text: str) -> None:
        if self._console.is_terminal and not self._hidden:
            self._console.print(Text(printable_lines(text)), soft_wrap=True)
        else:
            say(text)

    def _count_line(self, numbers: dict[str, int] | Any) -> str:
        forms = {self._outputs[name] for name in numbers or self._outputs if name in self._outputs}
        row = FORMS[forms.pop()].row if len(forms) == 1 else "row"
        said = counted(sum(numbers.values()), row)
        if self._alerts and numbers:
            said += f" ({', '.join(f'{n:,} {level}' for level, n in by_level(numbers, self._arguments.rules).items())})"
        return said

    def summary(self) -> str:
        """Return the current summary as a line."""
        said = [counted(self._n_files, self._noun), counted(self._n_events, "row"), self._count_line(self._n_rows)]
        evaluation = self._follower.evaluation
        if self._options.late == "drop" and evaluation is not None:
            said.append(f"{counted(evaluation.evaluator.n_late, 'late event')} dropped")
        return ", ".join(said)

    def last_words(self) -> list[str]:
        """Return the closing remarks."""
        waiting = self._follower.waiting
        if not self._live.once or not waiting:
            return []
        why = f"changed less than {self._live.settle:g} s ago or after one that was"
        return [f"{counted(len(waiting), 'file')} left for the next run, {why}: {first_of(waiting)}"]

    def facts(self) -> dict[str, Any]:
        """Return the current summary as plain data."""
        return {
            "n_steps": self._n_steps,
            f"n_{self._noun}s": self._n_files,
            "n_events": self._n_events,
            "n_rows": sum(self._n_rows.values()),
            "queries": self._n_rows,
            "n_events_of_all_runs": self._follower.n_events,
            "skipped": self._follower.skipped,
            "waiting": list(self._follower.waiting),
            "out": self._out,
        }


def _lateness(options: EvaluationOptions) -> str | None:
    return None if options.lateness is None else f"{options.lateness} {options.late}"


def check_apart(folder: str, *places: str | os.PathLike[str]) -> None:
    """Refuse paths of output or state that would be read as events of a folder."""
    events = os.path.realpath(folder)
    for place in places:
        path = os.path.realpath(place)
        if "://" not in folder and os.path.commonpath([events, path]) == events:
            raise OptionError(
                f"{os.fspath(place)}: is in the folder {folder}, from which events are read\nhint: use another folder"
            )


def follow_files(
    arguments: QueryArguments,
    live: FollowOptions,
    run: CommandOptions,
    *,
    reading: TextOptions,
    alerts: bool,
    out: str | None,
    format_: str | None,
    signals: Signals,
) -> int:
    """Evaluate the files that appear in a folder, and return the exit code."""
    if out is None or out == STANDARD:
        raise click.UsageError("--follow needs an output: -o FOLDER or -o FILE.jsonl")
    run.check_live()
    assert live.folder is not None
    target = live_target(out, format_)
    arrivals = FolderWatcher(live.folder, live.settle, live.order, reading)
    check_apart(live.folder, target.out)
    return run_live(arguments, live, run, arrivals, target, reading=reading, alerts=alerts, out=out, signals=signals)


def run_live(
    arguments: QueryArguments,
    live: FollowOptions,
    run: CommandOptions,
    arrivals: LiveSource,
    target: LiveTarget,
    *,
    reading: TextOptions = USUAL,
    alerts: bool,
    out: str,
    signals: Signals,
) -> int:
    """Evaluate the events of a live source, print a summary, and return the exit code."""
    live_run = None
    try:
        live_run = LiveRun(
            arguments, live, run, arrivals, target, reading=reading, alerts=alerts, out=out, signals=signals
        )
        live_run.run()
    except WrongQueries as wrong:
        arguments.say(wrong.errors)
        return 1
    except Stopped as stopped:
        if live_run is None or live.once or stopped.signum not in _STOPPED_BY:
            raise
    if run.as_json:
        click.echo(to_json(live_run.facts()))
        return 0
    say(f"{live_run.summary()} -> {out}")
    say_notes(live_run.last_words())
    return 0
