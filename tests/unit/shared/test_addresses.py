"""Several coordinators of one pool: which one is asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from deborgen_shared import contract
from deborgen_shared.client.addresses import LONGEST_RETURN_SECONDS, RETURN_SECONDS, Addresses
from deborgen_shared.client.transport import NoAnswer, Transport

A, B, C = "http://a:1", "http://b:1", "https://c"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_next_one_is_asked_and_the_first_again_after_a_while() -> None:
    clock = Clock()
    addresses = Addresses(f"{A}, {B}/,{C}", clock)
    assert addresses.in_turn() == [A, B, C]
    addresses.failed(A)
    addresses.failed(A)  # another thread had asked it too
    assert addresses.in_turn() == [B, C, A]
    clock.now = RETURN_SECONDS
    assert addresses.in_turn() == [A, B, C]
    assert addresses.in_turn() == [B, C, A], "only one call at a time tries it"
    addresses.failed(A)
    clock.now += 2 * RETURN_SECONDS
    assert addresses.in_turn()[0] == A
    addresses.answered(A)
    assert addresses.in_turn() == [A, B, C]


def test_an_address_that_stays_away_is_tried_less_and_less_often() -> None:
    clock, tries = Clock(), 0
    addresses = Addresses(f"{A},{B}", clock)
    addresses.failed(A)
    for clock.now in range(3600):
        if addresses.in_turn()[0] == A:
            tries += 1
            addresses.failed(A)
    assert 3600 / LONGEST_RETURN_SECONDS <= tries <= 3600 / LONGEST_RETURN_SECONDS + 5


def test_a_token_may_go_to_each_of_the_addresses_and_nowhere_else() -> None:
    addresses = Addresses(f"{A},{C}/pool")
    assert addresses.include("/v1/blobs")
    assert addresses.include(f"{A}/v1")
    assert addresses.include(f"{C}/x")
    assert not addresses.include("http://c/x")
    assert not addresses.include("http://b:1/x")


@pytest.mark.parametrize("text", ["", "a:1", "http://a,", "http://a,ftp://b"])
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the address of a coordinator"):
        Addresses(text)


@pytest.fixture
def healthy() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            busy = "busy" in self.headers["User-Agent"]
            body = b'{"status": "ok", "version": "1"}'
            self.send_response(503 if busy else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_a_call_that_cannot_reach_one_is_made_at_the_next(healthy: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        nobody = f"http://127.0.0.1:{probe.getsockname()[1]}"
    transport = Transport(f"{nobody},{healthy}", lambda: "")
    assert [transport.call(contract.HEALTH).status for _ in range(3)] == ["ok"] * 3
    with pytest.raises(NoAnswer, match="refused"):
        Transport(f"{nobody},{nobody}", lambda: "").call(contract.HEALTH)


def test_after_a_call_that_one_did_not_answer_the_next_is_asked(healthy: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"http://127.0.0.1:{silent.getsockname()[1]}"
        transport = Transport(f"{where},{healthy}", lambda: "")
        with pytest.raises(NoAnswer, match="in time"):
            transport.call(contract.HEALTH, seconds=0.2)
        assert transport.call(contract.HEALTH).status == "ok"
    busy = Transport(f"{healthy},{healthy}/other", lambda: "", agent="busy")
    for _ in range(2):
        with pytest.raises(NoAnswer):
            busy.call(contract.HEALTH)
    assert busy._addresses.in_turn()[0] == healthy
