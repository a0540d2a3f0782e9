"""A run: the evaluation of queries from its first event to its last, what it found, and its summary."""

from __future__ import annotations

from typing import Any

from cer_gpu.cli.alert_output import AlertSummary, AlertTable, NearMisses, lines_of
from cer_gpu.cli.event_arguments import Streams
from cer_gpu.cli.preview import FirstRows, FunnelPreview, Preview, QueryTable, funnel_facts, rows_to_show
from cer_gpu.cli.progress_bar import Display
from cer_gpu.cli.query_arguments import (
    QueryArguments,
    absent_notes,
    aside_note,
    missing_notes,
    notes_of,
    source_query,
    with_progress,
)
from cer_gpu.cli.result_streams import AlertEvaluation, CommandEvaluation
from cer_gpu.cli.signals import Signals
from cer_gpu.cli.tally import FORMS, Throughput, Totals, counted
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.io.sinks import Sink
from cer_gpu.output.funnel_counts import FunnelCounts
from cer_gpu.planning.outputs import funnel_names
from cer_gpu.stages import MeasuredStages

MANY = 10_000_000
"""Complex events after which a run without a file counts the rest, and on a terminal gives advice."""


class CommandRun:
    """Run of one query, or of several in one pass.

    Parameters
    ----------
    given
        Queries of a folder, which are evaluated in one pass, or one query, whose name is "".
    streams
    options
    alerts
        True: the results are alerts of rules.
    summed
        False: nobody asks for the funnels of "funnel", which hold a number for each step reached.

    Raises
    ------
    WrongQueries
        When queries are wrong, or do not fit the events, and are not left out.

    Attributes
    ----------
    evaluation : Evaluation
        At the end that which counts the rest, if there is one.
    totals : Totals
        The results so far.
    """

    def __init__(
        self,
        given: QueryArguments,
        streams: Streams,
        options: EvaluationOptions,
        *,
        alerts: bool = False,
        summed: bool = True,
    ) -> None:
        self._given, self._is_set, self._alerts = given, given.is_set, alerts
        self._stages = MeasuredStages()
        compiled = given.compile(streams, of_sources=alerts)
        sources = {rule.log_source: source_query(rule.log_source) for rule in given.rules.values() if rule.log_source}
        self._sources = {words: name for words, name in sources.items() if name in compiled}
        self._aside: list[str] = []
        if given.is_set and options.output == "funnel":
            compiled, self._aside = with_progress(compiled)
        self.evaluation: CommandEvaluation
        if alerts:
            beside = {name: compiled.pop(name) for name in self._sources.values()}
            self.evaluation = AlertEvaluation(
                given.rules, compiled, streams, options, self._stages, skipped=given.skipped, beside=beside
            )
        else:
            self.evaluation = CommandEvaluation(
                compiled, streams, options, self._stages, is_set=given.is_set, skipped=given.skipped
            )
        self._queries = queries = self.evaluation.queries
        self._notes = {name: compiled[name].notes for name in queries}
        self.options = options
        self.totals: Totals = Totals(self.evaluation.outputs, options.limit)
        counted = (name for name in queries if summed and FORMS[self.evaluation.outputs[name]].by_starts)
        plans = {name: plan for name in counted if (plan := queries[name]._plan) is not None}
        self._funnels = {name: FunnelCounts(funnel_names(plan), plan.time_unit) for name, plan in plans.items()}
        self._pace = Throughput()
        self._summary = AlertSummary(given.rules) if alerts else None

    def preview(self) -> Preview:
        """Return what shows the results on a terminal."""
        if self._alerts:
            return AlertTable(self._given.rules)
        if self._is_set and self._funnels:
            return NearMisses(self._funnels, self._given.rules)
        if self._is_set:
            return QueryTable()
        if self._funnels:
            return FunnelPreview(self._funnels[""])
        ((name, output),) = self.evaluation.outputs.items()
        limit = None if FORMS[output].numbered else self.options.limit
        return FirstRows(limit or rows_to_show(output), self.evaluation.schemas[name])

    def display(self, *, hidden: bool) -> Display:
        """Return the progress bar."""
        return Display(self.evaluation.n_rows, self.totals, self._stages, hidden=hidden, sorts=bool(self.options.sort))

    def finish(self, sink: Sink | None, preview: Preview | None, display: Display, signals: Signals) -> None:
        """Evaluate all events, and give the results to `sink` or `preview`."""

        def tick() -> None:
            signals.check()
            display.tick(self.evaluation.n_done)

        def before_a_batch() -> None:
            self._pace.before_a_batch(self.evaluation.n_done)
            tick()

        is_advised = False
        for name, batch in self.evaluation.batches(before_a_batch):
            tally = self.totals.of[name]
            tally.take(batch)
            if name in self._funnels:
                self._funnels[name].take(batch)
            if self._summary is not None:
                self._summary.take(batch)
            if sink is not None:
                sink.write(self.evaluation.rows(name, batch))
            elif preview is not None and preview.take(name, batch):
                with display.cleared():
                    preview.show()
            if tally.limit_reached and self.totals.limit_reached:
                return
            tick()
            if not is_advised and self.totals.n_listed >= MANY:
                is_advised = True
                counting = self.evaluation.counting() if sink is None else None
                display.say(self.evaluation.advice(str(self.totals), counts=counting is not None))
                if counting is not None:
                    self.evaluation = counting
                    break
        else:
            return
        for name, batch in self.evaluation.batches(before_a_batch):
            self.totals.of[name].take_counts(batch)
            if preview is not None:
                preview.take_counts(name, batch)
            tick()

    def facts(self) -> dict[str, Any]:
        """Return the summary up to now as plain data."""
        self._pace.finish(self.evaluation.n_done)
        facts: dict[str, Any] = {
            "n_events": self.evaluation.n_done,
            "n_late": self.evaluation.n_late,
            "output": self.totals.output,
            "n_rows": self.totals.n_rows,
            "n_matches": self.totals.n_matches,
            "limit_reached": self.totals.limit_reached,
            "seconds": self._pace.seconds,
            "rows_per_second": self._pace.rate,
        }
        if self._left_out:
            facts["n_suppressed"] = self.evaluation.n_suppressed
        funnels = {name: {"funnel": funnel_facts(counts)} for name, counts in self._funnels.items()}
        if self._is_set:
            facts["queries"] = {name: tally.facts | funnels.get(name, {}) for name, tally in self.totals.of.items()}
            if self._summary is not None:
                facts |= {by: of for by, of in self._summary.counts(self._raised).items() if by != "rules"}
        else:
            facts |= funnels.get("", {})
        return facts

    @property
    def _raised(self) -> dict[str, int]:
        return {name: tally.n_rows for name, tally in self.totals.of.items()}

    def overview(self, *, beside_table: bool) -> list[str]:
        """Return the numbers of alerts by level, tactic, rule and host, a line each; beside a table of rules, the rest.

        There are none for other results.
        """
        if self._summary is None:
            return []
        counts = self._summary.counts(self._raised)
        return lines_of({by: of for by, of in counts.items() if not (beside_table and by in ("levels", "rules"))})

    def summary(self) -> str:
        """Return the summary up to now as a line."""
        self._pace.finish(self.evaluation.n_done)
        said = [counted(self.evaluation.n_done, "row"), str(self.totals) + self._left_out]
        if self.options.late == "drop":
            said.append(f"{counted(self.evaluation.n_late, 'late event')} dropped")
        said.append(str(self._pace))
        return ", ".join(said) + (f"; stopped at --limit {self.options.limit}" if self.totals.limit_reached else "")

    @property
    def _left_out(self) -> str:
        """The number of complex events that LIMIT n EVERY d left out, in words; "" without the clause."""
        spaced = [query.compiled for query in self._queries.values() if query.is_spaced]
        if not spaced:
            return ""
        clause = "LIMIT EVERY"
        if not self._is_set:
            plan = spaced[0]._plan
            assert plan is not None
            assert plan.every is not None
            text, every = plan.text, plan.every
            length = " ".join(text[slice(*every.within.span)].split())
            clause = f"LIMIT {every.n} EVERY {length}"
        n = self.evaluation.n_suppressed
        return f"; {n:,} suppressed by {clause}" if n or not self._is_set else ""

    @property
    def notes(self) -> list[str]:
        """Remarks on the events, which hold for all of them only, and on queries that found nothing."""
        notes = [*self._given.notes, *aside_note(self._aside), *self.evaluation.remarks]
        of_events = self.evaluation.notes
        absent, missing = set[str](), self.evaluation.missing_fields
        if self._alerts and not self.totals.limit_reached:
            absent = {words for words, name in self._sources.items() if name not in self.evaluation.found_beside}
            notes += absent_notes({name: self._given.rules[name] for name in self._queries}, absent)
            missing = {name: own for name, own in missing.items() if self._given.rules[name].log_source not in absent}
        notes += missing_notes(missing, [self.evaluation.events_schema], self._given.rules)
        by_query: list[tuple[str, str]] = []
        for name, tally in self.totals.of.items():
            own = [] if tally.limit_reached else of_events.get(name, [])
            of_query = () if tally.n_rows else self._notes[name]
            by_query += [(name, note) for note in (*own, *of_query)]
        return notes + notes_of(by_query)
