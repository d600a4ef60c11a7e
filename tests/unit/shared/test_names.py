"""Names of machines: an answer that does not come is no reason to forget the last one."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from deborgen_shared.calls import Answer, Call
from deborgen_shared.client.names import Names, is_address
from deborgen_shared.client.transport import Transport, Unreachable

HOME = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]


class NameServer:
    """Stands where the system's lookup stands. What it says next is `says`; None: nothing, until `go_on`."""

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


def test_an_address_is_asked_of_nobody(server: NameServer) -> None:
    names = Names(server)
    assert names.addresses("127.0.0.1", 1) == ["127.0.0.1"]
    assert names.addresses("fe80::1%eth0", 1) == ["fe80::1%eth0"]
    assert server.asked == 0
    assert not is_address("localhost")


def test_a_name_server_that_hangs_leaves_the_last_answer(server: NameServer) -> None:
    """Seen to fail when a lookup is waited for as long as it takes."""
    names = Names(server, patience=0.01)
    assert names.addresses("pool", 5) == ["127.0.0.1"]
    server.says = None
    assert names.addresses("pool", 5) == ["127.0.0.1"]
    assert names.addresses("pool", 5) == ["127.0.0.1"]
    assert server.asked == 2, "those who have the same question wait together"


def test_a_name_server_in_trouble_leaves_the_last_answer_too(server: NameServer) -> None:
    names = Names(server)
    names.addresses("pool", 5)
    for trouble in (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), OSError(24, "Too many open files")):
        server.says = trouble
        assert names.addresses("pool", 5) == ["127.0.0.1"]


def test_that_there_is_no_such_name_is_believed(server: NameServer) -> None:
    names = Names(server)
    names.addresses("pool", 5)
    server.says = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    with pytest.raises(socket.gaierror, match="not known"):
        names.addresses("pool", 5)


def test_a_first_answer_is_waited_for_and_serves_the_next_call_if_it_comes_late(server: NameServer) -> None:
    names = Names(server, patience=0.01)
    server.says = None
    with pytest.raises(socket.gaierror, match="does not answer"):
        names.addresses("pool", 0.01)
    waiting = threading.Timer(0.01, server.go_on.set)
    waiting.start()
    assert names.addresses("pool", 60) == ["127.0.0.1"]


def test_a_machine_without_room_for_another_thread_goes_on_with_the_last_answer(
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


def test_a_new_address_is_taken_up(server: NameServer) -> None:
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
    """Each on a new connection, since the server closes them. Seen to fail when urllib3 asks for the name."""
    transport = Transport(f"http://pool1.test:{port}", lambda: "t", names=Names(server, patience=0.01))
    assert transport.ask(ROOT).data == b"pool1"
    server.says = None
    assert transport.ask(ROOT).data == b"pool1"
    assert server.asked == 2


def test_the_second_address_is_tried_when_the_first_is_deaf(server: NameServer, port: int) -> None:
    server.says = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)), *HOME]
    transport = Transport(f"http://pool1.test:{port}", lambda: "t", names=Names(server))
    assert transport.ask(ROOT).data == b"pool1"


def test_a_name_that_is_not_there_is_said_to_be_the_trouble(server: NameServer) -> None:
    server.says = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    transport = Transport("http://pool1.test:1", lambda: "t", names=Names(server))
    with pytest.raises(Unreachable, match="the name of the coordinator cannot be resolved"):
        transport.ask(ROOT)
