"""All rules through pipelines and the back end, with the reasons for rules that have no query."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import yaml
from sigma import exceptions as wrong
from sigma.collection import SigmaCollection
from sigma.correlations import SigmaCorrelationRule
from sigma.exceptions import SigmaCorrelationRuleError, SigmaError, SigmaRuleNotFoundError
from sigma.filters import SigmaFilter
from sigma.processing.pipeline import ProcessingPipeline
from sigma.rule import SigmaRule

from cer_gpu.cache import gc_paused
from cer_gpu.ceql.query_file import read_query_file
from cer_gpu.errors import OptionError, QueryError, did_you_mean, nearest
from cer_gpu.rule import Rule
from cer_gpu.sigma.backend import CerGpuBackend
from cer_gpu.sigma.files import YAML_ENDINGS
from cer_gpu.sigma.loaded import Refused, SigmaRules
from cer_gpu.sigma.pipelines.named import FINDERS, UnknownLogSourceError, chosen_columns, pipeline_named
from cer_gpu.sigma.rule_files import (
    AnyRule,
    Fault,
    RuleDocuments,
    file_of_rule,
    read_rules,
    reference_key,
    title_of_rule,
    words_of,
)

_TECHNIQUE = re.compile(r"attack\.(t\d{4}(?:\.\d{3})?)", re.IGNORECASE)
_TACTIC = re.compile(r"attack\.([a-z]+(?:[-_ ][a-z]+)*)", re.IGNORECASE)
_SMALL = ("and", "of", "the")


def techniques_of(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of techniques, as ``T1003.001``."""
    return _each(match[1].upper() for tag in tags if (match := _TECHNIQUE.fullmatch(tag)))


