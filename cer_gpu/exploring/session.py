"""The session of one page: messages in, results out, whatever carries them.

Messages are plain data, with a ``kind``.  From the page: ``text`` (the query as it is typed, evaluated over a sample),
``run`` (evaluated over all events), ``stop``, ``complete`` (completions at a place), ``columns`` (other columns of
types and times), ``rules`` and ``rule``.  To the page: ``hello``, ``loading``, ``overview``, ``checked``, ``sample``,
``counted``, ``page``, ``rows``, ``funnel``, ``answered``, ``stopped``, ``failed``, ``progress``, ``completions``,
``rules`` and ``rule``.  Results have the ``id`` of their question; the newest question wins, and evaluations of older
ones are stopped.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from cer_gpu.compilation import CompiledQuery
from cer_gpu.editing.completing import completions, word_before
from cer_gpu.editing.event_schema import EventSchema, compiled_or_errors, problems
from cer_gpu.errors import CerError
from cer_gpu.explain.ceql_text import name_text
from cer_gpu.exploring.copies import copies
from cer_gpu.exploring.overview import overview
from cer_gpu.exploring.query_results import AS_ONE_TYPES, OF_ALL, QueryResults, ResultLimits, RuleCounts
from cer_gpu.exploring.samples import SAMPLE_EVENTS, EvaluationStopped, EventSample, ExploredEvents
from cer_gpu.query_set import QuerySet
from cer_gpu.rule import Rule
from cer_gpu.rules.rule_set import compile_rules

MAX_TEXT = 100_000
"""Most characters of a query."""
_SECONDS, _OVERHEAD = 0.15, 0.06
"""Time until matches of a sample are listed, as it should be, and the part of it that no size changes."""
_TOO_LONG = 0.45
"""Seconds after which a smaller sample is evaluated."""
_STEPS: tuple[int, ...] = tuple(n * 10**k for k in range(3, 7) for n in (1, 2, 5) if n * 10**k <= SAMPLE_EVENTS)
"""Sizes of samples."""
_FIRST_SAMPLE = 200_000
"""Size of the first sample; later ones follow the time that it takes."""
_TABLE_EVENTS = 100_000
"""Events of the sample of a statement that reads whole tables."""
_STUCK = 2.0
"""Seconds after which an evaluation that was stopped and goes on is left behind."""
_BETWEEN_PROGRESS = 0.1

Message = Mapping[str, Any]


class _TooSlowError(EvaluationStopped):
    """An evaluation over a sample takes too long."""


@dataclass
class _Job:
    """A question of the page."""

    message: Message
    stopped: threading.Event = field(default_factory=threading.Event)
    is_done: threading.Event = field(default_factory=threading.Event)


class _Worker:
    """A thread that evaluates the newest question; one that came before is dropped, or stopped where it is under way.

    Parameters
    ----------
    handle
        Evaluates a question; it returns soon after the event ``stopped`` of the job is set.
    """

    def __init__(self, name: str, handle: Callable[[_Job], None]) -> None:
        self._name, self._handle = name, handle
        self._condition = threading.Condition()
        self._waiting: _Job | None = None
        self._running: _Job | None = None
        self._is_closed = False
        self._number = 0
        self._start()

    def _start(self) -> None:
        self._number += 1
        self._thread = threading.Thread(target=self._work, args=(self._number,), name=self._name, daemon=True)
        self._thread.start()

    def put(self, message: Message) -> None:
        """Ask a question in place of all others."""
        with self._condition:
            self._waiting = _Job(message)
            self._stop_running()
            self._condition.notify_all()

    def stop(self) -> None:
        """Stop the question that is under way, and drop the one that waits."""
        with self._condition:
            self._waiting = None
            self._stop_running()

    def close(self) -> None:
        """Stop, and end the thread."""
        with self._condition:
            self._is_closed = True
            self._waiting = None
            self._stop_running()
            self._condition.notify_all()

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended, or so long."""
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _stop_running(self) -> None:
        job = self._running
        if job is None or job.stopped.is_set():
            return
        job.stopped.set()

        def leave_behind() -> None:  # a loop that does not end goes on in a thread of its own, and nobody waits for it
            if not job.is_done.wait(_STUCK):
                with self._condition:
                    if self._running is job and not self._is_closed:
                        self._running = None
                        self._start()

        threading.Thread(target=leave_behind, name=f"{self._name} watch", daemon=True).start()

    def _work(self, number: int) -> None:
        while True:
            with self._condition:
                while self._waiting is None and not self._is_closed and number == self._number:
                    self._condition.wait()
                if self._is_closed or number != self._number:
                    return
                job, self._waiting = self._waiting, None
                self._running = job
            assert job is not None
            try:
                self._handle(job)
            except Exception as error:
                traceback.print_exception(error)
            finally:
                job.is_done.set()
                with self._condition:
                    if self._running is job:
                        self._running = None


