"""The cell magic ``%%ceql``: a cell that is a query, over a variable or a file, and its results."""

from __future__ import annotations

import base64
import contextlib
import io
import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from click import BadParameter, Choice, IntRange, Option
from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
)
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from cer_gpu.cli.preview import cells, preview
from cer_gpu.cli.shared_options import (
    OF_TEXT_FILES,
    QUERY_OPTIONS,
    TEXT_FILE_OPTIONS,
    declared_option,
    options_of,
    reading_of,
    with_sort,
)
from cer_gpu.cli.tally import Tally
from cer_gpu.editing.completing import completions, word_before
from cer_gpu.editing.event_schema import EventSchema, compiled_or_errors
from cer_gpu.engine.evaluation_options import OF_COMMANDS
from cer_gpu.errors import CerError, OptionError, QueryError, did_you_mean
from cer_gpu.explain.explanation import Explanation
from cer_gpu.frames.frame_matching import COMPILING_OPTIONS, CompiledForFrame, checked
from cer_gpu.frames.kinds import Kind, kind_of_frame
from cer_gpu.io.files import Files
from cer_gpu.io.sources import open_events
from cer_gpu.io.text_options import USUAL, TextOptions
from cer_gpu.plot import MAX_LANES, timeline
from cer_gpu.printable import counted, html_text
from cer_gpu.query import Query

_TEXT_WIDTH = 120
"""Width of the table in a terminal, in characters."""


class Shown:
    """Results of a query, to be displayed.

    Attributes
    ----------
    result
        The results as a frame of the kind of the events.
    """

    def __init__(self, query: CompiledForFrame, result: Any, table: pa.Table, output: str | None, n_rows: int) -> None:
        self.result = result
        self._query = query
        self._table = table
        self._output = output
        self._first = table.slice(0, max(n_rows, 0))

    @property
    def _summary(self) -> str:
        """The number of results, and of those that are shown."""
        n_rows = self._table.num_rows
        if not isinstance(self._query, Query):
            every = counted(n_rows, "row")
        elif n_rows == 0:
            return "no matches"
        else:
            tally = Tally(self._output or self._query.default_output)
            for batch in self._table.to_batches():
                tally.take(batch)
            every = str(tally)
        n_shown = self._first.num_rows
        return every if n_shown == n_rows else f"the first {n_shown:,} of {every}"

    def __repr__(self) -> str:
        """Show the first results in a terminal."""
        return f"{preview(self._first, _TEXT_WIDTH)}\n{self._summary}" if self._first.num_rows else self._summary

    def _repr_html_(self) -> str:
        """Show the first results and the timeline in a notebook."""
        return f"<div>{self._table_html()}<p>{html_text(self._summary)}</p>{self._picture()}</div>"

    def _table_html(self) -> str:
        if not self._first.num_rows:
            return ""
        columns = [cells(column.combine_chunks()) for column in self._first.columns]
        heads = "".join(f"<th>{html_text(name)}</th>" for name in self._first.column_names)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html_text(cell).replace(chr(10), '<br>')}</td>" for cell in row) + "</tr>"
            for row in zip(*columns, strict=True)
        )
        return f'<div style="overflow-x: auto"><table><tr>{heads}</tr>{rows}</table></div>'

    def _picture(self) -> str:
        """Return the timeline as an HTML element, or "" without one or without Matplotlib."""
        table = self._table
        if not isinstance(self._query, Query) or not {"start", "end"} <= {*table.column_names} or not table.num_rows:
            return ""
        if find_spec("matplotlib") is None:
            return ""
        from matplotlib.figure import Figure

        keys = [names[0] for names in self._query.partition_keys if names[0] in table.column_names]
        n_rows = min(pc.count_distinct(table[keys[0]], mode="all").as_py(), MAX_LANES) if keys else 0
        figure = Figure(figsize=(8, max(2.5, 0.16 * n_rows)), layout="constrained")
        timeline(table, figure.subplots(), by=keys[0] if keys else None)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=96)
        return f'<img alt="timeline" src="data:image/png;base64,{base64.b64encode(file.getvalue()).decode("ascii")}">'


_COMPILING = ("language", "type_column", "time_column", "time_unit", "missing_fields", "selection")
_OPTIONS = (*_COMPILING, *OF_COMMANDS)
_HEAD = "%%ceql "


def register_in(shell: InteractiveShell) -> None:
    """Register the magic, and the completion of its cells."""
    magics = CeqlMagics(shell)
    shell.register_magics(magics)
    if shell.Completer is not None:
        shell.Completer.custom_matchers.append(magics.complete)


def _command_arguments(function: Any) -> Any:
    """Add options of commands: those for compiling queries, for their evaluation, and for reading text files."""
    compiling = [each for each in options_of(*QUERY_OPTIONS) if each.name in (*_COMPILING, "no_type_column")]
    evaluation = options_of(*map(declared_option, OF_COMMANDS))
    for option in reversed([*compiling, *evaluation, *options_of(*TEXT_FILE_OPTIONS)]):
        name, is_negative = option.opts[0], bool(option.secondary_opts)
        kind: dict[str, Any] = {}
        if is_negative:
            kind = {"action": "store_false"}
            name = option.secondary_opts[0]
        elif option.is_flag:
            kind = {"action": "store_true"}
        elif option.multiple:
            kind = {"action": "append", "default": []}
        else:
            kind = {"metavar": option.metavar}
            if isinstance(option.type, IntRange):
                kind["type"] = int  # the record of options checks the range, and the words of choices
            elif not isinstance(option.type, Choice):
                kind["type"] = partial(_converted, option)
        text = (option.help or "").replace("%", "%%")
        function = argument(name, dest=option.name, help=text, **kind)(function)
    return function