def tactics_of(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the names of tactics, as ``Credential Access``; groups and software, which have numbers, are none."""
    return _each(_technique_name(match[1]) for tag in tags if (match := _TACTIC.fullmatch(tag)))


def _technique_name(tag: str) -> str:
    words = re.split(r"[-_ ]", tag.lower())
    return " ".join(word if word in _SMALL else word.capitalize() for word in words)


def _each(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (wrong.SigmaPlaceholderError, "placeholders without values"),
    (wrong.SigmaRegularExpressionError, "regular expressions that RE2 does not take"),
    (UnknownLogSourceError, "log sources that the pipelines do not know"),
    (SigmaRuleNotFoundError, "references to rules that are not there"),
    (wrong.SigmaFeatureNotSupportedByBackendError, "not supported"),
    (yaml.YAMLError, "not YAML"),
    (OptionError, "not to be read"),
)
"""Kinds of reasons by the errors of pySigma; all others are rules that are wrong."""


@gc_paused()
def converted(rules: Any, pipelines: Any, columns: dict[str, str], nocase_groups: bool = False) -> SigmaRules:
    """Return the rules as CEQL; parameters and errors as in `cer_gpu.sigma.load`."""
    backend = CerGpuBackend(_pipeline(pipelines, columns), columns=columns, nocase_groups=nocase_groups)
    backend.init_processing_pipeline()
    documents = RuleDocuments()
    read_rules(rules, documents)
    refused = [_refused_fault(each) for each in documents.faults]
    sound: list[AnyRule] = []
    for rule in _apply_filters(documents, refused):
        if rule.errors:
            refused.append(_refused_rule(title_of_rule(rule), rule.errors[0], rule))
        else:
            sound.append(rule)
    named = {name for each in documents.references for name in each.names}
    for rule in sound:
        if named & _keys_of(rule):
            rule.disable_output()
    texts: dict[int, str] = {}
    source_of: dict[int, str] = {}
    log_sources: dict[str, str] = {}
    converted: set[int] = set()
    for rule in _referenced_first(sound, refused):
        try:
            if isinstance(rule, SigmaCorrelationRule):
                rule_texts = backend.convert_correlation_rule(rule)
            else:
                rule_texts = backend.convert_rule(rule)
                if rule_texts and (source := backend.log_source(rule)) is not None:
                    source_of[id(rule)] = source[0]
                    log_sources.setdefault(*source)
        except Exception as error:  # whatever comes of one rule, the others are converted
            refused.append(_refused_rule(title_of_rule(rule), error, rule))
            continue
        converted.add(id(rule))
        texts.update((id(rule), text) for text in rule_texts)
    loaded: dict[str, Rule] = {}
    fields: dict[str, tuple[str, ...]] = {}
    for rule in sound:
        if id(rule) in texts:
            name = _free_name(rule, loaded)
            loaded[name] = _rule_with_metadata(name, texts[id(rule)], rule, source_of.get(id(rule)))
            predicate = rule.get_conversion_result()[0]
            fields[name] = predicate.columns
            loaded[name] = replace(loaded[name], column_groups=predicate.groups)
    silenced = _silenced_rules(documents, sound, converted)
    return SigmaRules(loaded, fields, refused, +documents.skipped_files, silenced, log_sources)


def _keys_of(rule: AnyRule) -> set[str]:
    """Return the name and the id of a rule, as correlations name it."""
    return {reference_key(each) for each in (rule.name, rule.id) if each is not None}


def _silenced_rules(documents: RuleDocuments, rules: list[AnyRule], converted: set[int]) -> dict[str, tuple[str, ...]]:
    """Return the titles of rules that give no results for correlations without a query, by the titles of these."""
    is_used = [each.rule is not None and id(each.rule) in converted for each in documents.references]
    if all(is_used):
        return {}
    used = {name for each, is_so in zip(documents.references, is_used, strict=True) if is_so for name in each.names}
    keys = [(title_of_rule(rule), _keys_of(rule)) for rule in rules if id(rule) in converted]
    unused = [(title, own) for title, own in keys if not used & own]
    silenced: dict[str, tuple[str, ...]] = {}
    for each, is_so in zip(documents.references, is_used, strict=True):
        titles = [] if is_so else [title for title, own in unused if each.names & own]
        if titles:
            silenced[each.title] = tuple(dict.fromkeys([*silenced.get(each.title, ()), *titles]))
    return silenced


def _pipeline(pipelines_read: Any, columns: Mapping[str, str]) -> ProcessingPipeline:
    """Return all pipelines as one, in the order of their priorities."""
    single = isinstance(pipelines_read, (str, os.PathLike, ProcessingPipeline))
    pipelines = [_one_pipeline(each) for each in ([pipelines_read] if single else pipelines_read)]
    if columns:
        pipelines.append(chosen_columns(columns))
    return reduce(add, sorted(pipelines, key=lambda each: each.priority), ProcessingPipeline())


def _one_pipeline(pipeline: Any) -> ProcessingPipeline:
    if isinstance(pipeline, ProcessingPipeline):
        return pipeline
    if not isinstance(pipeline, (str, os.PathLike)):
        if callable(pipeline) and isinstance(called := pipeline(), ProcessingPipeline):
            return called
        raise OptionError(f"expected a pipeline of pySigma, or its name or path, got {type(pipeline).__name__}")
    if isinstance(pipeline, str) and pipeline.removeprefix("cer_gpu_") in FINDERS:
        return pipeline_named(pipeline.removeprefix("cer_gpu_"))
    path = Path(pipeline)
    if path.suffix in YAML_ENDINGS or path.is_file():
        text = read_query_file(path)
        try:
            return ProcessingPipeline.from_yaml(text, source_path=str(path))
        except (SigmaError, yaml.YAMLError, AttributeError, TypeError) as error:
            raise OptionError(f"{path}: is no pipeline of pySigma: {words_of(error)}") from None
    hint = did_you_mean(str(pipeline), FINDERS, "pipelines")
    raise OptionError(f"there is no pipeline {str(pipeline)!r}, nor a file of that name\nhint: {hint}")


def _apply_filters(documents: RuleDocuments, refused: list[Refused]) -> Iterator[AnyRule]:
    """Yield the rules after all filters."""
    filters = [each for each in documents.rules if isinstance(each, SigmaFilter)]
    for each in filters:
        if each.errors:
            refused.append(_refused_rule(title_of_rule(each), each.errors[0], each))
    filters = [each for each in filters if not each.errors]
    for rule in documents.rules:
        if isinstance(rule, SigmaFilter):
            continue
        if isinstance(rule, SigmaRule) and not rule.errors:
            try:
                rule = reduce(lambda whole, each: each.apply_on_rule(whole), filters, rule)  # type: ignore[arg-type, return-value]
            except Exception as error:
                refused.append(_refused_rule(title_of_rule(rule), error, rule))
                continue
        yield rule


def _referenced_first(rules: list[AnyRule], refused: list[Refused]) -> Iterator[AnyRule]:
    """Yield rules, each after the rules that it refers to; refuse correlations that refer to none of them."""
    collection = SigmaCollection(list(rules), resolve_references=False)
    resolved: list[AnyRule] = []
    for rule in rules:
        try:
            if isinstance(rule, SigmaCorrelationRule):
                _resolve(rule, collection)
        except Exception as error:
            refused.append(_refused_rule(title_of_rule(rule), error, rule))
            continue
        resolved.append(rule)
    placed: set[int] = set()
    sound = {id(rule) for rule in resolved}
    above: list[AnyRule] = []  # correlations that lead to the rule at hand

    def place(rule: AnyRule) -> Iterator[AnyRule]:
        if id(rule) in placed:
            return
        if any(rule is each for each in above):
            circle = above[next(i for i, each in enumerate(above) if each is rule) :]
            for each in circle:
                placed.add(id(each))
                refused.append(_refused_rule(title_of_rule(each), _circle_error(each, circle), each))
            return
        if isinstance(rule, SigmaCorrelationRule):
            above.append(rule)
            for reference in rule.referenced_rules if id(rule) in sound else ():
                yield from place(reference.rule)
            above.pop()
        if id(rule) not in placed and id(rule) in sound:
            placed.add(id(rule))
            yield rule

    for rule in resolved:
        yield from place(rule)


def _resolve(rule: SigmaCorrelationRule, collection: SigmaCollection) -> None:
    """Find the rules that a correlation refers to; the error names the nearest to one that is not there."""
    try:
        rule.resolve_rule_references(collection)
    except SigmaRuleNotFoundError as error:
        missing = next(each.reference for each in rule.referenced_rules if not hasattr(each, "rule"))
        near = nearest(str(missing), collection.names_to_rules)
        if near is None:
            raise
        raise SigmaRuleNotFoundError(f"{error.args[0]}\nhint: did you mean {near!r}?") from None


def _circle_error(rule: AnyRule, circle: list[AnyRule]) -> SigmaCorrelationRuleError:
    """Return the error of a correlation that refers to itself."""
    begin = next(i for i, each in enumerate(circle) if each is rule)
    names = [each.name or title_of_rule(each) for each in (*circle[begin:], *circle[: begin + 1])]
    return SigmaCorrelationRuleError(f"correlations refer to each other in a circle: {' -> '.join(names)}")


def _refused_rule(name: str, error: Exception, rule: AnyRule | SigmaFilter) -> Refused:
    """Return a rule without a text, with the reason."""
    return _refused_fault(Fault(name, error, file_of_rule(rule)))


def _refused_fault(fault: Fault) -> Refused:
    """Return a rule without a text, or a file without a rule, with the reason."""
    error, file = fault.error, None if fault.file is None else str(fault.file)
    kind = next((words for each, words in _KINDS if isinstance(error, each)), "wrong")
    if isinstance(error, OptionError):  # it names its file
        return Refused(fault.name, error, kind, file)
    said = words_of(error)
    return Refused(fault.name, QueryError(said if file is None else f"{file}: {said}"), kind, file)


def _free_name(rule: AnyRule, existing: Iterable[str]) -> str:
    """Return the title of a rule, made distinct from existing titles."""
    title, file = title_of_rule(rule), file_of_rule(rule)
    names = [title, *([] if file is None else [f"{title} ({file.stem})"])]
    number = 2
    while names[0] in existing:
        names = names[1:] or [f"{title} ({number})"]
        number += names[0] == f"{title} ({number})"
    return names[0]


def _rule_with_metadata(name: str, text: str, rule: AnyRule, log_source: str | None) -> Rule:
    """Return a rule with what it says of itself."""
    tags = tuple(map(str, rule.tags))
    file = file_of_rule(rule)
    return Rule(
        name=name,
        text=text,
        language="sigma",
        level=None if rule.level is None else str(rule.level),
        tags=tags,
        id=None if rule.id is None else str(rule.id),
        tactics=tactics_of(tags),
        techniques=techniques_of(tags),
        log_source=log_source,
        file=None if file is None else str(file),
    )
