"""Security of the page of explore over HTTP: token, host, origin, policy, bounds of messages, names of files alone."""

import contextlib
import http.client
import json
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

EVENTS = pa.table({"type": ["A", "B", "A", "B"], "x": [1, 2, 3, 4]})
PATHS = ("/", "/explore.js", "/explore.css", "/serve.js", "/stream?page=p", "/message?page=p", "/no/such/path")


class Client:
    def __init__(self, address):
        parts = urlsplit(address)
        self.host, self.port, self.token = parts.hostname, parts.port, parse_qs(parts.query)["token"][0]

    @contextlib.contextmanager
    def open(self, path, *, token=..., method="GET", body=None, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        token = self.token if token is ... else token
        headers |= {} if token is None else {"X-Token": token}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        connection.request(method, path, body, headers)
        try:
            yield connection.getresponse()
        finally:
            connection.close()

    def status(self, path, **options):
        with self.open(path, **options) as response:
            return response.status


@pytest.fixture
def client(serve):
    return Client(serve(EVENTS))


def test_the_page_is_served_on_loopback_alone_with_a_random_token(serve):
    first, second = Client(serve(EVENTS)), Client(serve(EVENTS))
    assert first.host == "127.0.0.1"
    assert first.token != second.token
    assert len(first.token) >= 32
    assert first.status("/") == 200
    assert first.status("/", token=second.token) == 403


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("token", [None, "", "wrong", "é"])
def test_every_request_needs_the_token(client, path, token):
    method = "POST" if path.startswith("/message") else "GET"
    token = None if token is None else token.encode()
    assert client.status(path, token=token, method=method) == 403


def test_the_token_may_be_part_of_the_address(client):
    assert client.status(f"/?token={client.token}", token=None) == 200
    assert client.status("/?token=wrong", token=None) == 403


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost:1", ""])
def test_another_host_name_is_refused(client, host):
    assert client.status("/", Host=host) == 403


def test_localhost_is_a_name_of_the_host(client):
    assert client.status("/", Host=f"localhost:{client.port}") == 200


@pytest.mark.parametrize("path", PATHS)
def test_requests_of_other_pages_are_refused_even_with_the_token(client, path):
    method = "POST" if path.startswith("/message") else "GET"
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{client.port + 1}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        assert client.status(path, method=method, **headers) == 403, headers


def test_the_policy_allows_nothing_from_elsewhere(client):
    for path in ("/", "/explore.js", "/explore.css", "/serve.js"):
        with client.open(path) as response:
            policy = dict(part.strip().split(" ", 1) for part in response.headers["Content-Security-Policy"].split(";"))
            assert policy["default-src"] == "'none'"
            assert {policy[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
            assert policy["frame-ancestors"] == "'none'"
            assert response.headers["Referrer-Policy"] == "no-referrer"
            assert response.headers["Cache-Control"] == "no-store"
            text = response.read().decode()
            assert "https://" not in text
            assert "http://" not in text


def test_no_path_leads_to_a_file(client):
    for path in ("/etc/passwd", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/explore.html", "/app.py"):
        assert client.status(path) == 404


def test_messages_are_bounded_and_need_an_open_page(client):
    assert client.status("/message?page=p", method="POST", body="{}") == 404
    with client.open("/stream?page=p") as stream:
        assert stream.status == 200
        assert client.status("/stream?page=p") == 400
        assert client.status("/stream?page=") == 400
        assert client.status("/message?page=p", method="POST", body="{") == 400
        assert client.status("/message?page=p", method="POST", body="[" * 500_000) == 400
        assert client.status("/message?page=p", method="POST", body="x" * (1 << 21)) == 413
        for odd in ("[]", "null", '{"kind": "no"}', '{"kind": "text", "text": 3}', '{"kind": ["text"]}', "{}"):
            assert client.status("/message?page=p", method="POST", body=odd) == 204
        assert client.status("/message?page=p") == 405


def test_a_message_is_evaluated_and_files_are_known_by_their_names_alone(tmp_path, serve):
    folder = tmp_path / "a folder that nobody else may know"
    folder.mkdir()
    pq.write_table(EVENTS, folder / "events.parquet")
    client = Client(serve(str(folder / "events.parquet")))
    lines = []
    with client.open("/stream?page=p") as stream:

        def until(kind):
            while True:
                line = stream.readline()
                lines.append(line.decode())
                if line.strip() and json.loads(line)["kind"] == kind:
                    return json.loads(line)

        def send(**message):
            assert client.status("/message?page=p", method="POST", body=json.dumps(message)) == 204

        send(kind="hello")
        assert until("hello")["names"] == ["events.parquet"]
        send(kind="text", id=1, text="SELECT * FROM S WHERE A ; B")
        assert until("page")["page"]["n_matches"] == 3
        until("answered")
        (folder / "events.parquet").unlink()
        send(kind="columns", id=2, type_column="type", time_column="x")
        assert "events.parquet" in until("failed")["message"]
    assert not any("nobody else" in line for line in lines)


def test_the_session_ends_with_its_page(monkeypatch, serve):
    import threading

    from cer_gpu.exploring.session import Session

    closed = threading.Event()
    monkeypatch.setattr(Session, "close", lambda self: closed.set())
    monkeypatch.setattr("cer_gpu.exploring.app._HEARTBEAT", 0.05)
    client = Client(serve(EVENTS))
    with client.open("/stream?page=p") as stream:
        assert stream.status == 200
    assert closed.wait(10)