class Session:
    """The session of one page.

    Parameters
    ----------
    explored
        The events; they are loaded by the first session that asks for them.
    send
        Takes messages to the page, from several threads.
    query
        Text to begin with.
    rules
        Rules that can be looked through, by their names.
    options
        Options of `cer_gpu.compile` besides the columns of `explored`.
    """

    def __init__(
        self,
        explored: ExploredEvents,
        send: Callable[[dict[str, Any]], None],
        *,
        query: str = "",
        rules: Mapping[str, Rule] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._explored, self._transport, self._query = explored, send, query
        self._rules, self._more = dict(rules or {}), dict(options or {})
        self._folders = {os.path.dirname(os.path.abspath(path)) for path in explored.paths}
        self._folders |= {os.path.dirname(os.path.abspath(rule.file)) for rule in self._rules.values() if rule.file}
        self._n_sample = _FIRST_SAMPLE
        self._help = EventSchema(explored.schema)
        self._newest = 0  # question
        self._is_closed = False
        self._overview_message: tuple[ExploredEvents, dict[str, Any] | None] = (explored, None)
        self._compiled_rules: QuerySet | None = None
        self._checker = _Worker("cer_gpu explore: check", self._report_problems)
        self._completer = _Worker("cer_gpu explore: complete", self._send_completions)
        self._evaluator = _Worker("cer_gpu explore: evaluate", self._evaluate_question)
        self._of_kind: dict[str, Callable[[Message], None]] = {
            "hello": self._greet,
            "text": self._take_text,
            "run": self._evaluator.put,
            "stop": self._stop_evaluation,
            "complete": self._completer.put,
            "columns": self._take_columns,
            "rules": self._evaluator.put,
            "rule": self._show_rule,
        }

    def receive(self, message: Any) -> None:
        """Take a message of the page; one that is not understood is ignored."""
        if not isinstance(message, Mapping):
            return
        take, question = self._of_kind.get(str(message.get("kind"))), message.get("id")
        if message.get("kind") in ("text", "run") and isinstance(question, int):
            if question < self._newest:
                return  # messages may arrive in another order
            self._newest = question
        text = message.get("text", "")
        if take is not None and isinstance(text, str) and len(text) <= MAX_TEXT:
            take(message)

    def close(self) -> None:
        """Stop all that is under way, and wait for it, but not long."""
        self._is_closed = True
        workers = (self._checker, self._completer, self._evaluator)
        for worker in workers:
            worker.close()
        for worker in workers:
            worker.join(0.5)

    def _send(self, message: dict[str, Any]) -> None:
        if not self._is_closed:
            self._transport(message)

    def _without_folders(self, text: str) -> str:
        """Return a message without the folders of files, of which a page learns the names alone."""
        for folder in sorted(self._folders, key=len, reverse=True):
            for form in (folder, os.path.relpath(folder)):
                if form not in (".", "/"):
                    text = text.replace(form + os.sep, "")
        return text

    @property
    def _compile_options(self) -> dict[str, Any]:
        explored = self._explored
        own = {name: getattr(explored, name) for name in ("type_column", "time_column", "time_unit")}
        return own | self._more

    # ---- what needs no events ---------------------------------------------------------------------------------

    def _greet(self, message: Message) -> None:
        """Tell the page what there is, and load the events."""
        explored = self._explored
        self._send(
            {
                "kind": "hello",
                "names": explored.names,
                "columns": [[field.name, str(field.type)] for field in explored.schema],
                "type_column": None if explored.type_column is None else str(explored.type_column),
                "time_column": explored.time_column,
                "query": self._query,
                "rules": [
                    {"name": name, "level": rule.level, "file": os.path.basename(rule.file or "")}
                    for name, rule in self._rules.items()
                ],
                "notes": list(explored.notes),
            }
        )
        if explored.is_loaded:
            self._send({"kind": "loading", "n_events": explored.n_events, "is_loaded": True})
        self._evaluator.put({"kind": "load"})

    def _stop_evaluation(self, message: Message) -> None:
        self._evaluator.stop()
        self._send({"kind": "stopped", "id": message.get("id")})  # though a loop may take a while to end

    def _take_text(self, message: Message) -> None:
        self._checker.put(message)
        self._evaluator.put(message)

    def _take_columns(self, message: Message) -> None:
        """Take other columns of types and times; the events are read again where their order changes."""
        names = {field.name for field in self._explored.schema}
        types, times = message.get("type_column"), message.get("time_column")
        if any(each is not None and each not in names for each in (types, times)):
            return
        if types == self._explored.type_column and times == self._explored.time_column:
            return
        try:
            self._explored = self._explored.by_columns(types, times)
        except CerError as error:
            self._send({"kind": "failed", "id": message.get("id"), "message": self._without_folders(str(error))})
            return
        self._compiled_rules = None
        self._greet(message)

    def _show_rule(self, message: Message) -> None:
        rule = self._rules.get(str(message.get("name")))
        if rule is not None:
            self._send({"kind": "rule", "name": rule.name, "query": rule.text})

    def _report_problems(self, job: _Job) -> None:
        """Send the problems of a query, its meaning, and its copies."""
        text, schema = str(job.message.get("text", "")), self._explored.schema
        reported = problems(text, schema, self._compile_options)
        query, _ = compiled_or_errors(text, schema, self._compile_options) if text.strip() else (None, ())
        sections: list[Any] = []
        if query is not None:
            try:
                sections = list(query.bind(schema).explain()._sections("summary"))
            except CerError:
                sections = []
        if job.stopped.is_set():
            return
        self._send(
            {
                "kind": "checked",
                "id": job.message.get("id"),
                "problems": [
                    {
                        "message": self._without_folders(each.message),
                        "start": utf16_length(text[: each.start]),
                        "end": utf16_length(text[: each.end]),
                        "is_warning": each.is_warning,
                    }
                    for each in reported
                ],
                "sections": sections,
                "language": None if query is None else query.language,
                "copies": copies(text, query, self._explored, self._more),
            }
        )

    def _send_completions(self, job: _Job) -> None:
        """Send the completions at a place."""
        text = str(job.message.get("text", ""))
        at = job.message.get("at")
        offset = offset_of_utf16(text, at if isinstance(at, int) else len(text))
        offered = completions(text, offset, self._help, self._more.get("language"))
        self._send(
            {
                "kind": "completions",
                "id": job.message.get("id"),
                "at": at,
                "from": utf16_length(text[: word_before(text, offset)]),
                "items": [[each.text, each.kind.value, each.detail] for each in offered[:200]],
            }
        )

    # ---- what does --------------------------------------------------------------------------------------------

    def _evaluate_question(self, job: _Job) -> None:
        kind, question = job.message.get("kind"), job.message.get("id")

        def send(part: dict[str, Any]) -> None:
            if not job.stopped.is_set():
                self._send({**part, "id": question})

        def check() -> None:
            if job.stopped.is_set():
                raise EvaluationStopped

        try:
            self._load_events(check)
            if kind == "text":
                self._over_sample(job, send, check)
            elif kind == "run":
                self._over_all(job, send, check)
            elif kind == "rules":
                self._count_rules(job, send, check)
        except EvaluationStopped:
            self._send({"kind": "stopped", "id": question})
        except (CerError, OSError, MemoryError, pa.ArrowException) as error:
            text = self._without_folders(str(error)) or type(error).__name__
            send({"kind": "failed", "message": text})
        except Exception as error:  # a bug of ours: the page says so, and goes on
            send(
                {
                    "kind": "failed",
                    "message": f"internal error: {type(error).__name__}: {self._without_folders(str(error))}",
                }
            )
            raise

    def _load_events(self, check: Callable[[], None]) -> None:
        if self._explored.is_loaded:
            if not self._help.types and not self._help.values:
                self._help = self._explored.help()
            return
        last = time.monotonic()

        def at(n: int) -> None:
            nonlocal last
            if self._is_closed:
                raise EvaluationStopped
            if time.monotonic() - last > _BETWEEN_PROGRESS:
                last = time.monotonic()
                self._send({"kind": "loading", "n_events": n})

        self._explored.load(at)
        self._send({"kind": "loading", "n_events": self._explored.n_events, "is_loaded": True})
        self._help = self._explored.help()
        self._warm(check)

    def _warm(self, check: Callable[[], None]) -> None:
        """Find matches of a usual query, so that the loops of its evaluation are loaded before the first question."""
        types = [each for each in self._help.types if name_text(each) == each]
        if len(types) > 1:
            query = self._compile(f"SELECT * FROM S WHERE {types[0]} AS a ; {types[1]} AS b WITHIN 9 EVENTS")
            if query is not None:
                sample = self._explored.last(_STEPS[0])
                QueryResults(query, self._explored, sample, AS_ONE_TYPES, lambda part: None, check).send_all()

    def _compile(self, text: str) -> CompiledQuery | None:
        if not text.strip():
            return None
        query, _ = compiled_or_errors(text, self._explored.schema, self._compile_options)
        return query

    def _overview(self) -> dict[str, Any]:
        """Return the overview of the events, made once for each choice of columns."""
        explored, message = self._overview_message
        if explored is not self._explored or message is None:
            message = overview(self._explored)
            self._overview_message = self._explored, message
        return message

    def _sample(self, query: CompiledQuery, whole_keys: bool, n: int) -> tuple[EventSample, str]:
        """Return the sample of a query, and a remark if it is not as asked."""
        if not whole_keys:
            return self._explored.last(n), ""
        keys = tuple(names[0] for names in query.partition_keys)
        if not keys:
            return self._explored.last(n), "the query has no PARTITION BY"
        sample = self._explored.of_keys(keys, n)
        if sample is None:
            reason = "" if n >= self._explored.n_events else "these keys cannot be drawn"
            return self._explored.last(n), reason
        return sample, ""

    def _over_sample(self, job: _Job, send: Callable[..., None], check: Callable[[], None]) -> None:
        text = str(job.message.get("text", ""))
        query = self._compile(text)
        if query is None:
            if not text.strip():
                send(self._overview())
            send({"kind": "answered", "seconds": 0.0, "n_events": 0})
            return
        if query.reads_whole_table:
            self._over_one_sample(query, self._explored.last(_TABLE_EVENTS), "", send, check)
            return
        whole_keys = bool(job.message.get("whole_keys"))
        n, is_growing = self._n_sample, True
        while True:
            began = time.perf_counter()
            sample, remark = self._sample(query, whole_keys, n)

            def check_time(began: float = began, n: int = n) -> None:
                check()
                if time.perf_counter() - began > _TOO_LONG and n > _STEPS[0]:
                    raise _TooSlowError

            try:
                seconds = self._over_one_sample(query, sample, remark, send, check_time)
            except _TooSlowError:
                n, is_growing = smaller(n, 8), False
                self._n_sample = n
                continue
            self._n_sample = next_size(sample.n_events, n, seconds)
            if sample.is_whole or not is_growing or self._n_sample < 4 * n:
                return
            n = self._n_sample  # it was quick: over more events at once

    def _over_one_sample(
        self,
        query: CompiledQuery,
        sample: EventSample,
        remark: str,
        send: Callable[..., None],
        check: Callable[[], None],
        limits: ResultLimits = AS_ONE_TYPES,
    ) -> float:
        """Evaluate a query over a sample, and return the seconds until its matches were listed."""
        began, listed = time.perf_counter(), [0.0]

        def send_and_time(part: dict[str, Any]) -> None:
            if part["kind"] == "page":
                listed[0] = time.perf_counter() - began
            send(part)

        send({"kind": "sample", "sample": sample.words, "remark": remark, "is_whole": sample.is_whole})
        progress = self._progress(send, sample) if limits is OF_ALL else lambda doing, n: None
        QueryResults(query, self._explored, sample, limits, send_and_time, check, progress).send_all()
        send({"kind": "answered", "seconds": time.perf_counter() - began, "n_events": sample.n_events})
        return listed[0]

    def _over_all(self, job: _Job, send: Callable[..., None], check: Callable[[], None]) -> None:
        query = self._compile(str(job.message.get("text", "")))
        if query is None:
            send({"kind": "answered", "seconds": 0.0, "n_events": 0})
            return
        self._over_one_sample(query, self._explored.whole(), "", send, check, OF_ALL)

    @staticmethod
    def _progress(send: Callable[..., None], sample: EventSample) -> Callable[[str, int], None]:
        last = [0.0]

        def progress(doing: str, n: int) -> None:
            if time.monotonic() - last[0] > _BETWEEN_PROGRESS:
                last[0] = time.monotonic()
                send({"kind": "progress", "doing": doing, "n": n, "of": sample.n_events})

        return progress

    def _count_rules(self, job: _Job, send: Callable[..., None], check: Callable[[], None]) -> None:
        is_all = bool(job.message.get("all"))
        sample = self._explored.whole() if is_all else self._explored.last(SAMPLE_EVENTS)
        limits: ResultLimits = OF_ALL if is_all else AS_ONE_TYPES
        began = time.perf_counter()
        send({"kind": "rules_sample", "sample": sample.words})
        rules = self._rule_set()
        RuleCounts(rules, self._explored, sample, limits, send, check, self._progress(send, sample)).send_all()
        send({"kind": "answered", "seconds": time.perf_counter() - began, "of_rules": True})

    def _rule_set(self) -> QuerySet:
        """Return the compiled rules; those that are wrong are skipped."""
        if self._compiled_rules is None:
            self._compiled_rules = compile_rules(self._rules, errors="skip", **self._compile_options)
        return self._compiled_rules


def smaller(n: int, factor: int) -> int:
    """Return the size of a sample that is smaller by a factor, about."""
    return max((step for step in _STEPS if step * factor <= n), default=_STEPS[0])


def next_size(n_events: int, n: int, seconds: float) -> int:
    """Return the size of the next sample, after one of `n_events`, of at most `n`, took some time.

    Examples
    --------
    >>> from cer_gpu.exploring.session import next_size
    >>> next_size(100_000, 100_000, 0.01), next_size(1_000_000, 1_000_000, 0.6)
    (500000, 100000)
    """
    if n_events < n / 2 and seconds <= _SECONDS:
        return n
    fitting = min(n_events * (_SECONDS - _OVERHEAD) / max(seconds - _OVERHEAD, 1e-6), 5.0 * n)
    return max((step for step in _STEPS if step <= fitting), default=_STEPS[0])


def utf16_length(text: str) -> int:
    """Return the length of a text in code units of UTF-16, as JavaScript counts them."""
    return len(text) + sum(character > "\uffff" for character in text)


def offset_of_utf16(text: str, n_units: int) -> int:
    """Return the place in a text before which so many code units of UTF-16 are."""
    offset = 0
    while offset < len(text) and n_units > 0:
        n_units -= 2 if text[offset] > "\uffff" else 1
        offset += 1
    return offset
