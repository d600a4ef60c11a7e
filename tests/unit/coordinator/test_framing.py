"""How answers are sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from deborgen_coordinator.framing import PatientResponse


class Sent:
    """A socket that remembers each sent piece."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def sendall(self, data: bytes) -> None:
        self.pieces.append(data)


def answer(status: str, headers: list[tuple[str, str]], *chunks: bytes, method: str = "GET") -> list[bytes]:
    sent = Sent()
    request: Any = SimpleNamespace(method=method, version=(1, 1), should_close=lambda: False)
    response = PatientResponse(request, sent, SimpleNamespace())
    response.start_response(status, headers)
    for chunk in chunks:
        response.write(chunk)
    response.close()
    return sent.pieces


def test_a_short_answer_is_sent_in_one_piece() -> None:
    (whole,) = answer("200 OK", [("Content-Length", "5")], b"hello")
    head, _, body = whole.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nContent-Length: 5" in head
    assert body == b"hello"


def test_the_pieces_of_a_stream_are_sent_as_they_come() -> None:
    first, second, last = answer("200 OK", [], b"one", b"three")
    assert first.endswith(b"\r\n\r\n3\r\none\r\n")
    assert (second, last) == (b"5\r\nthree\r\n", b"0\r\n\r\n")


def test_an_empty_stream_has_a_head_and_an_end() -> None:
    (whole,) = answer("200 OK", [])
    assert whole.endswith(b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")


@pytest.mark.parametrize(("status", "method"), [("204 No Content", "POST"), ("200 OK", "HEAD")])
def test_an_answer_without_a_body_is_its_head(status: str, method: str) -> None:
    (whole,) = answer(status, [("Content-Length", "0")], method=method)
    assert whole.endswith(b"\r\n\r\n")
    assert whole.count(b"\r\n\r\n") == 1
