"""CEQL as MATCH_RECOGNIZE, where both have exactly the same matches: chains of single events by ``:``.

Such a chain has at most one match for each row where one begins, which is what ``AFTER MATCH SKIP TO NEXT ROW`` finds.
The last event may also be the next that fits (``A -> B``), if no filter but its own tests it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.paths import names_of
from cer_gpu.columnar.fields import attribute_type
from cer_gpu.compilation import compile
from cer_gpu.errors import CerError
from cer_gpu.query import Query


class NoSqlError(Exception):
    """A query has no exact form in SQL; the text of the error says why."""


@dataclass
class _Step:
    """One event of the chain: its names, its variable in SQL, and what its row must satisfy."""

    names: set[str]
    label: str
    conditions: list[str] = field(default_factory=list)
    is_next: bool = False


def as_sql(query: Query, schema: pa.Schema, type_column: str | None, time_column: str | None) -> str:
    """Return a statement with MATCH_RECOGNIZE that has the same matches as a query in CEQL.

    ``SELECT *`` becomes a row for each event, numbered by match within its partition (as the output "rows" of the
    query, in another order), attributes of events become measures.

    Parameters
    ----------
    query
    schema
        Schema of the events.
    type_column, time_column
        As `cer_gpu.compile` takes them.

    Raises
    ------
    NoSqlError
    """
    text = _Statement(query.syntax, schema, type_column, time_column).text()
    try:
        compile(text, schema=schema)
    except CerError as error:
        raise NoSqlError(f"MATCH_RECOGNIZE refuses it: {str(error).splitlines()[0]}") from None
    return text


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class _Statement:
    """The statement of one query.  `_steps` are those of its chain, `_sites` the steps that a site defines."""

    def __init__(
        self, syntax: s.QuerySyntax, schema: pa.Schema, type_column: str | None, time_column: str | None
    ) -> None:
        self._syntax, self._schema, self._type_column, self._time_column = syntax, schema, type_column, time_column
        self._steps: list[_Step] = []
        self._sites: dict[int, list[int]] = {}

    def text(self) -> str:
        """Return the statement."""
        self._check_clauses()
        keys = self._keys()
        self._chain(self._syntax.formula)
        self._check_names()
        self._add_window()
        first = self._steps[0].conditions
        first += [f"{key} IS NOT NULL" for key in keys]  # in CEQL, events without a key have no matches
        names = [_quoted(step.label) for step in self._steps]
        gap = _quoted("any row")  # without a condition of its own
        pattern = " ".join(
            f"{gap}*? {name}" if step.is_next else name for step, name in zip(self._steps, names, strict=True)
        )
        defines = [
            f"{name} AS {' AND '.join(step.conditions)}"
            for step, name in zip(self._steps, names, strict=True)
            if step.conditions
        ]
        measures = self._measures()
        lines = [
            *([f"PARTITION BY {', '.join(keys)}"] if keys else []),
            *([f"ORDER BY {_quoted(self._time_column)}"] if self._time_column is not None else []),
            f"MEASURES {', '.join(measures or ('MATCH_NUMBER() AS match', 'CLASSIFIER() AS variable'))}",
            "ONE ROW PER MATCH" if measures else "ALL ROWS PER MATCH",
            "AFTER MATCH SKIP TO NEXT ROW",
            f"PATTERN ({pattern})",
            f"DEFINE {(',' + chr(10) + ' ' * 9).join(defines)}",
        ]
        if not defines:
            raise NoSqlError("it has no condition")
        return "SELECT * FROM events MATCH_RECOGNIZE (\n  " + "\n  ".join(lines) + "\n)"

    # ---- clauses ----------------------------------------------------------------------------------------------

    def _check_clauses(self) -> None:
        q = self._syntax
        has: Mapping[str, object] = {
            "it counts by CONSUME BY what is used up": q.consume != "NONE",
            "it has LIMIT": q.limit is not None or q.every is not None,
            "it has HAVING": q.having is not None,
            "it has LET": q.let,
            "it has EACH STEP": q.each_step is not None,
            "its keys differ by step": q.step_keys is not None,
            "it is conjunctive": q.head is not None,
            "it has several streams": len(q.streams) > 1,
            f"it has SELECT {q.select.strategy}": q.select.strategy not in ("ALL", "STRICT"),
            "it selects variables": any(item.written for item in q.select.items or ()),
            "it selects nothing": q.select.items == () and not q.select.measures,
            "it ends by a pipe": q.pipes,
        }
        for reason, is_so in has.items():
            if is_so:
                raise NoSqlError(reason)

    def _keys(self) -> list[str]:
        keys = []
        for names in self._syntax.partition:
            if len(names) != 1 or names[0].nullable or names[0].nocase or names[0].stream is not None:
                raise NoSqlError("its keys are not those of columns")
            column = self._quoted_column(names[0].name)
            if pa.types.is_floating(self._schema.field(names[0].name).type):
                raise NoSqlError("a key is a float")
            keys.append(column)
        return keys

    def _quoted_column(self, name: str) -> str:
        path = names_of(name)
        if len(path) != 1 or path[0] not in self._schema.names or attribute_type(self._schema, name) is None:
            raise NoSqlError(f"{name} is no column of the events")
        return _quoted(path[0])

    def _measures(self) -> list[str]:
        """Return the measures of SELECT: expressions over single events."""
        measures = []
        for measure in self._syntax.select.measures:
            names = {attribute.variable.name for attribute in s.attributes(measure.expression) if attribute.variable}
            steps = {name: [at for at, step in enumerate(self._steps) if name in step.names] for name in names}
            single: dict[str | None, int] = {name: self._single(s.Name(name), places) for name, places in steps.items()}
            measures.append(f"{self._expression_sql(measure.expression, None, single)} AS {_quoted(measure.name)}")
        return measures

    # ---- the chain --------------------------------------------------------------------------------------------

    def _chain(self, formula: s.Formula) -> list[int]:
        """Add the steps of a formula, and return their places."""
        match formula:
            case s.EventType():
                return self._add_event(formula)
            case s.Assign():
                places = self._chain(formula.formula)
                for at in places:
                    self._steps[at].names.add(formula.variable.name)
                if len(places) == 1:
                    self._steps[places[0]].label = formula.variable.name
                self._sites[formula.site] = places
                return places
            case s.Filtered():
                places = self._chain(formula.formula)
                self._add_filter(formula.filter, places)
                return places
            case s.Sequence(absent=()) if formula.contiguous or formula.next:
                left = self._chain(formula.left)
                right = self._chain(formula.right)
                if formula.next:
                    self._steps[right[0]].is_next = True
                    if len(right) > 1:
                        raise NoSqlError("more than one event follows ->")
                return [*left, *right]
            case s.Sequence(absent=()):
                raise NoSqlError("`;` finds every later event, MATCH_RECOGNIZE one match for each row where one begins")
        words = {
            s.Iteration: "a step is repeated: CEQL finds every repetition, MATCH_RECOGNIZE one for each start",
            s.Disjunction: "it has OR between events: CEQL finds both, MATCH_RECOGNIZE the first",
            s.Conjunction: "it has ALL between events",
            s.Windowed: "a part of it has its own window",
            s.Negation: "it has NOT(...)",
        }
        raise NoSqlError(words.get(type(formula), "it asks for the absence of events"))

    def _add_event(self, event: s.EventType) -> list[int]:
        name, types = event.event, self._type_column
        if name.stream not in (None, *(stream.name for stream in self._syntax.streams)):
            raise NoSqlError("it names another stream than that of FROM")
        conditions = []
        if name.name != s.ANY_TYPE:
            if types is not None:
                conditions.append(f"{self._quoted_column(types)} = {_string(name.name)}")
            elif name.name not in {stream.name for stream in self._syntax.streams}:
                raise NoSqlError("the events have no column of types")
        if self._steps and self._steps[-1].is_next:
            raise NoSqlError("events follow the one after ->")
        self._steps.append(_Step({name.name} if event.defines else set(), name.name, conditions))
        self._sites[event.site] = [len(self._steps) - 1]
        return self._sites[event.site]

    def _check_names(self) -> None:
        labels = [step.label for step in self._steps]
        if len(set(labels)) < len(labels):
            raise NoSqlError("two of its events have the same name: give them names by AS")
        if "any row" in labels:
            raise NoSqlError("an event is called `any row`")

    def _add_window(self) -> None:
        within, last = self._syntax.within, len(self._steps) - 1
        if within is None:
            return
        if within.kind != "time" or self._time_column is None:
            raise NoSqlError("its window is no length of time")
        if not pa.types.is_timestamp(self._schema.field(self._time_column).type):
            raise NoSqlError("its times are no timestamps")
        if last:
            time, first = self._quoted_column(self._time_column), _quoted(self._steps[0].label)
            bound = self._expression_sql(s.Duration(within.length), last, {})
            self._steps[last].conditions.append(f"{time} - {first}.{time} <= {bound}")

    # ---- filters ----------------------------------------------------------------------------------------------

    def _add_filter(self, node: s.Filter, places: list[int]) -> None:
        """Add a filter around some steps to the last of those that it reads."""
        if isinstance(node, s.FilterAnd):
            for each in node.operands:
                self._add_filter(each, places)
            return
        last = max(self._read(node, places))
        if self._steps[last].is_next and places != [last]:
            raise NoSqlError("a filter tests the event that -> took")
        self._steps[last].conditions.append(self._filter(node, last, places))

    def _read(self, node: s.Filter, places: list[int]) -> set[int]:
        """Return the steps that a filter reads."""
        match node:
            case s.VariableFilter():
                places_of_name = [at for at in places if node.variable.name in self._steps[at].names]
                return {self._single(node.variable, places_of_name)}
            case s.Relation():
                return set(self._roles(node).values())
            case s.FilterAnd() | s.FilterOr():
                return set().union(*(self._read(each, places) for each in node.operands))

    def _roles(self, node: s.Relation) -> dict[str | None, int]:
        """Return the steps of the variables of a join predicate."""
        places_of_name = {
            role.variable: [at for site in role.sites for at in self._sites.get(site, ())] for role in node.roles
        }
        return {variable.name: self._single(variable, places) for variable, places in places_of_name.items()}

    def _single(self, variable: s.Name, places: list[int]) -> int:
        if len(places) != 1 or variable.stream is not None:
            raise NoSqlError(f"{variable.name} is more than one event, or of a stream")
        return places[0]

    def _filter(self, node: s.Filter, row: int, places: list[int]) -> str:
        """Return a filter as a condition of a step."""
        match node:
            case s.VariableFilter():
                (own,) = self._read(node, places)
                return f"({self._predicate_sql(node.predicate, row, {None: own})})"
            case s.Relation():
                return f"({self._predicate_sql(node.predicate, row, self._roles(node))})"
            case s.FilterAnd() | s.FilterOr():
                word = " AND " if isinstance(node, s.FilterAnd) else " OR "
                return f"({word.join(self._filter(each, row, places) for each in node.operands)})"

    # ---- predicates, in the DEFINE of a step, or in MEASURES where `row` is None ------------------------------

    def _predicate_sql(self, predicate: s.Predicate, row: int | None, steps: Mapping[str | None, int]) -> str:
        def of(node: s.Predicate) -> str:
            return self._predicate_sql(node, row, steps)

        def value(node: s.Expression) -> str:
            return self._expression_sql(node, row, steps)

        match predicate:
            case s.And() | s.Or():
                word = " AND " if isinstance(predicate, s.And) else " OR "
                return word.join(f"({of(each)})" for each in predicate.operands)
            case s.Not():
                return f"NOT ({of(predicate.operand)})"
            case s.Comparison():
                return f"{value(predicate.left)} {predicate.op} {value(predicate.right)}"
            case s.Membership():
                return f"{value(predicate.operand)} IN ({', '.join(map(value, predicate.values))})"
            case s.IsNull():
                return f"{value(predicate.operand)} IS NULL"
        raise NoSqlError("a filter tests strings by a pattern, or lists")

    def _expression_sql(self, expression: s.Expression, row: int | None, steps: Mapping[str | None, int]) -> str:
        match expression:
            case s.Literal(value=bool()):
                return str(expression.value).upper()
            case s.Literal(value=str(value)):
                return _string(value)
            case s.Literal():
                return expression.text or str(expression.value)
            case s.Duration() if expression.length.denominator == 1:
                return f"INTERVAL '{expression.length}' SECOND"
            case s.Negative():
                return f"-({self._expression_sql(expression.operand, row, steps)})"
            case s.Arithmetic() if expression.op in ("+", "-", "*"):
                left, right = (self._expression_sql(each, row, steps) for each in (expression.left, expression.right))
                return f"({left} {expression.op} {right})"
            case s.Attribute():
                return self._attribute_sql(expression, row, steps)
        raise NoSqlError("it has a function, a division, or fractions of seconds")

    def _attribute_sql(self, attribute: s.Attribute, row: int | None, steps: Mapping[str | None, int]) -> str:
        name = None if attribute.variable is None else attribute.variable.name
        if attribute.looks_back or attribute.event != "EACH" or attribute.in_match or name not in steps:
            raise NoSqlError("it reads more than the columns of single events")
        column = self._quoted_column(attribute.name)
        return column if steps[name] == row else f"{_quoted(self._steps[steps[name]].label)}.{column}"


def _string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
