"""Rules as they are given, as objects of pySigma with the files that they are from.

pySigma parses conditions on Python's stack and reads one bound of a correlation's condition: their nesting is bounded
here, and ranges such as ``gt: 100`` with ``lte: 200`` are split.
"""

from __future__ import annotations

import copy
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml
from sigma.collection import SigmaCollection
from sigma.correlations import (
    SigmaCorrelationCondition,
    SigmaCorrelationConditionOperator,
    SigmaCorrelationRule,
    SigmaCorrelationType,
)
from sigma.exceptions import (
    SigmaConditionError,
    SigmaCorrelationConditionError,
    SigmaCorrelationRuleError,
    SigmaCorrelationTypeError,
    SigmaDetectionError,
    SigmaError,
    SigmaRuleLocation,
)
from sigma.filters import SigmaFilter
from sigma.modifiers import SigmaWideModifier, modifier_mapping
from sigma.rule import SigmaRule
from sigma.types import SigmaNumber, type_map
from yaml import YAMLError

from cer_gpu.ceql.query_file import read_query_file
from cer_gpu.errors import CerError, OptionError, did_you_mean, nearest, underline
from cer_gpu.sigma.files import files_in, is_path
from cer_gpu.sigma.values import POLICY

MAX_NESTED = 80
"""Most brackets and ``not`` around a name of a condition: the query of a rule has some levels of its own."""

_CONDITION_WORD = re.compile(r"[()]|[^\s()]+")


def check_condition(condition: Any) -> None:
    """Raise SigmaConditionError if a condition is a text with too many brackets and ``not`` around a name."""
    if not isinstance(condition, str):
        return
    inside = [0]  # levels in each open bracket
    level = 0
    for word in _CONDITION_WORD.finditer(condition):
        if word[0] == "(":
            inside.append(level + 1)
        elif word[0] == ")":
            inside = inside[:-1] or [0]
        level = level + 1 if word[0].lower() == "not" else inside[-1]
        if level > MAX_NESTED:
            shown = underline(condition, *word.span())
            raise SigmaConditionError(
                "\n".join([f"the condition is nested more than {MAX_NESTED} levels deep", *shown])
            )


MORE_BOUNDS = "cer_gpu_bounds"
"""Custom attribute of a correlation of pySigma with the bounds of its condition but for the first one."""
_Op = SigmaCorrelationConditionOperator
_FROM, _TO = {_Op.GT, _Op.GTE, _Op.EQ}, {_Op.LT, _Op.LTE, _Op.EQ}
_OPEN = {_Op.GT, _Op.LT}


def split_range(condition: Any) -> tuple[Any, list[SigmaCorrelationCondition]]:
    """Return a condition with one bound, and its other bounds.

    Raises
    ------
    SigmaCorrelationConditionError
        For a bound that is no number, and for an empty range.
    """
    if not isinstance(condition, dict):
        return condition, []
    bounds = [key for key in condition if key in _Op.operators()]
    if len(bounds) < 2:
        return condition, []
    read = [SigmaCorrelationCondition.from_dict({key: condition[key]}) for key in bounds]
    _check_not_empty(read)
    return {key: value for key, value in condition.items() if key not in bounds[1:]}, read[1:]


def _check_not_empty(bounds: list[SigmaCorrelationCondition]) -> None:
    least = max((each.count for each in bounds if each.op in _FROM), default=-math.inf)
    greatest = min((each.count for each in bounds if each.op in _TO), default=math.inf)
    is_open = any(each.op in _OPEN and each.count in (least, greatest) for each in bounds)
    if least > greatest or (least == greatest and is_open):
        shown = ", ".join(f"{each.op.name.lower()}: {each.count}" for each in bounds)
        raise SigmaCorrelationConditionError(f"no number is in the range of the condition ({shown})")


MAX_FLOAT_INTEGER = 2**53
"""Greatest integer up to which every integer is a float."""
MAX_INTEGER_DIGITS = 1_000
"""Maximum number of digits of an integer: no value of an event has as many."""
_BOUNDARY = re.compile(r"(?m)^(?:---|\.\.\.)(?=\s|\Z)")


