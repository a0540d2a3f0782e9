"""A query in short, as a notebook shows it: its text, its meaning, the columns that it reads, and remarks."""

from __future__ import annotations

from collections.abc import Sequence

from cer_gpu.ceql.paths import dotted
from cer_gpu.ceql.syntax import attributes
from cer_gpu.explain.plain_words import in_words
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.printable import html_text, printable_lines


def in_short(plan: LogicalPlan, notes: Sequence[str] = ()) -> str:
    """Return HTML that shows a query; it does not build the automaton.

    Parameters
    ----------
    plan
    notes
        Remarks of the compilation.
    """
    from cer_gpu.ceql.highlighting import to_html  # Pygments takes long to import

    columns = [f"<code>{html_text(dotted(name))}</code>" for name in columns_named(plan)]
    remarks = "".join(f"<p>note: {html_text(note)}</p>" for note in notes)
    return (
        f"<div>{printable_lines(to_html(plan.text))}"
        f"<pre>{html_text(chr(10).join(in_words(plan.syntax, plan.formula, plan.strategy)))}</pre>"
        f"<p>Columns: {', '.join(columns) or 'any'}</p>{remarks}</div>"
    )


def columns_named(plan: LogicalPlan) -> list[str]:
    """Return the columns and fields that a query names, and those of its types and times, each once."""
    typed = any(guard.event_type is not None for guard in plan.guards)
    columns = [plan.type_column if typed else None, plan.time_column, plan.window_attribute]
    columns += [name for names in plan.partition_keys for name in names]
    columns += [key.attribute for role in (plan.step_keys.roles if plan.step_keys is not None else ()) for key in role]
    values = [*plan.predicates, *(each.expression for each in plan.made_columns)]
    columns += [each.name for value in values for each in attributes(value) if each.aggregate is None]
    columns += [aggregate.attribute for aggregate in plan.over_aggregates]
    columns += [*plan.measures.attributes, *(name.name for name in (*(plan.attributes or ()), *plan.unread))]
    let_columns = {each.column for each in plan.made_columns}
    return [name for name in dict.fromkeys(columns) if name is not None and name not in let_columns]