def _converted(option: Option, text: str) -> Any:
    """Return the value of an option, converted as in commands."""
    try:
        return option.type.convert(text, option, None)
    except BadParameter as error:
        raise UsageError(f"{option.opts[0]}: {error.message}") from None


@magics_class
class CeqlMagics(Magics):
    """Magics of the package; made by ``%load_ext cer_gpu``."""

    @magic_arguments()
    @argument("events", help="Variable that holds the events, or a file, folder, glob or URL.")
    @_command_arguments
    @argument("--rows", type=int, default=10, help="Rows to show.  [default: 10]")
    @argument("--explain", action="store_true", help="Explain the query instead of evaluating it.")
    @argument("-o", "--out", metavar="NAME", help="Variable for the result, a frame of the same library as the events.")
    @cell_magic
    def ceql(self, line: str, cell: str) -> Shown | Explanation | dict[str, Explanation]:
        """Evaluate the query in the cell, in CEQL, EQL or SQL with MATCH_RECOGNIZE, and show the first of its results.

        Examples::

            %load_ext cer_gpu

            %%ceql flights --time-column ts --output events -o late
            SELECT * FROM flights WHERE LANDED AS a ; DEPARTED AS b
            FILTER a[delay > 120] AND b[delay > 60] PARTITION BY [tailnum] WITHIN 4 HOURS
        """
        args = self._parsed(line)
        if args.out is not None and not args.out.isidentifier():
            raise UsageError(f"-o: expected the name of a variable, got {args.out!r}")
        options = {name: value for name in _OPTIONS if (value := getattr(args, name)) is not None}
        if args.no_type_column:
            options["type_column"] = None
        try:
            kind = self._events_named(args.events)
            reading = reading_of({name: getattr(args, name) for name in OF_TEXT_FILES})
            if reading != USUAL:
                kind = replace(kind, events=self._files_with_options(kind.events, reading))
            query, rest = checked(cell, options)
            if args.explain:
                return query.explain(kind.events)
            table = query.evaluate(kind.events, **rest)
            shown = Shown(query, kind.back(table), table, rest.get("output"), args.rows)
        except QueryError as error:
            raise UsageError(self._all_errors(cell, options, args.events) or str(error)) from None
        except CerError as error:
            raise UsageError(str(error)) from None  # IPython shows it without a traceback
        if args.out is not None:
            self._user_names[args.out] = shown.result
        return shown

    def _parsed(self, line: str) -> Any:
        """Return the arguments of a line, with quotes as in a shell."""
        try:
            return self.ceql.parser.parse_args(with_sort(shlex.split(line)))
        except ValueError as error:
            raise UsageError(f"{error}: quote arguments as in a shell") from None

    @staticmethod
    def _files_with_options(events: Any, reading: TextOptions) -> Files:
        """Return files of events with options for reading them."""
        if not isinstance(events, str | os.PathLike):
            raise OptionError("options for reading text files apply to files, and the events are in a variable")
        return Files(events, **reading.named())

    def _all_errors(self, cell: str, options: Mapping[str, Any], name: str) -> str:
        """Return all errors of a query, each with its place, or "" if there are none before events are read."""
        compiling = {each: value for each, value in options.items() if each in COMPILING_OPTIONS}
        _, errors = compiled_or_errors(cell, self._event_schema_of(name).schema, compiling)
        return "\n\n".join(dict.fromkeys(map(str, errors)))

    def _event_schema_of(self, name: str) -> EventSchema:
        """Return the schema of the events of a name, without reading them."""
        try:
            return EventSchema(open_events(self._events_named(name).events).schema)
        except (CerError, OSError):
            return EventSchema()

    @context_matcher()
    def complete(self, context: CompletionContext) -> SimpleMatcherResult:
        """Return the completions at the cursor of a cell that is a query: words, and columns of its events."""
        head, _, cell = context.full_text.partition("\n")
        before = "\n".join(context.full_text.split("\n")[: context.cursor_line])
        offset = len(before) - len(head) + context.cursor_position
        if not head.startswith(_HEAD) or context.cursor_line == 0:
            return {"completions": []}
        with contextlib.suppress(UsageError):
            args = self._parsed(head.removeprefix(_HEAD))
            begun = cell[word_before(cell, offset) : offset]
            candidates = completions(cell, offset, self._event_schema_of(args.events), args.language)
            shown = [SimpleCompletion(text=each.text, type=each.kind.value) for each in candidates]
            return {"completions": shown, "matched_fragment": begun, "suppress": True, "ordered": True}
        return {"completions": []}

    @property
    def _user_names(self) -> dict[str, Any]:
        """The variables of the notebook."""
        return self._shell.user_ns  # type: ignore[no-any-return]

    @property
    def _shell(self) -> InteractiveShell:
        assert self.shell is not None
        return self.shell

    def _events_named(self, name: str) -> Kind:
        """Return the events of a variable, or of the files that a path, a glob or an address names."""
        names = self._user_names
        if name not in names:
            if name.isidentifier() and not Path(name).exists():
                variables = [each for each in names if each[0] != "_" and each not in self._shell.user_ns_hidden]
                hint = did_you_mean(name, variables, "variables") or "there are no variables yet"
                raise OptionError(f"{name!r} is neither a variable nor a file\nhint: {hint}")
            return Kind(name, lambda result: result)
        try:
            return kind_of_frame(names[name])
        except OptionError:  # anything else that evaluate takes
            return Kind(names[name], lambda result: result)
