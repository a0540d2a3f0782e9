"""The files of the page of explore: one module of the report's scripts and its own, its style, its markup.

The same module serves the page of ``cer-gpu explore`` and the widget; only what carries the messages differs.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from string import Template

from cer_gpu.automaton.strategies import STRATEGIES
from cer_gpu.report.page import SCRIPTS_OF_MATCHES, head, resource

_SCRIPTS = ("editor", "results", "explore")


def _resource_of_page(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


@cache
def module() -> str:
    """Return the module: ``explore(root, transport)`` starts the page in a document or a shadow root."""
    markup = Template(_resource_of_page("explore.html")).substitute(matches=resource("matches.html"))
    scripts = [
        *(resource(f"{name}.js") for name in SCRIPTS_OF_MATCHES),
        *(_resource_of_page(f"{name}.js") for name in _SCRIPTS),
    ]
    return Template(_resource_of_page("module.js")).substitute(
        markup=json.dumps(markup),
        strategies=json.dumps(list(STRATEGIES)),
        style=json.dumps(style()),
        scripts="".join(scripts),
    )


@cache
def style() -> str:
    """Return the style: that of reports, and its own."""
    return resource("page.css") + _resource_of_page("explore.css")


def transport() -> str:
    """Return the module that starts the page over HTTP."""
    return _resource_of_page("serve.js")


def document(title: str, token: str) -> str:
    """Return the document of the page."""
    return Template(_resource_of_page("document.html")).substitute(head=head(f"{title} - explore"), token=token)
