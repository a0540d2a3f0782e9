"""Lints: remarks on a query that compiles, each with its `Lint.kind` and its place.

| kind | |
| --- | --- |
| "no window" | a pattern of several events that may be any distance apart |
| "never" | a test that no event passes |
| "always" | a test that every event with a value passes |
| "unused variable" | ``AS x``, where nothing reads x |
| "no such type" | a type that no event has; made by `cer-gpu check`, which knows the events |

Only what is certain is reported: a predicate is "never" or "always" only if its constants show it.  Types that files
cannot have are found by the bounds in the footers of Parquet files (`types_outside`): no event is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import walk
from cer_gpu.columnar.fields import attribute_type
from cer_gpu.engine.evaluation_options import options_by_name
from cer_gpu.errors import QueryError
from cer_gpu.explain.ceql_text import expression_text
from cer_gpu.io.stores import open_local
from cer_gpu.lints.truths import OF_NULL, OF_ORDER, OF_TEST, OF_VALUE, Contradiction, Truths, TypeOf, below_of, truths

_Bounds = tuple[str, str]


def types_outside(types: Iterable[str], paths: Sequence[str], column: str) -> tuple[list[str], _Bounds] | None:
    """Return the types that no event of some files can have, and the least and greatest value of the column of types.

    Parameters
    ----------
    types
    paths
        Files, or folders of them.
    column
        Column of types.

    Returns
    -------
    (list of str, (str, str)) or None
        None where not all of them are Parquet files on this machine whose footers have bounds.
    """
    files = [file for path in paths for file in _parquet_files(path)]
    bounds = [each for file in files for each in _bounds_in(file, column)]
    present = [each for each in bounds if each is not None]
    if not present or len(present) < len(bounds):
        return None
    least, greatest = min(low for low, _ in present), max(high for _, high in present)
    return [name for name in types if not least <= name <= greatest], (least, greatest)


def _parquet_files(path: str) -> list[str]:
    if os.path.isdir(path):
        return sorted(
            os.path.join(folder, name)
            for folder, _, names in os.walk(path)
            for name in names
            if not name.startswith((".", "_"))
        )
    return [path]


def _bounds_in(file: str, column: str) -> list[_Bounds | None]:
    """Return the bounds of a column in each row group that has rows, or None if they are not known."""
    try:
        with open_local(file) as opened:
            footer = pq.ParquetFile(opened).metadata
    except (OSError, pa.ArrowInvalid):
        return [None]
    places = [i for i in range(len(footer.schema)) if footer.schema.column(i).path == column]
    if len(places) != 1:
        return [None]
    bounds: list[_Bounds | None] = []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        if group.num_rows == 0:
            continue
        statistics = group.column(places[0]).statistics
        has = statistics is not None and statistics.has_min_max and isinstance(statistics.min, str)
        bounds.append((statistics.min, statistics.max) if has else None)
    return bounds


NO_WINDOW, NEVER_TRUE, ALWAYS_TRUE, UNUSED, NO_TYPE = "no window", "never", "always", "unused variable", "no such type"
_CEQL = "CEQL"
_WINDOWS = {
    _CEQL: "add WITHIN, such as WITHIN 10 MINUTES or WITHIN 1000 EVENTS",
    "EQL": "add with maxspan=10m after sequence, or after its by",
}
"""Hints on a window, by the language."""
_BOUNDED = ("RECENT", "STRICT")
"""Selection strategies whose partial matches are few, whatever they wait for."""


@dataclass(frozen=True)
class Lint:
    """A remark on a query.

    Attributes
    ----------
    kind : str
    error : QueryError
        Message, place and hint; nobody raises it.
    """

    kind: str
    error: QueryError


@options_by_name
def lint(query: s.QuerySyntax, *, language: str = _CEQL, schema: pa.Schema | None = None) -> list[Lint]:
    """Return the remarks on a query, in the order of their places.

    Parameters
    ----------
    query
    language
        Language of its text.  In languages other than CEQL variables are not reported, as their authors did not name
        them, and tests only with a schema: a field may have a list of values, of which each test needs one.
    schema
        That of the events, over which the query was compiled: a test that values of an integer type cannot pass is
        reported, too; constants are not, as they may replace fields that the events do not have.

    Examples
    --------
    >>> import cer_gpu
    >>> from cer_gpu.lints import lint
    >>> query = cer_gpu.compile("SELECT * FROM S WHERE A AS a FILTER a[x > 5 AND x < 3]")
    >>> [remark.error.message for remark in lint(query.syntax)]
    ["no event satisfies this: no value of 'x' satisfies all of its conditions"]
    """
    is_plain = language == _CEQL
    linter = _Linter(query, schema, language)
    if is_plain or schema is not None:
        linter.filters()
    linter.window()
    if is_plain and query.head is None:
        linter.variables()
    return sorted(linter.lints, key=lambda each: (each.error.start or 0, each.error.end or 0))


class _Linter:
    def __init__(self, query: s.QuerySyntax, schema: pa.Schema | None, language: str) -> None:
        self.query = query
        self.lints: list[Lint] = []
        self._reported: set[tuple[str, s.Span]] = set()
        self._type_of = _type_function(schema)
        self._language = language
        self._of_constants = language == _CEQL and schema is None

    def add(self, kind: str, message: str, span: s.Span, hint: str | None = None) -> None:
        if (kind, span) not in self._reported:
            self._reported.add((kind, span))
            start, end = span if span[1] > span[0] else (None, None)
            self.lints.append(Lint(kind, QueryError(message, self.query.text, start, end, hint)))

    # ---- the window ---------------------------------------------------------------------------------------------

    def window(self) -> None:
        """Report a pattern of several events without any bound on the distance between them."""
        query = self.query
        if query.within is not None or query.each_step is not None or query.select.strategy in _BOUNDED:
            return
        for formula in _outside_windows(query.formula):
            match formula:
                case s.Sequence(contiguous=False) | s.Conjunction():
                    which = "the events of this pattern may be any distance apart"
                case s.Iteration(contiguous=False) if formula.n_max != 1:
                    which = "the repeated events may be any distance apart"
                case _:
                    continue
            message = f"no window: {which}, and partial matches are kept until the input ends"
            self.add(NO_WINDOW, message, formula.span, _WINDOWS.get(self._language, _WINDOWS[_CEQL]))
            return

    # ---- filters ------------------------------------------------------------------------------------------------

    def filters(self) -> None:
        """Report tests that no event passes, or that every event passes."""
        done: set[int] = set()
        for node in walk(self.query.formula):
            if isinstance(node, s.Filtered) and id(node) not in done:
                above: list[s.Filter] = []
                while isinstance(node, s.Filtered):
                    done.add(id(node))
                    above.insert(0, node.filter)
                    node = node.formula
                self.on(above)
            elif isinstance(node, s.Negation | s.Absence) and node.filter is not None:
                self.on([node.filter])

    def on(self, filters: Iterable[s.Filter]) -> None:
        """Check filters that hold together."""
        alike: dict[tuple[str, ...], list[s.VariableFilter | s.Relation]] = {}
        for whole in filters:
            conjuncts = set(map(id, whole.operands if isinstance(whole, s.FilterAnd) else (whole,)))
            for item in walk(whole):
                if not isinstance(item, s.VariableFilter | s.Relation):
                    continue
                is_open = self.predicate(item.predicate, item.span)
                if is_open and id(item) in conjuncts:
                    alike.setdefault(_variables_of(item), []).append(item)
        for names, items in alike.items():
            if len(items) == 1:
                continue
            together = s.joined(s.And, (item.predicate for item in items))
            reason = truths(together, self._type_of, nan=True)[id(together)].if_true
            if isinstance(reason, Contradiction) and reason.kind:
                who = " and ".join(map(repr, names))
                self.add(NEVER_TRUE, f"no event satisfies all filters on {who}: {_why(reason)}", items[-1].span)

    def predicate(self, predicate: s.Predicate, span: s.Span) -> bool:
        """Report the parts of a predicate that are never or always TRUE; return False if the whole is."""
        with_nan = truths(predicate, self._type_of, nan=True)
        without = truths(predicate, self._type_of, nan=False)
        todo: list[tuple[s.Predicate, s.Span, bool]] = [(predicate, span, False)]
        for node, around, is_alternative in todo:
            place = node.span if node.span[1] > node.span[0] else around
            read = list(s.attributes(node))
            below: Sequence[s.Predicate] = below_of(node)
            never, always = with_nan[id(node)].if_true, without[id(node)].if_false
            if not read and not self._of_constants:
                continue
            if isinstance(never, Contradiction):
                below = [] if isinstance(node, s.Not) else [each for each in below if _is_never(with_nan[id(each)])]
                if not below and (never.kind or self._of_constants):
                    what = "this alternative is never true" if is_alternative else "no event satisfies this"
                    self.add(NEVER_TRUE, f"{what}: {_why(never)}", place)
            elif isinstance(always, Contradiction):
                below = [] if isinstance(node, s.Not) else [each for each in below if _is_always(without[id(each)])]
                if not below and (always.kind or self._of_constants):
                    names = ", ".join(dict.fromkeys(map(_expression_text, read)))
                    with_values = f"every event with a value of {names}" if names else "every event"
                    self.add(ALWAYS_TRUE, f"{with_values} satisfies this", place)
            todo += [(each, place, isinstance(node, s.Or)) for each in below]
        return not _is_never(with_nan[id(predicate)]) and not _is_always(without[id(predicate)])

    # ---- variables ----------------------------------------------------------------------------------------------

    def variables(self) -> None:
        """Report the variables that nothing reads."""
        select = self.query.select
        read = {item.variable.name for item in select.items or ()}
        for node in walk(self.query.formula):
            match node:
                case s.VariableFilter():
                    read.add(node.variable.name)
                case s.Relation():
                    read.update(role.variable.name for role in node.roles)
                case s.Attribute(variable=s.Name() as owner):
                    read.add(owner.name)
        for node in walk(self.query.formula):
            if isinstance(node, s.Assign) and select.items is not None:
                variable: s.Name | None = node.variable
                outcome = "neither SELECT nor a filter reads it"
            elif isinstance(node, s.Negation | s.Absence):
                variable, outcome = node.variable, "no filter reads it"
            else:
                continue
            if variable is not None and variable.name not in read:
                message = f"variable {variable.name!r} is not used: {outcome}"
                self.add(UNUSED, message, variable.span, "drop AS, or select it")
        for column in self.query.let:
            if not column.is_read:
                self.add(UNUSED, f"column {column.name!r} of LET is not used", column.span, "drop it, or read it")


def _is_never(conditions: Truths) -> bool:
    return isinstance(conditions.if_true, Contradiction)


def _is_always(conditions: Truths) -> bool:
    return isinstance(conditions.if_false, Contradiction)


def _variables_of(item: s.VariableFilter | s.Relation) -> tuple[str, ...]:
    """Return the variables whose events a filter tests."""
    if isinstance(item, s.VariableFilter):
        return (item.variable.name,)
    return tuple(sorted({role.variable.name for role in item.roles}))


def _expression_text(expression: s.Expression) -> str:
    if isinstance(expression, s.Attribute) and not expression.looks_back and expression.event == "EACH":
        return expression_text(expression).replace("`", "")
    return expression_text(expression)


def _why(reason: Contradiction) -> str:
    """Return the words for a contradiction."""
    if reason.kind == OF_VALUE:
        return f"no value of {_expression_text(reason.of)!r} satisfies all of its conditions"
    if reason.kind == OF_NULL:
        return f"{_expression_text(reason.of)!r} would have to be NULL and not NULL"
    if reason.kind == OF_ORDER:
        one, other = map(_expression_text, reason.of)
        return f"the conditions on {one!r} and {other!r} contradict each other"
    if reason.kind == OF_TEST:
        return "a condition and its negation contradict each other"
    return "its constants alone decide it"


def _outside_windows(formula: s.Formula) -> Iterator[s.Formula]:
    """Yield the formulas within a formula that no local window bounds, from the outside to the inside."""
    todo = [formula]
    while todo:
        node = todo.pop()
        if isinstance(node, s.Windowed):
            continue
        yield node
        todo += reversed(s.subformulas(node))


def _type_function(schema: pa.Schema | None) -> TypeOf:
    """Return a function that returns the types of attributes of the tested event."""

    def type_of(attribute: s.Attribute) -> pa.DataType | None:
        if schema is None or attribute.looks_back:
            return None
        data_type = attribute_type(schema, attribute.name)
        return data_type.value_type if data_type is not None and pa.types.is_dictionary(data_type) else data_type

    return type_of
