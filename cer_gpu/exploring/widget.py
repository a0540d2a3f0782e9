"""The page of explore as a widget of notebooks, by anywidget: its messages are those of the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anywidget

from cer_gpu.exploring.page import module
from cer_gpu.exploring.samples import ExploredEvents
from cer_gpu.exploring.session import Session
from cer_gpu.rule import Rule


def explorer(
    explored: ExploredEvents,
    query: str = "",
    rules: Mapping[str, Rule] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Return a widget that evaluates a query as one types; the result of `cer_gpu.explore`.

    Parameters
    ----------
    explored
    query
        Text to begin with.
    rules
        Rules by their names.
    options
        Options of `cer_gpu.compile` besides the columns of types and times.
    """
    return _Widget(explored, query, rules, options)


class _Widget(anywidget.AnyWidget):
    """The widget with its session; private, as its base class has no types."""

    def __init__(
        self,
        explored: ExploredEvents,
        query: str,
        rules: Mapping[str, Rule] | None,
        options: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(_esm=module())
        self._session = Session(explored, self.send, query=query, rules=rules, options=options)
        self.on_msg(self._receive)

    def _receive(self, widget: Any, message: Any, buffers: Any) -> None:
        self._session.receive(message)

    def close(self) -> None:
        """Stop all that is under way, and close the widget."""
        self._session.close()
        super().close()
