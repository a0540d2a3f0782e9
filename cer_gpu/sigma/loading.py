"""Rules of Sigma as texts of CEQL by their titles, with the reasons for those that have none: `load`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import reduce
from importlib.metadata import PackageNotFoundError, version
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

from cer_gpu.cache import disk_cached, gc_paused
from cer_gpu.ceql.query_file import read_query_file
from cer_gpu.engine.evaluation_options import options_by_name
from cer_gpu.errors import CerError, OptionError, QueryError, did_you_mean, nearest
from cer_gpu.rule import Rule
from cer_gpu.sigma.backend import CerGpuBackend
from cer_gpu.sigma.files import YAML_ENDINGS, files_in, is_given_as_path
from cer_gpu.sigma.loaded import Refused, SigmaRules
from cer_gpu.sigma.pipelines.named import FINDERS, UnknownLogSourceError, chosen_columns, pipeline_named
from cer_gpu.sigma.rule_files import (
    AnyRule,
    Fault,
    GivenRules,
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
    """Return the rules as texts; parameters and errors are those of `cer_gpu.sigma.load`."""
    backend = CerGpuBackend(_pipeline(pipelines, columns), columns=columns, nocase_groups=nocase_groups)
    backend.init_processing_pipeline()
    given = GivenRules()
    read_rules(rules, given)
    refused = [_refused_fault(each) for each in given.faults]
    sound: list[AnyRule] = []
    for rule in _filtered(given, refused):
        if rule.errors:
            refused.append(_refused_rule(title_of_rule(rule), rule.errors[0], rule))
        else:
            sound.append(rule)
    named = {name for each in given.references for name in each.names}
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
                made = backend.convert_correlation_rule(rule)
            else:
                made = backend.convert_rule(rule)
                if made and (source := backend.log_source(rule)) is not None:
                    source_of[id(rule)] = source[0]
                    log_sources.setdefault(*source)
        except Exception as error:  # whatever comes of one rule, the others are converted
            refused.append(_refused_rule(title_of_rule(rule), error, rule))
            continue
        converted.add(id(rule))
        texts.update((id(rule), text) for text in made)
    found: dict[str, Rule] = {}
    fields: dict[str, tuple[str, ...]] = {}
    for rule in sound:
        if id(rule) in texts:
            name = _free_name(rule, found)
            found[name] = _rule_with_metadata(name, texts[id(rule)], rule, source_of.get(id(rule)))
            predicate = rule.get_conversion_result()[0]
            fields[name] = predicate.columns
            found[name] = replace(found[name], column_groups=predicate.groups)
    silenced = _silenced(given, sound, converted)
    return SigmaRules(found, fields, refused, +given.skipped_files, silenced, log_sources)


def _keys_of(rule: AnyRule) -> set[str]:
    """Return the name and the id of a rule, as correlations name it."""
    return {reference_key(each) for each in (rule.name, rule.id) if each is not None}


def _silenced(given: GivenRules, rules: list[AnyRule], converted: set[int]) -> dict[str, tuple[str, ...]]:
    """Return the titles of rules that give no results for correlations without a query, by the titles of these."""
    is_used = [each.rule is not None and id(each.rule) in converted for each in given.references]
    if all(is_used):
        return {}
    used = {name for each, is_so in zip(given.references, is_used, strict=True) if is_so for name in each.names}
    keys = [(title_of_rule(rule), _keys_of(rule)) for rule in rules if id(rule) in converted]
    unused = [(title, own) for title, own in keys if not used & own]
    silenced: dict[str, tuple[str, ...]] = {}
    for each, is_so in zip(given.references, is_used, strict=True):
        titles = [] if is_so else [title for title, own in unused if each.names & own]
        if titles:
            silenced[each.title] = tuple(dict.fromkeys([*silenced.get(each.title, ()), *titles]))
    return silenced


def _pipeline(asked: Any, columns: Mapping[str, str]) -> ProcessingPipeline:
    """Return all pipelines as one, in the order of their priorities."""
    single = isinstance(asked, (str, os.PathLike, ProcessingPipeline))
    pipelines = [_one_pipeline(each) for each in ([asked] if single else asked)]
    if columns:
        pipelines.append(chosen_columns(columns))
    return reduce(add, sorted(pipelines, key=lambda each: each.priority), ProcessingPipeline())


def _one_pipeline(asked: Any) -> ProcessingPipeline:
    if isinstance(asked, ProcessingPipeline):
        return asked
    if not isinstance(asked, (str, os.PathLike)):
        if callable(asked) and isinstance(made := asked(), ProcessingPipeline):
            return made
        raise OptionError(f"expected a pipeline of pySigma, or its name or path, got {type(asked).__name__}")
    if isinstance(asked, str) and asked.removeprefix("cer_gpu_") in FINDERS:
        return pipeline_named(asked.removeprefix("cer_gpu_"))
    path = Path(asked)
    if path.suffix in YAML_ENDINGS or path.is_file():
        text = read_query_file(path)
        try:
            return ProcessingPipeline.from_yaml(text, source_path=str(path))
        except (SigmaError, yaml.YAMLError, AttributeError, TypeError) as error:
            raise OptionError(f"{path}: is no pipeline of pySigma: {words_of(error)}") from None
    hint = did_you_mean(str(asked), FINDERS, "pipelines")
    raise OptionError(f"there is no pipeline {str(asked)!r}, nor a file of that name\nhint: {hint}")


def _filtered(given: GivenRules, refused: list[Refused]) -> Iterator[AnyRule]:
    """Yield the rules after all filters."""
    filters = [each for each in given.rules if isinstance(each, SigmaFilter)]
    for each in filters:
        if each.errors:
            refused.append(_refused_rule(title_of_rule(each), each.errors[0], each))
    filters = [each for each in filters if not each.errors]
    for rule in given.rules:
        if isinstance(rule, SigmaFilter):
            continue
        if isinstance(rule, SigmaRule) and not rule.errors:
            try:
                rule = reduce(lambda made, each: each.apply_on_rule(made), filters, rule)  # type: ignore[arg-type, return-value]
            except Exception as error:
                refused.append(_refused_rule(title_of_rule(rule), error, rule))
                continue
        yield rule


def _referenced_first(rules: list[AnyRule], refused: list[Refused]) -> Iterator[AnyRule]:
    """Yield rules, each after those that it refers to; correlations that refer to none of them are refused."""
    collection = SigmaCollection(list(rules), resolve_references=False)
    known: list[AnyRule] = []
    for rule in rules:
        try:
            if isinstance(rule, SigmaCorrelationRule):
                _resolve(rule, collection)
        except Exception as error:
            refused.append(_refused_rule(title_of_rule(rule), error, rule))
            continue
        known.append(rule)
    placed: set[int] = set()
    sound = {id(rule) for rule in known}
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

    for rule in known:
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
    """Return the error of a correlation that stands on itself."""
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


def _free_name(rule: AnyRule, taken: Iterable[str]) -> str:
    """Return the title of a rule, or one that tells it from those that are taken."""
    title, file = title_of_rule(rule), file_of_rule(rule)
    names = [title, *([] if file is None else [f"{title} ({file.stem})"])]
    number = 2
    while names[0] in taken:
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


_LISTS = ("tags", "tactics", "techniques")


def write_rules(found: SigmaRules) -> bytes:
    """Return rules as JSON; ValueError: the error of one is of a kind that is not known here."""
    kept = {
        "rules": {name: asdict(rule) for name, rule in found.rules.items()},
        "fields": found.fields,
        "refused": [[each.name, _plain_error(each.error), each.kind, each.file] for each in found._refused],
        "skipped_files": found.skipped_files,
        "silenced": found.silenced,
        "log_sources": found.log_sources,
    }
    return json.dumps(kept).encode()


def read_rules_of(content: bytes) -> SigmaRules:
    """Return the rules that `write_rules` was given."""
    kept = json.loads(content)
    refused = [Refused(name, _error_of_plain(plain), kind, file) for name, plain, kind, file in kept["refused"]]
    fields, silenced = ({name: tuple(of) for name, of in kept[each].items()} for each in ("fields", "silenced"))
    rules = {name: _rule_of_plain(of) for name, of in kept["rules"].items()}
    return SigmaRules(rules, fields, refused, kept["skipped_files"], silenced, kept["log_sources"])


def _rule_of_plain(plain: dict[str, Any]) -> Rule:
    groups = tuple(map(tuple, plain["column_groups"]))
    return Rule(**plain | {name: tuple(plain[name]) for name in _LISTS} | {"column_groups": groups})


def _plain_error(error: CerError) -> list[Any]:
    if type(error) is OptionError and len(error.args) == 1:
        return ["option", str(error.args[0])]
    if type(error) is QueryError:
        return ["query", error.message, error.text, error.start, error.end, error.hint]
    raise ValueError(f"{type(error).__name__} is not kept")


def _error_of_plain(plain: list[Any]) -> CerError:
    kind, *of = plain
    return OptionError(*of) if kind == "option" else QueryError(*of)


PYSIGMA_MISSING = "Sigma's rules need pySigma\nhint: pip install 'cer-gpu[sigma]'"


@options_by_name
def load(
    rules: Any,
    pipelines: Any = (),
    columns: Mapping[str, str] | None = None,
    *,
    nocase_groups: bool = False,
) -> SigmaRules:
    """Read rules of Sigma and write them in CEQL (docs/reference/sigma.md).

    Parameters
    ----------
    rules
        The path of a file or folder, YAML as a text, a collection or rule of pySigma, or a list of these.
    pipelines
        Names of pipelines ("windows", "sysmon", "windows_audit", "ecs", "linux", "cloudtrail", "zeek"), pipelines of
        pySigma, and paths of files with such, in any number.  Without one, rules are tested on events of all log
        sources.
    columns
        Columns of the events by the names of fields, or of columns that a pipeline puts in their place: the last word.
    nocase_groups
        True: in the groups of correlations, and among distinct values, strings that differ in the case of letters alone
        are one value, as in the tests of rules; False: they are several.

    Returns
    -------
    SigmaRules
        A mapping from title to text, for `cer_gpu.compile_all`.  Rules that cannot be written are in its `errors`.

    Raises
    ------
    OptionError
        When there is no pySigma, nothing to read, or no pipeline of that name.
    """
    if columns is not None and not (isinstance(columns, Mapping) and all(map(_is_text, columns.values()))):
        raise OptionError(f"columns must map fields to names of columns, got {columns!r}")
    if not isinstance(pipelines, str | os.PathLike | Iterable) and not hasattr(pipelines, "apply"):
        raise OptionError(f"pipelines must be names, paths or pipelines of pySigma, got {type(pipelines).__name__}")

    def make() -> SigmaRules:
        try:
            version("pysigma")  # the plugin alone is a package of the name sigma, too
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in ("pysigma", "sigma", "yaml"):
                raise
            raise OptionError(PYSIGMA_MISSING) from None
        return converted(rules, pipelines, dict(columns or {}), nocase_groups)

    try:
        parts = [version("pysigma"), repr(sorted((columns or {}).items())), repr(bool(nocase_groups))]
        made_of = [*parts, *_contents(rules), "by", *_contents(pipelines)]
    except (TypeError, OSError, PackageNotFoundError):
        return make()  # objects, or what is not there, of which it tells
    return disk_cached("sigma", made_of, make, write_rules, read_rules_of)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _contents(given: Any) -> Iterator[str | bytes]:
    """Yield what tells rules, or pipelines, from others: texts, and files with their contents; TypeError: objects."""
    if not isinstance(given, str | os.PathLike):
        if not isinstance(given, list | tuple):
            raise TypeError
        for each in given:
            yield from _contents(each)
    elif is_given_as_path(given) and os.path.exists(given):
        for path in files_in(Path(given)):
            yield str(path)
            yield path.read_bytes()
    else:
        yield str(given)
