"""Sessions, and a server, for the tests."""

import contextlib
import queue

import pytest
from report.conftest import browse, driver_url, windows  # noqa: F401 - fixtures

from cer_gpu.exploring import session as sessions
from cer_gpu.exploring.samples import ExploredEvents
from cer_gpu.exploring.session import Session


class Page:
    """What a page is to its session: it sends messages, and waits for those that it gets."""

    def __init__(self, explored, **options):
        self._messages = queue.Queue()
        self.received = []
        self.session = Session(explored, self._messages.put, **options)
        self._question = 0

    def ask(self, kind, **message):
        """Send a message; return the number of the question."""
        self._question += 1
        self.session.receive({"kind": kind, "id": self._question, **message})
        return self._question

    def until(self, kind, question=None, seconds=60):
        """Return the next message of a kind, and of a question if one is named."""
        while True:
            message = self._messages.get(timeout=seconds)
            self.received.append(message)
            if message["kind"] == kind and question in (None, message.get("id")):
                return message

    def results(self, kind="text", **message):
        """Ask, and return the last message of each kind until all is evaluated."""
        begun = len(self.received)
        question = self.ask(kind, **message)
        self.until("answered", question)
        return {each["kind"]: each for each in self.received[begun:] if each.get("id") == question}


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Wait for each sample: a busy machine must not change which one it is."""
    monkeypatch.setattr(sessions, "_TOO_LONG", 3600.0)


@pytest.fixture
def page(monkeypatch):
    """Open the session of a page over events, whose samples do not shrink where the machine is busy."""
    monkeypatch.setattr(sessions, "_SECONDS", 3600.0)
    pages = []

    def open_page(events, **options):
        of_events = {name: options.pop(name) for name in ("type_column", "time_column", "sort") if name in options}
        pages.append(Page(ExploredEvents(events, **of_events), **options))
        return pages[-1]

    yield open_page
    for each in pages:
        each.session.close()


@pytest.fixture
def serve():
    """Serve a page over events; return its address."""
    from cer_gpu.exploring.app import serving

    with contextlib.ExitStack() as stack:

        def start(events, *, rules=None, query="", options=None, **of_events):
            explored = ExploredEvents(events, **of_events)
            return stack.enter_context(
                serving(lambda send: Session(explored, send, query=query, rules=rules, options=options), "events")
            )

        yield start