class ExactInteger(int):
    """An integer of YAML that may be no float."""


class ExactNumber(SigmaNumber):
    """A number of pySigma for integers that are no floats, which pySigma would round."""

    def __post_init__(self, init_number: Any) -> None:
        """Take the integer."""
        self.number: int | float = int(init_number)


type_map[ExactInteger] = ExactNumber  # values of this class come from here alone


class RuleLoader(yaml.CSafeLoader):
    """The loader of rules: it refuses duplicate keys, and leaves large integers as written."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a map; raises ConstructorError if a key is a duplicate or not a plain value."""
        keys = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            try:
                is_new = key not in keys
            except TypeError:
                raise _constructor_error(key_node, "expected a plain key, found a list or a map") from None
            if not is_new:
                raise _constructor_error(key_node, f"the key {key!r} stands twice in a map")
            keys.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping

    def construct_exact_integer(self, node: yaml.ScalarNode) -> int:
        """Return an integer; raises ConstructorError if it has more digits than Python converts to a string."""
        if len(node.value) > MAX_INTEGER_DIGITS:
            raise _constructor_error(node, f"an integer of more than {MAX_INTEGER_DIGITS:,} digits")
        value: int = self.construct_yaml_int(node)
        return value if abs(value) <= MAX_FLOAT_INTEGER else ExactInteger(value)


RuleLoader.add_constructor("tag:yaml.org,2002:int", RuleLoader.construct_exact_integer)


def _constructor_error(node: yaml.Node, problem: str) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


@dataclass(frozen=True)
class UnreadDocument:
    """A document that cannot be read.

    Attributes
    ----------
    text : str
    error : yaml.YAMLError
        Its message names the document, counted from 1, and the line of the file.
    """

    text: str
    error: yaml.YAMLError


def read_documents(text: str) -> Iterator[Any]:
    """Yield the documents of a text that are not empty; documents that cannot be read as `UnreadDocument`."""
    try:
        read = list(yaml.load_all(text, RuleLoader))
    except Exception:  # anything may come of a text
        yield from _one_by_one(text)
        return
    yield from (each for each in read if each is not None)


def _one_by_one(text: str) -> Iterator[Any]:
    number = 0
    for begin, part in _split_documents(text):
        n_lines = text.count("\n", 0, begin)
        if not part.strip().removeprefix("---").strip():
            continue
        number += 1
        try:
            for each in yaml.load_all("\n" * n_lines + part, RuleLoader):
                if each is not None:
                    yield each
        except Exception as error:
            lines = range(n_lines + part.startswith("---"), n_lines + part.rstrip().count("\n") + 1)
            yield UnreadDocument(part, yaml.YAMLError(f"document {number}, {_problem(error, lines)}"))


def _split_documents(text: str) -> Iterator[tuple[int, str]]:
    """Yield each document of a text, with the offset at which it begins."""
    begins = [0, *(match.start() for match in _BOUNDARY.finditer(text) if match.start())]
    for begin, end in zip(begins, [*begins[1:], len(text)], strict=True):
        part = text[begin:end]
        yield (begin + 3, part[3:]) if part.startswith("...") else (begin, part)


def _problem(error: Exception, lines: range) -> str:
    """Return the line of an error, counted from 1, and what is wrong there; `lines` are the document's."""
    if isinstance(error, RecursionError):
        return f"line {lines.start + 1}: is nested too deep for a rule"
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        said = str(error).partition("\n")[0] or type(error).__name__
        return f"line {lines.start + 1}: {said}"
    said = ", ".join(filter(None, (error.context, error.problem)))  # type: ignore[attr-defined]
    return f"line {min(mark.line, lines.stop - 1) + 1}: {said}"


