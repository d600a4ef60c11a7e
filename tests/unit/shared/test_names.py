"""Lookups of host names: the last answer stays in use while no new one arrives."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from deborgen_shared.calls import Answer, Call
from deborgen_shared.client.names import Names, is_address
from deborgen_shared.client.transport import NoAnswer, Transport

HOME = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]


class NameServer:
    """Replaces the system's lookup. `says` is its next answer; with None it does not answer until `go_on` is set."""

    def __init__(self) -> None:
        self.says: list[Any] | OSError | None = HOME
        self.asked = 0
        self.go_on = threading.Event()

    def __call__(self, _host: str, _port: object, **_more: object) -> list[Any]:
        self.asked += 1
        said = self.says
        if said is None:
            self.go_on.wait(60)
            said = self.says or HOME
        if isinstance(said, OSError):
            raise said
        return said


@pytest.fixture
def server() -> Iterator[NameServer]:
    server = NameServer()
    yield server
    server.go_on.set()


def test_an_ip_address_is_not_looked_up(server: NameServer) -> None:
    names = Names(server)
    assert names.addresses("127.0.0.1", 1) == ["127.0.0.1"]
    assert names.addresses("fe80::1%eth0", 1) == ["fe80::1%eth0"]
    assert server.asked == 0
    assert not is_address("localhost")


def test_the_last_answer_is_used_while_the_name_server_hangs(server: NameServer) -> None:
    """Seen to fail when a lookup has no time limit."""
    names = Names(server, patience=0.01)
    assert names.addresses("pool", 5) == ["127.0.0.1"]
    server.says = None
    assert names.addresses("pool", 5) == ["127.0.0.1"]
    assert names.addresses("pool", 5) == ["127.0.0.1"]
    assert server.asked == 2, "calls for the same name share one lookup"


def test_the_last_answer_is_used_while_the_name_server_fails(server: NameServer) -> None:
    names = Names(server)
    names.addresses("pool", 5)
    for trouble in (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), OSError(24, "Too many open files")):
        server.says = trouble
        assert names.addresses("pool", 5) == ["127.0.0.1"]


def test_an_answer_that_the_name_does_not_exist_is_believed(server: NameServer) -> None:
    names = Names(server)
    names.addresses("pool", 5)
    server.says = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    with pytest.raises(socket.gaierror, match="not known"):
        names.addresses("pool", 5)


def test_a_late_first_answer_serves_the_next_call(server: NameServer) -> None:
    names = Names(server, patience=0.01)
    server.says = None
    with pytest.raises(socket.gaierror, match="does not answer"):
        names.addresses("pool", 0.01)
    waiting = threading.Timer(0.01, server.go_on.set)
    waiting.start()
    assert names.addresses("pool", 60) == ["127.0.0.1"]


def test_the_last_answer_is_used_if_no_thread_can_be_started(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(server)
    names.addresses("pool", 5)

    def full(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", full)
    assert names.addresses("pool", 5) == ["127.0.0.1"]
    with pytest.raises(socket.gaierror, match="new thread"):
        names.addresses("other", 5)
    monkeypatch.undo()
    assert names.addresses("other", 5) == ["127.0.0.1"]


def test_a_changed_address_is_used(server: NameServer) -> None:
    names = Names(server)
    names.addresses("pool", 5)
    server.says = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", 0)), *HOME, *HOME]
    assert names.addresses("pool", 5) == ["127.0.0.2", "127.0.0.1"]


ROOT = Call("GET", "/", frozenset(), "", Answer(200, "", bytes))


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(self.headers["Host"].partition(":")[0].encode()[:5])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield listening.server_port
        listening.shutdown()


def test_a_call_goes_through_while_the_name_server_hangs(server: NameServer, port: int) -> None:
    """Each call uses a new connection, because the server closes them. Seen to fail when urllib3 looks the name up."""
    transport = Transport(f"http://pool1.test:{port}", lambda: "t", names=Names(server, patience=0.01))
    assert transport.ask(ROOT).data == b"pool1"
    server.says = None
    assert transport.ask(ROOT).data == b"pool1"
    assert server.asked == 2


def test_the_second_address_is_tried_when_nothing_listens_at_the_first(server: NameServer, port: int) -> None:
    server.says = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)), *HOME]
    transport = Transport(f"http://pool1.test:{port}", lambda: "t", names=Names(server))
    assert transport.ask(ROOT).data == b"pool1"


def test_an_unknown_name_is_reported_as_the_trouble(server: NameServer) -> None:
    server.says = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    transport = Transport("http://pool1.test:1", lambda: "t", names=Names(server))
    with pytest.raises(NoAnswer, match="the name of the coordinator cannot be resolved"):
        transport.ask(ROOT)
