"""The language server ``cer-gpu lsp``: the Language Server Protocol over standard input and output, by pygls."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path
from pygls.workspace import TextDocument

from cer_gpu.editing.completing import CompletionKind, completions, word_before
from cer_gpu.editing.event_schema import (
    EventSchema,
    Problem,
    changed_at,
    compiled_or_errors,
    events_beside,
    events_named,
    fields_on_path,
    problems,
    read_event_schema,
)
from cer_gpu.errors import CerError
from cer_gpu.printable import printable

_WORD = re.compile(r"(?!\d)[\w@]+(?:\.(?!\d)[\w@]+)*|`[^`]*`")


def hover_text(text: str, offset: int, events: EventSchema, options: Mapping[str, Any] | None = None) -> str | None:
    """Return what the query means, and before it the column at a position, or None if neither is known.

    Parameters
    ----------
    text, offset
        The query, and a place in it.
    known
        Columns of the events.
    options
        Those of `cer_gpu.compile`, but `schema`.

    Examples
    --------
    >>> from cer_gpu.editing.server import hover_text
    >>> from cer_gpu.editing.event_schema import EventSchema
    >>> print(hover_text("SELECT * FROM S WHERE A ; B WITHIN 9 EVENTS", 0, EventSchema()).splitlines()[2])
      1. an A event
    """
    parts = []
    column = _column_at(text, offset, events)
    if column is not None:
        parts.append(f"column `{printable(column[0])}`: {printable(column[1])}")
    query, _ = compiled_or_errors(text, events.schema, options or {}) if text.strip() else (None, ())
    if query is not None:
        explanation = query.explain()
        parts.append("```text\n" + "\n".join(map(printable, explanation.words)) + "\n```")
        model = explanation.to_dict().get("model")
        if model is not None:
            parts.append(printable(f"{model['name']} ({model['title']}): {model['why']}"))
        parts += [f"note: {printable(note)}" for note in query.notes]
    return "\n\n".join(parts) or None


def _column_at(text: str, offset: int, events: EventSchema) -> tuple[str, str] | None:
    """Return the name and the type of the column, or the field of a struct, under the cursor."""
    if events.schema is None:
        return None
    match = next((each for each in _WORD.finditer(text) if each.start() <= offset <= each.end()), None)
    if match is None:
        return None
    names = match[0].split(".")
    for path in ([match[0].strip("`")], names, names[1:]):  # a name with dots, a path, and one after a variable
        for field in (fields_on_path(events.schema, path[:-1]) or []) if path else []:
            if field.name == path[-1]:
                return ".".join(path), str(field.type)
    return None


SOURCE = "cer-gpu"
_KINDS = {
    CompletionKind.WORD: lsp.CompletionItemKind.Keyword,
    CompletionKind.COLUMN: lsp.CompletionItemKind.Field,
    CompletionKind.VARIABLE: lsp.CompletionItemKind.Variable,
    CompletionKind.TYPE: lsp.CompletionItemKind.Class,
    CompletionKind.FUNCTION: lsp.CompletionItemKind.Function,
    CompletionKind.VALUE: lsp.CompletionItemKind.Value,
}
_LANGUAGES = {".eql": "eql"}
"""Languages of files by their endings; those of others are detected from the text."""


class QueryServer(LanguageServer):
    """Language server of queries in CEQL, EQL and SQL.

    Parameters
    ----------
    version
    options
        Options of `cer_gpu.compile`, but `schema`.
    events
        Events, or a schema file, of queries that name none in a comment.
    """

    def __init__(self, version: str, options: Mapping[str, Any], events: str | None = None) -> None:
        super().__init__("cer-gpu", version, text_document_sync_kind=lsp.TextDocumentSyncKind.Full)
        self._options = options
        self._events = events

    def diagnose(self, uri: str) -> None:
        """Publish the errors and warnings of a document."""
        document = self.workspace.get_text_document(uri)
        events, trouble = self._event_schema(document)
        reported = problems(document.source, events.schema, self._options_of(document))
        if trouble is not None:
            reported.insert(0, Problem(trouble, 0, len(document.source.split("\n", 1)[0])))
        self.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(uri, [self._diagnostic(document, each) for each in reported], document.version)
        )

    def complete(self, uri: str, position: lsp.Position) -> lsp.CompletionList:
        """Return the completions of the word at a place."""
        document = self.workspace.get_text_document(uri)
        offset = self._offset(document, position)
        events, _ = self._event_schema(document)
        language = self._options_of(document).get("language")
        candidates = completions(document.source, offset, events, language)
        replaced = lsp.Range(self._position(document, word_before(document.source, offset)), position)
        items = [
            lsp.CompletionItem(
                label=each.text.strip("`"),
                kind=_KINDS[each.kind],
                detail=each.detail or each.kind.value,
                sort_text=f"{i:04}",
                filter_text=each.text.strip("`"),
                text_edit=lsp.TextEdit(replaced, each.text),
            )
            for i, each in enumerate(candidates)
        ]
        return lsp.CompletionList(is_incomplete=False, items=items)

    def hover(self, uri: str, position: lsp.Position) -> lsp.Hover | None:
        """Return the meaning of the query, and the type of the column at a place."""
        document = self.workspace.get_text_document(uri)
        events, _ = self._event_schema(document)
        text = hover_text(document.source, self._offset(document, position), events, self._options_of(document))
        return None if text is None else lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text))

    def _options_of(self, document: TextDocument) -> dict[str, Any]:
        language = _LANGUAGES.get(Path(document.filename or "").suffix)
        return {**({} if language is None else {"language": language}), **self._options}

    def _event_schema(self, document: TextDocument) -> tuple[EventSchema, str | None]:
        """Return the schema of the events of a query, and the error in their name, or None."""
        named = events_named(document.source)
        path = self._events if named is None else named
        if path is None:
            return EventSchema(), None
        folder = None if named is None else to_fs_path(document.uri)
        try:
            if folder is not None:  # a comment names them from where the query is
                path = events_beside(os.path.dirname(folder), path)
            return _read_once(path, changed_at(path)), None
        except (CerError, OSError) as error:
            return EventSchema(), str(error)

    def _diagnostic(self, document: TextDocument, problem: Problem) -> lsp.Diagnostic:
        severity = lsp.DiagnosticSeverity.Warning if problem.is_warning else lsp.DiagnosticSeverity.Error
        place = lsp.Range(self._position(document, problem.start), self._position(document, problem.end))
        return lsp.Diagnostic(place, problem.message, severity, source=SOURCE)

    def _position(self, document: TextDocument, offset: int) -> lsp.Position:
        """Return the place of an offset: its line, and the code units before it there."""
        before = document.source[:offset]
        line = before.rpartition("\n")[2]
        return lsp.Position(before.count("\n"), document.position_codec.client_num_units(line))

    def _offset(self, document: TextDocument, position: lsp.Position) -> int:
        """Return the offset of a place."""
        lines = document.source.split("\n")
        if position.line >= len(lines):
            return len(document.source)
        offset = sum(len(each) + 1 for each in lines[: position.line])
        n_units = 0
        for character in lines[position.line]:
            if n_units >= position.character:
                break
            n_units += document.position_codec.client_num_units(character)
            offset += 1
        return offset


@lru_cache(maxsize=32)
def _read_once(path: str, changed: int | None) -> EventSchema:
    """Return what `read_event_schema` returns, cached until the file changes."""
    return read_event_schema(path)


def query_server(version: str, options: Mapping[str, Any], events: str | None = None) -> QueryServer:
    """Return a server with its features; parameters are those of `QueryServer`."""
    server = QueryServer(version, options, events)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        server.diagnose(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        server.diagnose(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        nothing = lsp.PublishDiagnosticsParams(params.text_document.uri, [])
        server.text_document_publish_diagnostics(nothing)

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=[".", "["]))
    def complete(params: lsp.CompletionParams) -> lsp.CompletionList:
        return server.complete(params.text_document.uri, params.position)

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        return server.hover(params.text_document.uri, params.position)

    return server