_DETECTION, _CORRELATION = "detection", "correlation"
_PARTS = (_DETECTION, _CORRELATION, "filter", "action")
"""Keys of YAML documents of Sigma: one of them is in each."""
_NO_RULE = "YAML without a detection"
_OF_CORRELATIONS = frozenset(("type", "rules", "timespan", "group-by", "condition", "aliases"))
_CORRELATION_TEXT = re.compile(r"""(?m)^[ \t{]*["']?correlation["']?[ \t]*:""")
_TITLE_TEXT = re.compile(r"""(?m)^["']?title["']?[ \t]*:[ \t]*(.+?)[ \t]*$""")
_GENERATE_TEXT = re.compile(r"""(?mi)^[ \t{]*["']?generate["']?[ \t]*:[ \t]*true\b""")
_WORD = re.compile(r"[\w.-]+")

modifier_mapping.setdefault("utf16le", SigmaWideModifier)  # of the specification; pySigma knows its other name

AnyRule = SigmaRule | SigmaCorrelationRule


@dataclass(frozen=True)
class BaseRuleReferences:
    """The rules that a document of a correlation names, whether the correlation can be read or not.

    Attributes
    ----------
    title : str
    names : frozenset of str
        Names and ids, as `reference_key` has them.
    rule : SigmaCorrelationRule or None
        None if the correlation cannot be read.
    """

    title: str
    names: frozenset[str]
    rule: SigmaCorrelationRule | None


@dataclass(frozen=True)
class Fault:
    """Error in a file or a document.

    Attributes
    ----------
    name : str
        Title of the rule, else the name of its file.
    error : Exception
    file : Path or None
    """

    name: str
    error: Exception
    file: Path | None


@dataclass
class RuleDocuments:
    """Rules that were read.

    Attributes
    ----------
    rules : list of SigmaRule, SigmaCorrelationRule and SigmaFilter
    faults : list of Fault
    skipped_files : Counter
        YAML documents that are no rules, by their kind.
    references : list of BaseRuleReferences
        One of each correlation that does not ask for the results of its base rules (`generate`).
    """

    rules: list[AnyRule | SigmaFilter] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    skipped_files: Counter[str] = field(default_factory=Counter)
    references: list[BaseRuleReferences] = field(default_factory=list)


def read_rules(rules: Any, into: RuleDocuments) -> None:
    """Read rules as `cer_gpu.sigma.load` takes them.

    Raises
    ------
    OptionError
        When they are nothing that can be read.
    """
    if is_path(rules):
        if not Path(rules).exists():
            raise OptionError(f"{rules}: expected a file or folder of Sigma's rules, found nothing")
        for path in files_in(Path(rules)):
            try:
                text = read_query_file(path)
            except OptionError as error:
                into.faults.append(Fault(str(path), error, path))
                continue
            try:
                _read_yaml(text, path, into)
            except Exception as error:  # whatever comes of one file, the others are read
                into.faults.append(Fault(str(path), error, path))
    elif isinstance(rules, str):
        _read_yaml(rules, None, into)
    elif isinstance(rules, SigmaCollection):
        own = copy.deepcopy(rules)  # pipelines change rules
        _add_rules([*own.rules, *own.filters], into)
    elif isinstance(rules, (SigmaRule, SigmaCorrelationRule, SigmaFilter)):
        _add_rules([copy.deepcopy(rules)], into)
    elif isinstance(rules, Iterable) and not isinstance(rules, (Mapping, bytes)):
        for each in rules:
            read_rules(each, into)
    else:
        raise OptionError(
            f"rules must be a path, YAML, rules of pySigma, or a list of these, got {type(rules).__name__}"
        )


def _add_rules(rules: Iterable[AnyRule | SigmaFilter], into: RuleDocuments) -> None:
    """Take in rules of pySigma."""
    for rule in rules:
        into.rules.append(rule)
        if isinstance(rule, SigmaCorrelationRule) and rule.generate is not True:
            condition = getattr(rule.condition, "expression", "")
            names = [*(each.reference for each in rule.rules or ()), *_WORD.findall(condition)]
            into.references.append(BaseRuleReferences(title_of_rule(rule), _lowered_names(names), rule))


