"""The back end of pySigma that writes CEQL: ``cer_gpu``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, cast

from sigma.conditions import (
    ConditionAND,
    ConditionFieldEqualsValueExpression,
    ConditionNOT,
    ConditionOR,
    ConditionValueExpression,
)
from sigma.conversion.base import Backend
from sigma.conversion.state import ConversionState
from sigma.correlations import SigmaCorrelationRule
from sigma.exceptions import (
    SigmaDetectionError,
    SigmaError,
)
from sigma.processing.pipeline import ProcessingPipeline
from sigma.rule import SigmaRule
from sigma.types import (
    SigmaCasedString,
    SigmaCIDRExpression,
    SigmaCompareExpression,
    SigmaExpansion,
    SigmaFieldReference,
    SigmaNumber,
    SigmaQueryExpression,
    SigmaRegularExpression,
    SigmaString,
    SigmaTimestampPart,
)

from cer_gpu.ceql.paths import string_literal
from cer_gpu.sigma import formulas as f
from cer_gpu.sigma.correlations import correlation_query
from cer_gpu.sigma.pipelines.named import sources_of, words_of_source
from cer_gpu.sigma.pipelines.sources import ChosenColumns, predicate_of, test_of_sources
from cer_gpu.sigma.rule_files import check_condition
from cer_gpu.sigma.values import (
    OPERATORS_OF_SIGMA,
    CasedFieldReference,
    glob_of_value,
    mark_cased,
    number_of,
    regex_of_value,
)

TITLE_LINE = "-- Sigma: "
"""Beginning of the text of a rule."""
FieldCondition = ConditionFieldEqualsValueExpression
_FUNCTIONS = {(False, False): "", (True, False): "startswith", (False, True): "endswith", (True, True): "contains"}


def with_header(title: str, query: str) -> str:
    """Return the text of a rule: its query below a line with its title."""
    return f"{TITLE_LINE}{' '.join(title.split())}\n{query}"


class CerGpuBackend(Backend):
    """Back end of pySigma: each rule becomes one text of CEQL.

    Parameters
    ----------
    processing_pipeline
    collect_errors
        As of every back end of pySigma.
    columns
        Mapping from fields, or from columns of pipelines, to columns of the events: the last word.
    nocase_groups
        As of `cer_gpu.sigma.load`.
    **backend_options
        Those of pySigma.

    Notes
    -----
    Conditions become `cer_gpu.sigma.formulas`, which `finish_query` writes for the log sources of the rule.
    """

    name: ClassVar[str] = "CEQL of cer-gpu"
    identifier: ClassVar[str] = "cer_gpu"
    formats: ClassVar[dict[str, str]] = {"default": "one query in CEQL for each rule"}
    requires_pipeline: ClassVar[bool] = False
    correlation_methods: ClassVar[dict[str, str] | None] = {"default": "OVER aggregates, and sequences"}
    explicit_not_exists_expression: ClassVar[bool] = True

    def __init__(
        self,
        processing_pipeline: ProcessingPipeline | None = None,
        collect_errors: bool = False,
        columns: dict[str, str] | None = None,
        nocase_groups: bool = False,
        **backend_options: Any,
    ) -> None:
        super().__init__(processing_pipeline, collect_errors, **backend_options)
        self._columns: ChosenColumns = dict(columns or {})
        self._nocase_groups = nocase_groups

    # ---- rules

    def convert_rule(
        self, rule: SigmaRule, output_format: str | None = None, callback: Callable[..., Any] | None = None
    ) -> list[Any]:
        """Convert a rule to one query, OR-ing its conditions; [] if the rule was not requested."""
        try:
            if getattr(self, "last_processing_pipeline", None) is None:
                self.init_processing_pipeline(output_format)
            self.last_processing_pipeline.apply(rule)
            state = ConversionState(processing_state=dict(self.last_processing_pipeline.state))
            for each in rule.detection.condition:
                check_condition(each)
            for detection in rule.detection.detections.values():
                mark_cased(detection)
            conditions = [self.convert_condition(each.parsed, state) for each in rule.detection.parsed_condition]
            formula = f.some_of(each for each in conditions if each is not None)
            predicate = self.finish_query(rule, formula, state)
            if callback is not None:
                predicate = callback(rule, output_format, 0, rule.detection.parsed_condition[0], predicate)
            rule.set_conversion_result([predicate])
            rule.set_conversion_states([state])
            if not rule._output or predicate is None:
                return []
            return [self.finalize_query(rule, predicate, 0, state, output_format or self.default_format)]
        except SigmaError as error:
            if not self.collect_errors:
                raise
            self.errors.append((rule, error))
            return []

    def convert_correlation_rule(
        self,
        rule: SigmaCorrelationRule,
        output_format: str | None = None,
        method: str | None = None,
        callback: Callable[..., Any] | None = None,
    ) -> list[Any]:
        """Return the text of a correlation, whose rules were converted before; [] if it is not requested."""
        try:
            if getattr(self, "last_processing_pipeline", None) is None:
                self.init_processing_pipeline(output_format)
            self.last_processing_pipeline.apply(rule)
            query = correlation_query(rule, self._nocase_groups)
            rule.set_conversion_result([query.predicate])
            rule.set_conversion_states([ConversionState(processing_state=dict(self.last_processing_pipeline.state))])
            text: str | None = with_header(rule.title, query.text)
            if callback is not None:
                text = callback(rule, output_format, 0, rule.condition, text)
            if not rule._output or text is None:
                return []
            return [self.last_processing_pipeline.postprocess_query(rule, text)]
        except SigmaError as error:
            if not self.collect_errors:
                raise
            self.errors.append((cast(Any, rule), error))
            return []

    def _by_rule(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("convert_correlation_rule converts correlations of all types")

    convert_correlation_event_count_rule = _by_rule
    convert_correlation_value_count_rule = _by_rule
    convert_correlation_value_sum_rule = _by_rule
    convert_correlation_value_avg_rule = _by_rule
    convert_correlation_value_median_rule = _by_rule
    convert_correlation_value_percentile_rule = _by_rule
    convert_correlation_temporal_rule = _by_rule
    convert_correlation_temporal_ordered_rule = _by_rule
    convert_correlation_extended_temporal_rule = _by_rule
    convert_correlation_extended_temporal_ordered_rule = _by_rule

    def finish_query(self, rule: Any, query: Any, state: ConversionState) -> Any:
        """Return the predicate of a rule for the log sources that the pipelines have given it."""
        return predicate_of(query, sources_of(rule), self._columns)

    def finalize_query(self, rule: Any, query: Any, index: int, state: ConversionState, output_format: str) -> Any:
        """Return the text of a rule."""
        text = with_header(rule.title, f"SELECT * FROM events WHERE * AS event FILTER event[{query.text}]")
        return self.last_processing_pipeline.postprocess_query(rule, text)

    def log_source(self, rule: SigmaRule) -> tuple[str, str] | None:
        """Return the log source of a rule that was converted, in words, and the query for its events.

        None if no pipeline restricts it to some events.
        """
        test = test_of_sources(sources_of(rule), self._columns)
        if test is None:
            return None
        words = words_of_source(rule)
        return words, with_header(words, f"SELECT * FROM events WHERE * AS event FILTER event[{test}]")

    def finalize_output_default(self, queries: list[Any]) -> Any:
        """Return all rules as CEQL."""
        return queries

    # ---- conditions

    def convert_condition_or(self, cond: ConditionOR, state: ConversionState) -> Any:
        """Return a disjunction."""
        return _join_conditions(f.some_of, [self.convert_condition(each, state) for each in cond.args])

    def convert_condition_and(self, cond: ConditionAND, state: ConversionState) -> Any:
        """Return a conjunction."""
        return _join_conditions(f.all_of, [self.convert_condition(each, state) for each in cond.args])

    def convert_condition_not(self, cond: ConditionNOT, state: ConversionState) -> Any:
        """Return a negation."""
        part = self.convert_condition(cond.args[0], state)
        return None if part is None else f.Negated(part)

    def convert_condition_as_in_expression(self, cond: ConditionOR | ConditionAND, state: ConversionState) -> Any:
        """Return the same as for other conditions: `formulas.some_of` joins the values of a field."""
        if isinstance(cond, ConditionOR):
            return self.convert_condition_or(cond, state)
        return self.convert_condition_and(cond, state)

    # ---- values of fields

    def convert_condition_field_eq_val_str(self, cond: FieldCondition, state: ConversionState) -> Any:
        """Return the test of a text, which ignores case."""
        return f.FieldTest(cond.field, f.GLOB, (glob_of_value(cast(SigmaString, cond.value)),))

    def convert_condition_field_eq_val_str_case_sensitive(self, cond: FieldCondition, state: ConversionState) -> Any:
        """Return the test of a text with its case."""
        return f.FieldTest(cond.field, f.GLOB_CASED, (glob_of_value(cast(SigmaString, cond.value)),))

    def convert_condition_field_eq_val_num(self, cond: FieldCondition, state: ConversionState) -> Any:
        """Return the test of a number."""
        return f.FieldTest(cond.field, f.EQUAL, (number_of(cast(SigmaNumber, cond.value)),))

    def convert_condition_field_eq_val_timestamp_part(self, cond: FieldCondition, state: ConversionState) -> Any:
        """Return the test of a part of a time."""
        value = cast(SigmaTimestampPart, cond.value)
        return f.FieldTest(cond.field, f.PARTS_OF_TIME[_timestamp_part(value)], (number_of(value),))

    def convert_condition_field_eq_val_bool(self, cond: FieldCondition, state: ConversionState) -> Any:
        """Return the test of a truth, as a text."""
        return f.FieldTest(cond.field, f.GLOB, (string_literal("true" if cond.value else "false"),))

    def convert_condition_field_eq_val_re(self, cond: FieldCondition, state: ConversionState) -> Any:
        """Return the search for a regular expression."""
        return f.FieldTest(cond.field, f.REGEX, (regex_of_value(cast(SigmaRegularExpression, cond.value)),))

    def convert_condition_field_eq_val_cidr(self, cond: FieldCondition, state: ConversionState) -> Any:
        """Return the test of an address."""
        return f.FieldTest(cond.field, f.NETWORK, (string_literal(str(cast(SigmaCIDRExpression, cond.value).network)),))

    def convert_condition_field_compare_op_val(self, cond: FieldCondition, state: ConversionState) -> Any:
        """Return the comparison with a number, of the value or of a part of its time."""
        value = cast(SigmaCompareExpression, cond.value)
        part = _timestamp_part(value.number) if isinstance(value.number, SigmaTimestampPart) else ""
        return f.FieldTest(cond.field, f.COMPARED[part, OPERATORS_OF_SIGMA[value.op]], (number_of(value.number),))

    def convert_condition_field_eq_field(self, cond: FieldCondition, state: ConversionState) -> Any:
        """Return the test of two fields of an event."""
        value = cast(SigmaFieldReference, cond.value)
        function = _FUNCTIONS[value.starts_with, value.ends_with]
        return f.Likeness(cond.field, value.field, function, isinstance(value, CasedFieldReference))

    def convert_condition_field_eq_val_null(self, cond: FieldCondition, state: ConversionState) -> Any:
        """Return the test that there is no value."""
        return f.Presence(cond.field, False)

    def convert_condition_field_exists(self, cond: FieldCondition, state: ConversionState) -> Any:
        """Return the test that there is a value."""
        return f.Presence(cond.field, True)

    def convert_condition_field_not_exists(self, cond: FieldCondition, state: ConversionState) -> Any:
        """Return the test that there is no value."""
        return f.Presence(cond.field, False)

    def convert_condition_field_eq_query_expr(self, cond: FieldCondition, state: ConversionState) -> Any:
        """Return a test of CEQL that a pipeline wrote."""
        value = cast(SigmaQueryExpression, cond.value)
        return f.Verbatim(cond.field, value.expr.format(field="{field}", id=value.id))

    # ---- values without fields

    def convert_condition_val_str(self, cond: ConditionValueExpression, state: ConversionState) -> Any:
        """Return the test that any string column contains a string."""
        kind = f.GLOB_CASED if isinstance(cond.value, SigmaCasedString) else f.GLOB
        return f.FieldTest(None, kind, (glob_of_value(cast(SigmaString, cond.value), anywhere=True),))

    def convert_condition_val_num(self, cond: ConditionValueExpression, state: ConversionState) -> Any:
        """Return the test that any string column contains the digits of a number."""
        return f.FieldTest(None, f.GLOB, (string_literal(f"*{number_of(cast(SigmaNumber, cond.value))}*"),))

    def convert_condition_val_re(self, cond: ConditionValueExpression, state: ConversionState) -> Any:
        """Return the search for a regular expression in all string columns."""
        return f.FieldTest(None, f.REGEX, (regex_of_value(cast(SigmaRegularExpression, cond.value)),))

    def convert_condition_query_expr(self, cond: ConditionValueExpression, state: ConversionState) -> Any:
        """Return a test of CEQL that a pipeline wrote."""
        value = cast(SigmaQueryExpression, cond.value)
        return f.Verbatim(None, value.finalize())

    def convert_condition_val(self, cond: ConditionValueExpression, state: ConversionState) -> Any:
        """Return the test of a value without a field; of several that a modifier made of one, one must match."""
        match cond.value:
            case SigmaExpansion(values):
                return f.some_of(self.convert_condition_val(ConditionValueExpression(each), state) for each in values)
            case SigmaString() | SigmaNumber() | SigmaRegularExpression() | SigmaQueryExpression():
                return super().convert_condition_val(cond, state)
        raise SigmaDetectionError(f"{type(cond.value).__name__} needs a field", source=getattr(cond, "source", None))


def _timestamp_part(value: SigmaTimestampPart) -> str:
    return value.timestamp_part.name.lower()


def _join_conditions(
    join: Callable[[list[f.DetectionFormula]], f.DetectionFormula], parts: list[f.DetectionFormula | None]
) -> f.DetectionFormula | None:
    conditions = [part for part in parts if part is not None]
    return join(conditions) if conditions else None
