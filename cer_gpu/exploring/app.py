"""The page of explore on this machine alone: HTTP on 127.0.0.1 by Starlette and uvicorn.

Whoever may open a page on this machine is not thereby allowed to read the events: each request needs the token of the
address, which only the terminal shows, the name of this very host (a foreign name may be bound to 127.0.0.1), and,
where a browser says what page it comes from, this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from cer_gpu.exploring.page import document, module, style, transport
from cer_gpu.exploring.session import Session

HOST = "127.0.0.1"
_MAX_BODY = 1 << 20
"""Most bytes of a message."""
_HEARTBEAT = 5.0
"""Seconds after which a stream without messages sends an empty line, by which it learns that the page has gone."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}

MakeSession = Callable[[Callable[[dict[str, Any]], None]], Session]
"""Makes the session of a page, given what takes its messages."""


class Guarded:
    """An application that serves only requests that have the token, and come from its own page.

    Parameters
    ----------
    app
    token
    port
        Port on which it is served: part of the only name by which it is reached.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._hosts = {f"{HOST}:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refused = self._refusal(scope)
        if refused is not None:
            await refused(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        if scope["type"] != "http":
            return _refused(403, "expected HTTP")
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self._hosts:
            return _refused(403, "expected the address that the terminal shows")
        if origin is not None and origin != f"http://{host}":
            return _refused(403, "expected a request of the page itself")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return _refused(403, "expected a request of the page itself")
        token = headers.get("x-token") or QueryParams(scope.get("query_string", b"")).get("token") or ""
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return _refused(403, "expected the token of the address that the terminal shows")
        return None


def _refused(status: int, text: str) -> Response:
    return PlainTextResponse(text, status, headers=_HEADERS)


class _Page:
    """An open page: its session, and the messages on their way to it."""

    def __init__(self, make: MakeSession) -> None:
        self._loop = asyncio.get_running_loop()
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.session = make(self._take)

    def _take(self, message: dict[str, Any]) -> None:
        """Take a message of any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._messages.put_nowait, message)

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield messages as lines of JSON, until the page goes."""
        try:
            while True:
                try:
                    message = await asyncio.wait_for(self._messages.get(), _HEARTBEAT)
                except TimeoutError:
                    yield b"\n"
                    continue
                yield json.dumps(message, separators=(",", ":")).encode() + b"\n"
        finally:
            threading.Thread(target=self.session.close, daemon=True).start()


def application(make: MakeSession, token: str, port: int, title: str) -> ASGIApp:
    """Return the application that serves the page, and sessions of it.

    Parameters
    ----------
    make
    token
    port
    title
    """
    pages: dict[str, _Page] = {}

    def static_file(text: str, kind: str) -> Callable[[Request], Response]:
        def respond(request: Request) -> Response:
            return Response(text, media_type=kind, headers=_HEADERS)

        return respond

    async def stream(request: Request) -> Response:
        name = request.query_params.get("page", "")
        if not name or name in pages or len(name) > 64:
            return _refused(400, "expected a new name of a page")
        page = pages[name] = _Page(make)

        async def lines() -> AsyncIterator[bytes]:
            try:
                async for line in page.lines():
                    yield line
            finally:
                pages.pop(name, None)

        return StreamingResponse(lines(), media_type="application/x-ndjson", headers=_HEADERS)

    async def message(request: Request) -> Response:
        page = pages.get(request.query_params.get("page", ""))
        if page is None:
            return _refused(404, "expected the name of a page that is open")
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MAX_BODY:
                return _refused(413, "the message is too long")
        try:
            taken = json.loads(body)
        except (ValueError, RecursionError):
            return _refused(400, "expected JSON")
        page.session.receive(taken)
        return Response(status_code=204, headers=_HEADERS)

    def home(request: Request) -> Response:
        return HTMLResponse(document(title, token), headers=_HEADERS)

    routes = [
        Route("/", home),
        Route("/explore.js", static_file(module(), "text/javascript")),
        Route("/explore.css", static_file(style(), "text/css")),
        Route("/serve.js", static_file(transport(), "text/javascript")),
        Route("/stream", stream),
        Route("/message", message, methods=["POST"]),
    ]
    return Guarded(Starlette(routes=routes), token, port)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command line."""
        yield


@contextlib.contextmanager
def serving(make: MakeSession, title: str, port: int = 0) -> Iterator[str]:
    """Serve pages as long as a block runs; gives the address, with the token.

    Parameters
    ----------
    make
        Makes the session of a page.
    title
    port
        0 for any that is free.

    Raises
    ------
    OSError
        When the port is taken.
    """
    token = secrets.token_urlsafe(24)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen()  # connections wait until the server runs
        port = listening.getsockname()[1]
        sessions: list[Session] = []

        def make_and_keep(send: Callable[[dict[str, Any]], None]) -> Session:
            sessions.append(make(send))
            return sessions[-1]

        app = application(make_and_keep, token, port, title)
        config = uvicorn.Config(
            app, log_level="critical", access_log=False, lifespan="off", ws="none", server_header=False
        )
        server = _Server(config)
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listening]}, name="cer_gpu explore", daemon=True
        )
        thread.start()
        try:
            yield f"http://{HOST}:{port}/?token={token}"
        finally:
            server.should_exit = server.force_exit = True
            for session in sessions:
                session.close()
            thread.join(0.5)


def titled(names: Mapping[str, Any] | list[str]) -> str:
    """Return the title of a page, from the names of the files of events."""
    shown = list(names)
    more = f" and {len(shown) - 1} more" if len(shown) > 1 else ""
    return f"{shown[0]}{more}" if shown else "events"