def _read_yaml(text: str, path: Path | None, into: RuleDocuments) -> None:
    documents: list[dict[str, Any]] = []
    for document in read_documents(text):
        if isinstance(document, UnreadDocument):
            _take_unread(document, path, into)
        elif isinstance(document, dict) and any(part in document for part in _PARTS):
            documents.append(document)
        elif isinstance(document, dict) and (meant := _mistyped_key(document)) is not None:
            key, part = meant
            title = str(document.get("title", path or "the text"))
            if part == _CORRELATION:
                into.references.append(BaseRuleReferences(title, _lowered_names(_rule_references(document[key])), None))
            hint = f"\nhint: did you mean {part!r} in place of {key!r}?" if key else ""
            kind = SigmaCorrelationRuleError if part == _CORRELATION else SigmaDetectionError
            into.faults.append(Fault(title, kind(f"expected a {part}, found none{hint}"), path))
        else:
            into.skipped_files[_NO_RULE] += 1
    source = None if path is None else SigmaRuleLocation(path)
    for some in _independent(documents):
        _read_some(some, path, source, into)


def _independent(documents: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield documents that refer to one another together, and others alone: one that is wrong stops no others."""
    if not any("action" in each for each in documents):
        yield from ([each] for each in documents)
        return
    yield [each for each in documents if _CORRELATION not in each or "action" in each]
    yield from ([each] for each in documents if _CORRELATION in each and "action" not in each)


def _read_some(
    some: list[dict[str, Any]], path: Path | None, source: SigmaRuleLocation | None, into: RuleDocuments
) -> None:
    """Read documents that refer to one another, or one."""
    title = str((some[0].get("title") if len(some) == 1 else None) or path or "the text")
    rules: list[AnyRule | SigmaFilter] = []
    bounds: list[SigmaCorrelationCondition] = []
    try:
        for each in some:
            check_keys(each)
        for each in some:  # pySigma parses the conditions of correlations as it reads them
            if isinstance(correlation := each.get(_CORRELATION), dict):
                _check_references(correlation.get("rules"))
                check_condition(correlation.get("condition"))
                correlation["condition"], bounds = split_range(correlation.get("condition"))
                _check_type(correlation.get("type"))
                if "generate" in each:  # where the schema of the specification has it
                    correlation.setdefault("generate", each["generate"])
        read = SigmaCollection.from_dicts(
            some, collect_errors=True, source=source, collect_filters=True, resolve_references=False, policy=POLICY
        )
    except Exception as error:  # anything may come of YAML that is no rule
        into.faults.append(Fault(title, error, path))
    else:
        rules = [*read.rules, *read.filters]
        errors = [error for rule in rules for error in rule.errors]
        into.faults += [Fault(title, error, path) for error in read.errors if not any(error is one for one in errors)]
    into.rules += rules
    read_here = next((rule for rule in rules if isinstance(rule, SigmaCorrelationRule)), None)
    if read_here is not None:
        read_here.custom_attributes[MORE_BOUNDS] = bounds
    for each in some:
        if _CORRELATION in each and not _generates(each):
            into.references.append(
                BaseRuleReferences(title, _lowered_names(_rule_references(each[_CORRELATION])), read_here)
            )


def check_keys(document: Any) -> None:
    """Raise SigmaDetectionError if a key of a document is not a string: pySigma takes all keys for strings."""
    for each in _nested_collections(document):
        for key in each if isinstance(each, dict) else ():
            if not isinstance(key, str):
                hint = f"\nhint: write it in quotes, '{key}'" if isinstance(key, int) else ""
                raise SigmaDetectionError(f"expected a text as a key, found {key!r}{hint}")


def _check_references(names: object) -> None:
    """Raise SigmaCorrelationRuleError for a number in place of a name: pySigma takes it for an index of all rules."""
    for name in names if isinstance(names, list) else ():
        if not isinstance(name, str):
            raise SigmaCorrelationRuleError(f"expected names or ids of rules, found {name!r}")


def _check_type(name: object) -> None:
    type_names = [each.name.lower() for each in SigmaCorrelationType]
    if name is not None and str(name).lower() not in type_names:
        hint = did_you_mean(str(name), type_names, "types")
        raise SigmaCorrelationTypeError(f"{name!r} is no type of correlations\nhint: {hint}")


def _take_unread(document: UnreadDocument, path: Path | None, into: RuleDocuments) -> None:
    """Take in a document that is no YAML, of which only words are known."""
    text = document.text
    title = _TITLE_TEXT.search(text)
    name = str(path or "the text") if title is None else title[1].strip("'\"")
    begin = _CORRELATION_TEXT.search(text)
    if begin is not None and not _GENERATE_TEXT.search(text):
        into.references.append(BaseRuleReferences(name, _lowered_names(_WORD.findall(text, begin.end())), None))
    into.faults.append(Fault(str(path or "the text"), document.error, path))


def _mistyped_key(document: Mapping[Any, Any]) -> tuple[str, str] | None:
    """Return the key that was meant to be one of a rule or of a correlation, and that one, or None if it is no rule."""
    keys = [str(key) for key, value in document.items() if isinstance(key, str) and isinstance(value, dict | list)]
    for key in keys:
        if (
            isinstance(document[key], dict)
            and "rules" in document[key]
            and len(_OF_CORRELATIONS & set(document[key])) > 1
        ):
            return key, _CORRELATION
    if "title" in document and (near := nearest(_CORRELATION, keys)) is not None:
        return near, _CORRELATION
    if {"title", "logsource"} <= document.keys():
        return nearest(_DETECTION, [key for key in keys if key != "logsource"]) or "", _DETECTION
    return None


def _generates(document: Mapping[str, Any]) -> bool:
    correlation = document[_CORRELATION]
    said = correlation.get("generate") if isinstance(correlation, dict) else None
    return (document.get("generate") if said is None else said) is True


def _rule_references(correlation: Any) -> list[str]:
    """Return the names of rules in a correlation; all its words, if it does not say which they are."""
    rules = correlation.get("rules") if isinstance(correlation, dict) else None
    condition = correlation.get("condition") if isinstance(correlation, dict) else None
    if rules is None and not isinstance(condition, str):
        return [word for text in _strings_in(correlation) for word in _WORD.findall(text)]
    names = [name.strip() for text in _strings_in(rules) for name in (text, *text.split(","))]
    return [*names, *(_WORD.findall(condition) if isinstance(condition, str) else ())]


def _strings_in(value: Any) -> list[str]:
    """Return all keys and plain values in a value of YAML, as strings."""
    parts = (
        part
        for each in _nested_collections([value])
        for part in (*each, *(each.values() if isinstance(each, dict) else ()))
    )
    return [str(part) for part in parts if part is not None and not isinstance(part, dict | list)]


def _nested_collections(value: Any) -> Iterator[dict[Any, Any] | list[Any]]:
    """Yield the mappings and lists in a value of YAML, each once, as aliases may lead back."""
    todo, visited = [value], set[int]()
    while todo:
        each = todo.pop()
        if isinstance(each, dict | list) and id(each) not in visited:
            visited.add(id(each))
            todo += each.values() if isinstance(each, dict) else each
            yield each


def _lowered_names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(map(reference_key, names))


def reference_key(name: object) -> str:
    """Return a name, or an id as all ids are written."""
    try:
        return str(UUID(str(name)))
    except ValueError:
        return str(name)


def title_of_rule(rule: AnyRule | SigmaFilter) -> str:
    """Return the title of a rule, else the name of its file."""
    if rule.title:
        return str(rule.title)
    return "without a title" if rule.source is None else rule.source.path.stem


def file_of_rule(rule: AnyRule | SigmaFilter) -> Path | None:
    """Return the file of a rule, or None if it was given as a text or an object."""
    return None if rule.source is None else rule.source.path


def words_of(error: Exception) -> str:
    """Return the message of an error, without the file, which is reported separately."""
    if isinstance(error, SigmaError):
        error = copy.copy(error)
        error.source = None
    if isinstance(error, RecursionError):
        return "is nested too deep for a rule"
    said = str(error) or type(error).__name__
    if isinstance(error, SigmaError | CerError | YAMLError):
        return said
    return f"cannot be read as a rule: {said}"
