"""A statement with MATCH_RECOGNIZE to a compiled query; apart from the query, as sqlglot takes long to import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cer_gpu.ceql import syntax as s
from cer_gpu.errors import QueryError, did_you_mean
from cer_gpu.row_patterns.conditions import MOST_CONDITIONS, Conditions
from cer_gpu.row_patterns.expressions import Translator
from cer_gpu.row_patterns.leaves import RowValue, shown
from cer_gpu.row_patterns.matching import PAST_LAST_ROW, TO_FIRST, TO_LAST, TO_NEXT_ROW, Skip
from cer_gpu.row_patterns.measures import Measures
from cer_gpu.row_patterns.pattern import has_exclusion, variables_in
from cer_gpu.row_patterns.program import program_of
from cer_gpu.row_patterns.query import RowPatternQuery
from cer_gpu.row_patterns.statement import WITH_UNMATCHED, Statement, parse_statement


def compile_row_pattern(text: str) -> RowPatternQuery:
    """Compile a statement with MATCH_RECOGNIZE.

    Raises
    ------
    QuerySyntaxError
        When it is no such statement.
    QueryError
        When it asks for something that is not supported, or has no meaning.
    """
    statement = parse_statement(text)
    program = program_of(statement.pattern)
    primary = list(dict.fromkeys(variables_in(statement.pattern)))
    _check(statement, primary)
    known = frozenset([*primary, *statement.subsets])
    translator = Translator(text, known)
    conditions = Translator(text, known)
    predicates = {each.name: conditions.predicate(each.span) for each in statement.define}
    leaves: dict[str, RowValue] = {}
    for each in statement.define:
        mine = {None, each.name} | {name for name, held in statement.subsets.items() if each.name in held}
        for attribute in s.attributes(predicates[each.name]):
            leaf = conditions.leaves[attribute.name]
            if not isinstance(leaf, RowValue) or leaf.variable not in mine or not leaf.is_current:
                raise QueryError(
                    f"the condition of {each.name} names {shown(leaf)}, and conditions read the row itself, or rows "
                    "around it by PREV and NEXT",
                    text,
                    *each.span,
                    hint="for conditions between events, see CEQL: docs/language.md",
                )
            leaves[attribute.name] = leaf
    expressions = {each.name: translator.measure(each.span) for each in statement.measures}
    skip = _skip(statement, primary)
    return RowPatternQuery(
        text, statement, program, Conditions(predicates, leaves), Measures(expressions, translator.leaves), skip
    )


def _check(statement: Statement, primary: Sequence[str]) -> None:
    """Refuse variables that are not there, and clauses that do not go together."""
    text = statement.text
    if not (statement.all_rows or statement.measures or statement.partition):
        reason = "ONE ROW PER MATCH has no columns without MEASURES and PARTITION BY"
        raise QueryError(reason, text, 0, 0, hint="add MEASURES, or ALL ROWS PER MATCH")
    for each in statement.define:
        if each.name not in primary:
            hint = did_you_mean(each.name, primary, "variables of PATTERN")
            raise QueryError(f"DEFINE names {each.name}, which PATTERN does not have", text, *each.span, hint)
    if len(statement.define) > MOST_CONDITIONS:
        raise QueryError(f"DEFINE has more than {MOST_CONDITIONS} conditions", text, *statement.define[-1].span)
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


def _skip(statement: Statement, primary: Sequence[str]) -> Skip:
    how = statement.skip[0]
    if len(statement.skip) == 1:
        return Skip(TO_NEXT_ROW if how == "TO NEXT ROW" else PAST_LAST_ROW)
    name = statement.skip[1]
    members: Mapping[str, tuple[str, ...]] = {**{each: (each,) for each in primary}, **statement.subsets}
    if name not in members:
        hint = did_you_mean(name, list(members), "variables")
        raise QueryError(
            f"AFTER MATCH SKIP names {name}, which PATTERN does not have", statement.text, *statement.skip_span, hint
        )
    return Skip(TO_FIRST if how == "TO FIRST" else TO_LAST, frozenset(members[name]), name)
