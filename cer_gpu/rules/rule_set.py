"""Rules as a set of queries, with the alerts that they raise: `load` reads a folder of rules."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from cer_gpu.compilation import (
    MISSING_IN_RULES,
    TYPE_COLUMN,
    CompiledQuery,
    analyse_for_set,
    options_of_set,
)
from cer_gpu.engine.evaluation_options import (
    OF_EVENTS,
    RAISE,
    EvaluationOptions,
    accepts_options,
    check_errors,
    checking_names,
    options_by_name,
)
from cer_gpu.errors import CerError, QueryError, QueryErrorContext
from cer_gpu.io.source import Source
from cer_gpu.preparing.sets import compiled_together
from cer_gpu.query_set import QuerySet, QuerySetEvaluator
from cer_gpu.rule import Rule
from cer_gpu.rules.alerts import AlertRows, alert_output, in_order_of_ends, time_type_in
from cer_gpu.rules.folder import FieldColumns, read_folder

OF_ALERTS = tuple(name for name in OF_EVENTS if name not in ("output", "aggregate"))
"""Options of `RuleSet.alerts`."""


class RuleSet(QuerySet):
    """Compiled rules by name: a `cer_gpu.QuerySet` that has the metadata of each rule; the result of `load`.

    Parameters
    ----------
    queries
    rules
        Rule of each query.
    skipped_files
        Number of rules of the folder that are in no language known here, by language or kind.
    invalid_rules
        Names and errors of the rules that were left out.
    errors
        As of `cer_gpu.QuerySet`.
    notes
        Remarks on rules that give no results.

    Attributes
    ----------
    rules, skipped_files, notes
        As given.
    """

    def __init__(
        self,
        queries: Mapping[str, CompiledQuery],
        rules: Mapping[str, Rule],
        skipped_files: Mapping[str, int] | None = None,
        invalid_rules: Sequence[tuple[str, CerError]] = (),
        *,
        errors: str = RAISE,
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__(queries, errors=errors, skipped=_by_name(invalid_rules))
        self.rules: dict[str, Rule] = {name: rules[name] for name in queries}
        self.skipped_files: dict[str, int] = dict(skipped_files or {})
        self.notes: tuple[str, ...] = tuple(notes)

    @accepts_options(OF_ALERTS)
    def alerts(self, events: Any, options: EvaluationOptions) -> pa.Table:
        """Find all matches of all rules, as rows of one table (`cer_gpu.rules.alerts`) in the order of `end`.

        Parameters and errors as in `QuerySet.evaluate`, without `output`.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from cer_gpu.rules import Rule, compile_rules
        >>> rule = Rule("guessed", "SELECT * FROM S WHERE FAIL ; OK PARTITION BY [user]", level="high")
        >>> log = pa.table({"type": ["FAIL", "OK"], "user": ["ann", "ann"]})
        >>> found = compile_rules({rule.name: rule}).alerts(log)
        >>> found.select(["rule", "level", "key", "positions"]).to_pylist()
        [{'rule': 'guessed', 'level': 'high', 'key': [('user', 'ann')], 'positions': [0, 1]}]
        """
        outputs = self._outputs
        source = self._open_source(
            events,
            sort=options.sort,
            resident=True,
            needs=lambda schema: self._queries_over(schema, options)._file_pruning(schema, outputs=outputs),
        )
        schema, _, alerts = self._alerts(source, options)
        return in_order_of_ends(list(alerts), schema)

    @cached_property
    def _outputs(self) -> dict[str, str]:
        """The output of each query from which alerts are derived."""
        return {name: alert_output(query) for name, query in self._queries.items()}

    def _alerts(
        self, source: Source, options: EvaluationOptions
    ) -> tuple[pa.Schema, QuerySetEvaluator, Iterator[pa.RecordBatch]]:
        """Return the schema of alerts, their evaluator, and the alerts as matches are found."""
        options.check_time(self.time_column)
        together, outputs = self._queries_over(source.schema, options), self._outputs
        over, queries = together._over_outputs(source.schema, outputs), together._queries
        schemas = {name: query.result_schema for name, query in over.queries.items()}
        evaluator = together._fixed_evaluator(options, outputs)
        files = source.files if options.lateness is None else None
        rows = AlertRows(self.rules, queries, time_type_in(schemas, queries), files)
        alerts = (
            rows.from_results(name, batch) for name, batch in together._find_matches(source, evaluator, options.threads)
        )
        return rows.schema, evaluator, alerts


def options_of_rules(rules: Iterable[Rule], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `cer_gpu.compile` for rules, which read the same columns of types and times.

    Options that are not named come from the first language among them that has its own.
    """
    for rule in rules:
        requested = {**options, "language": rule.language or options.get("language")}
        chosen = options_of_set([rule.text], requested)
        if chosen != requested:
            return {**options, **{name: chosen[name] for name in ("type_column", "time_column")}}
    return dict(options)


