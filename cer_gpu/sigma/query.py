"""Texts of Sigma's rules as queries: CEQL whose fields may be missing, or of another type than their tests expect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pyarrow as pa

from cer_gpu.ceql.parser import parse
from cer_gpu.errors import CerError, QueryError
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.query import check_time_unit
from cer_gpu.resolution.ceql import WrittenCeql
from cer_gpu.resolution.query import (
    AS_NULL,
    ParsedQuery,
    ResolvedQuery,
    SchemaDependentQuery,
    check_missing_fields,
    compiled_over,
)
from cer_gpu.sigma.fitting import LooseFitter
from cer_gpu.sigma.formulas import COUNTED


class WrittenSigma(WrittenCeql):
    """The text of a rule as it was read, and the options by which it is compiled."""

    def fitter(self, schema: pa.Schema) -> LooseFitter:
        """Return what fits predicates to a schema."""
        return LooseFitter(schema, missing_is_null=self.missing_fields == AS_NULL)


def analyse(
    text: str,
    *,
    type_column: str | None = "type",
    time_column: str | None = None,
    time_unit: str | None = None,
    schema: pa.Schema | None = None,
    missing_fields: str = AS_NULL,
    relations: Any = None,
) -> tuple[SigmaQuery | None, Sequence[CerError]]:
    """Compile the text of a rule and return it, or its errors; parameters are those of `cer_gpu.compile`."""
    check_time_unit(time_unit)
    check_missing_fields(missing_fields)
    try:
        syntax = parse(text, relations)
    except QueryError as error:
        return None, [error]
    source = WrittenSigma(type_column, time_column, time_unit, syntax, missing_fields)
    query, errors = compiled_over(SigmaQuery, source, schema)
    return cast(SigmaQuery | None, query), errors


class SigmaQuery(SchemaDependentQuery):
    """A compiled rule of Sigma, made by `cer_gpu.compile` of a text that begins with ``-- Sigma``.

    Attributes
    ----------
    language : str
        "Sigma".
    missing_fields : tuple of str
        Fields that the events have not, and that are NULL; () until a schema is known.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa
    >>> rule = cer_gpu.compile('''-- Sigma: whoami
    ...     SELECT * FROM events WHERE * AS event FILTER event[EventID = 1 AND Image GLOB '*whoami.exe' NOCASE]''')
    >>> events = pa.table({"EventID": ["1", "1"], "Image": ["C:/WhoAmI.exe", None]})
    >>> rule.evaluate(events, output="ends").to_pylist()
    [{'end': 0}]
    """

    language = "Sigma"

    def __init__(
        self,
        source: ParsedQuery,
        fitted: ResolvedQuery,
        plan: LogicalPlan,
        notes: tuple[str, ...] = (),
        changes: tuple[Callable[[LogicalPlan], LogicalPlan], ...] = (),
    ) -> None:
        # that there may be none before is the sense of it
        own = tuple(note for note in notes if not note.startswith(f"variable {COUNTED!r} "))
        super().__init__(source, fitted, plan, own, changes)
