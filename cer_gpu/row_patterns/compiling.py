"""A statement with MATCH_RECOGNIZE to a compiled query; apart from the query, as sqlglot takes long to import."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import children, fold, with_children
from cer_gpu.errors import CerError, OptionError, QueryError, QueryTooLargeError, did_you_mean
from cer_gpu.row_patterns.conditions import MAX_CONDITIONS, Conditions
from cer_gpu.row_patterns.expressions import Translator
from cer_gpu.row_patterns.leaves import Null, RowAggregate, RowLeaf, RowValue, name_among, shown_leaf
from cer_gpu.row_patterns.pattern import has_exclusion, variables_in
from cer_gpu.row_patterns.program import RowProgram, program_of
from cer_gpu.row_patterns.row_matching import PAST_LAST_ROW, TO_FIRST, TO_LAST, TO_NEXT_ROW, Skip
from cer_gpu.row_patterns.row_measures import Measures
from cer_gpu.row_patterns.row_pattern_query import RowPatternQuery
from cer_gpu.row_patterns.searching import Searched
from cer_gpu.row_patterns.statement import WITH_UNMATCHED, Statement, parse_statement


def analyse(
    text: str, *, schema: pa.Schema | None = None, type_column: str | None = "type", **options: Any
) -> tuple[RowPatternQuery | None, Sequence[CerError]]:
    """Compile a statement and return it, or its error; parameters are those of `cer_gpu.compile`.

    Raises
    ------
    OptionError
        For any option but `schema`.
    """
    typed = None if type_column == "type" else type_column or "no type column"
    for option, value in {"type_column": typed, **options}.items():
        if value is not None:
            raise OptionError(f"{option} is an option of CEQL; in MATCH_RECOGNIZE, ORDER BY names the order of rows")
    try:
        query = compile_row_pattern(text)
        if schema is not None:
            query.output_schema(schema)
    except QueryError as error:
        return None, [error]
    return query, []


def compile_row_pattern(text: str) -> RowPatternQuery:
    """Compile a statement with MATCH_RECOGNIZE.

    Raises
    ------
    QuerySyntaxError
        When it is not such a statement.
    QueryError
        When it asks for something that is not supported, or has no meaning.
    """
    statement = parse_statement(text)
    results = {name: run(statement) for name, run in PASSES}
    program = results["places"]
    if program.counts and results["conditions"].searched:  # a search goes row by row
        program = _program(statement, may_count=False)
    return RowPatternQuery(text, statement, program, results["conditions"], results["measures"], results["skip"])


def _build_program(statement: Statement) -> RowProgram:
    return _program(statement, may_count=True)


def _program(statement: Statement, *, may_count: bool) -> RowProgram:
    try:
        return program_of(statement.pattern, may_count=may_count)
    except QueryTooLargeError as error:
        raise QueryTooLargeError(error.message, statement.text, *statement.pattern_span, error.hint) from None


def _conditions(statement: Statement) -> Conditions:
    translator = _translator(statement)
    predicates = {each.name: translator.predicate(each.span) for each in statement.define}
    return _split(statement, predicates, translator.leaves)


def _measures(statement: Statement) -> Measures:
    translator = _translator(statement)
    return Measures({each.name: translator.measure(each.span) for each in statement.measures}, translator.leaves)


def _translator(statement: Statement) -> Translator:
    return Translator(statement.text, frozenset([*_primary(statement), *statement.subsets]))


def _primary(statement: Statement) -> list[str]:
    """Return the variables of PATTERN."""
    return list(dict.fromkeys(variables_in(statement.pattern)))


def _split(statement: Statement, predicates: Mapping[str, s.Predicate], leaves: Mapping[str, RowLeaf]) -> Conditions:
    """Return two parts of the conditions: those of the row and rows around it, and those on other rows of the match."""
    local: dict[str, s.Predicate] = {}
    searched: dict[str, tuple[s.Predicate, ...]] = {}
    around: dict[str, RowValue | Null] = {}
    others: dict[str, RowLeaf] = {}
    for each in statement.define:
        mine = {None, each.name} | {name for name, members in statement.subsets.items() if each.name in members}
        here: list[s.Predicate] = []
        there: list[s.Predicate] = []
        for part in _conjuncts(predicates[each.name]):
            read = {
                a.name: _check_define_leaf(leaves[a.name], statement, each.name, a.span) for a in s.attributes(part)
            }
            if all(_is_around(leaf, mine) for leaf in read.values()):
                here.append(part)
                around |= {name: leaf for name, leaf in read.items() if isinstance(leaf, RowValue | Null)}
                continue
            names = {name: name_among(_relative(leaf, mine), others) for name, leaf in read.items()}
            there.append(_rename_variables(part, names))
        if here:
            local[each.name] = here[0] if len(here) == 1 else s.And(tuple(here), (here[0].span[0], here[-1].span[1]))
        if there:
            searched[each.name] = tuple(there)
    return Conditions(local, around, Searched(searched, others, statement.subsets) if searched else None)


def _conjuncts(predicate: s.Predicate) -> list[s.Predicate]:
    """Return the parts of a condition that must all hold."""
    if not isinstance(predicate, s.And):
        return [predicate]
    return [part for operand in predicate.operands for part in _conjuncts(operand)]


def _is_around(leaf: RowLeaf, mine: Container[str | None]) -> bool:
    """Return True for a value of the row itself, or of one at a fixed offset from it, and for NULL."""
    if isinstance(leaf, Null):
        return True
    return isinstance(leaf, RowValue) and leaf.variable in mine and leaf.is_current


def _relative(leaf: RowLeaf, mine: Container[str | None]) -> RowLeaf:
    """Return a leaf in which the row itself is the last one of all rows."""
    return replace(leaf, variable=None) if isinstance(leaf, RowValue) and _is_around(leaf, mine) else leaf


def _check_define_leaf(leaf: RowLeaf, statement: Statement, name: str, span: s.Span) -> RowLeaf:
    """Return a leaf that may be in DEFINE; refuse others."""
    reason = ""
    if leaf.final:
        reason = "FINAL has no meaning in DEFINE, where the match is not complete"
    elif isinstance(leaf, RowAggregate) and leaf.function == "ARRAY_AGG":
        reason = "ARRAY_AGG is not supported in DEFINE"
    if reason:
        raise QueryError(f"the condition of {name} names {shown_leaf(leaf)}: {reason}", statement.text, *span)
    return leaf


def _rename_variables(predicate: s.Predicate, names: Mapping[str, str]) -> s.Predicate:
    def combine(node: Any, parts: list[Any]) -> Any:
        return replace(node, name=names[node.name]) if isinstance(node, s.Attribute) else with_children(node, parts)

    return fold(predicate, combine, children)  # type: ignore[no-any-return]


def _check_statement(statement: Statement) -> None:
    """Refuse variables that are not there, and clauses that do not go together."""
    text, primary = statement.text, _primary(statement)
    if not (statement.all_rows or statement.measures or statement.partition):
        reason = "ONE ROW PER MATCH has no columns without MEASURES and PARTITION BY"
        raise QueryError(reason, text, 0, 0, hint="add MEASURES, or ALL ROWS PER MATCH")
    for each in statement.define:
        if each.name not in primary:
            hint = did_you_mean(each.name, primary, "variables of PATTERN")
            raise QueryError(f"DEFINE names {each.name}, which PATTERN does not have", text, *each.span, hint)
    if len(statement.define) > MAX_CONDITIONS:
        raise QueryError(f"DEFINE has more than {MAX_CONDITIONS} conditions", text, *statement.define[-1].span)
    for name, members in statement.subsets.items():
        if name in primary:
            raise QueryError(f"SUBSET {name} has the name of a variable of PATTERN", text, *statement.pattern_span)
        for member in members:
            if member not in primary:
                hint = did_you_mean(member, primary, "variables of PATTERN")
                raise QueryError(
                    f"SUBSET {name} has {member}, which PATTERN does not have", text, *statement.pattern_span, hint
                )
    if statement.empty == WITH_UNMATCHED and has_exclusion(statement.pattern):
        raise QueryError("WITH UNMATCHED ROWS and {- -} exclude one another", text, *statement.pattern_span)


def _skip(statement: Statement) -> Skip:
    how = statement.skip[0]
    if len(statement.skip) == 1:
        return Skip(TO_NEXT_ROW if how == "TO NEXT ROW" else PAST_LAST_ROW)
    name = statement.skip[1]
    members: Mapping[str, tuple[str, ...]] = {**{each: (each,) for each in _primary(statement)}, **statement.subsets}
    if name not in members:
        hint = did_you_mean(name, list(members), "variables")
        raise QueryError(
            f"AFTER MATCH SKIP names {name}, which PATTERN does not have", statement.text, *statement.skip_span, hint
        )
    return Skip(TO_FIRST if how == "TO FIRST" else TO_LAST, frozenset(members[name]), name)


PASSES: tuple[tuple[str, Callable[[Statement], Any]], ...] = (
    ("places", _build_program),
    ("names", _check_statement),
    ("conditions", _conditions),
    ("measures", _measures),
    ("skip", _skip),
)
"""Passes from a statement to the parts of its query; `cer_gpu.row_patterns.explaining` reports the effect of each."""