def analyse_rule(
    rule: Rule, how: Callable[..., tuple[Any, Sequence[CerError]]] = analyse_for_set, **options: Any
) -> tuple[Any, Sequence[CerError]]:
    """Compile a rule and return its query, or its errors; options as in `cer_gpu.compile`."""
    if rule.language is not None:
        options["language"] = rule.language
    try:
        return how(rule.text, **options)
    except CerError:
        raise
    except Exception as error:  # whatever comes of one rule, the others run
        return None, [QueryError(f"cannot be compiled: {str(error) or type(error).__name__}")]


@options_by_name
def compile_rules(
    rules: Mapping[str, Rule],
    *,
    errors: str = RAISE,
    skipped_files: Mapping[str, int] | None = None,
    invalid_rules: Sequence[tuple[str, CerError]] = (),
    notes: Sequence[str] = (),
    **options: Any,
) -> RuleSet:
    """Compile rules by name.

    Parameters
    ----------
    rules
    errors
        As of `cer_gpu.compile_all`.
    skipped_files, invalid_rules, notes
        Those of the folder (`RuleSet`).
    **options
        Those of `cer_gpu.compile_all`.

    Raises
    ------
    QueryError, OptionError
        For the first rule that is wrong; the message begins with its name.
    """
    check_errors(errors)
    options = options_of_rules(rules.values(), {"type_column": TYPE_COLUMN, "time_column": None, **options})
    queries = compiled_together({name: (rule.text, rule.language) for name, rule in rules.items()}, **options)
    wrong = list(invalid_rules)
    for name, rule in rules.items():
        if name in queries:
            continue
        _, rule_errors = analyse_rule(rule, **options)
        if errors == RAISE:
            with QueryErrorContext(name):
                raise rule_errors[0]
        wrong.append((name, rule_errors[0]))
    if not queries:
        for _, error in wrong:
            raise error
    return RuleSet(queries, rules, skipped_files, wrong, errors=errors, notes=notes)


def _by_name(errors: Sequence[tuple[str, CerError]]) -> dict[str, CerError]:
    """Return errors by names, several of one name apart."""
    by_name: dict[str, CerError] = {}
    counts: Counter[str] = Counter()
    for name, error in errors:
        counts[name] += 1
        shown = name if counts[name] == 1 else f"{name} ({counts[name]})"
        while shown in by_name:  # as another one is called
            counts[name] += 1
            shown = f"{name} ({counts[name]})"
        by_name[shown] = error
    return by_name


@checking_names
def load(
    folder: str | os.PathLike[str],
    *,
    type_column: str | None = TYPE_COLUMN,
    time_column: str | None = None,
    time_unit: str | None = None,
    schema: pa.Schema | None = None,
    missing_fields: str = MISSING_IN_RULES,
    selection: str = "recent",
    errors: str = RAISE,
    pipelines: Any = (),
    columns: Mapping[str, str] | None = None,
    nocase_groups: bool = False,
) -> RuleSet:
    """Read and compile the rules of a folder, and of those in it (docs/guides/detection.md).

    Parameters
    ----------
    folder
        Files ``.ceql``, ``.sql`` and ``.eql`` are queries; ``.toml`` are rules as Elastic publishes them, ``.yml`` and
        ``.yaml`` those of Sigma.
    type_column, time_column, time_unit, schema, missing_fields, selection
        As in `cer_gpu.compile`, the same for all rules; the columns of types and times are those of EQL unless
        they are named, if one of the rules is in EQL.  A field that the events have not is by default NULL in rules of
        EQL and Sigma, and an error in others.
    errors
        As of `cer_gpu.compile_all`: "skip" leaves out rules that cannot be read, too.
    pipelines, columns, nocase_groups
        As in `cer_gpu.sigma.load`, for rules of Sigma.

    Raises
    ------
    QueryError, OptionError
        When there is no rule, or for the first that is wrong; the message begins with its name.
    """
    check_errors(errors)
    contents = read_folder(folder, FieldColumns(pipelines, columns or {}, nocase_groups))
    return compile_rules(
        contents.checked() if errors == RAISE else contents.rules,
        errors=errors,
        skipped_files=contents.skipped_files,
        invalid_rules=contents.errors,
        notes=contents.notes,
        type_column=type_column,
        time_column=time_column,
        time_unit=time_unit,
        schema=schema,
        missing_fields=missing_fields,
        selection=selection,
    )
