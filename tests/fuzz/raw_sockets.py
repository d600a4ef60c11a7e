"""Bytes that are hardly HTTP: broken request lines, headers and chunks, half requests, slow bodies, resets."""

from __future__ import annotations

import contextlib
import random
import socket
import time

from deborgen_shared import contract
from fuzz import hostile
from fuzz.findings import Source, Target
from fuzz.http_client import Connection, HttpAnswer, Late, Malformed, NoAnswer

#: An answer to broken bytes is waited for at most this many seconds; the coordinator may wait for more bytes instead.
PATIENCE = 0.3
#: This many connections send their requests slowly, one byte per turn.
SLOW = 40
#: The share of broken requests after which the client does not wait for the answer.
IMPATIENT = 0.3

BREAKS = (
    b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\n\n", b"\0", b" ", b"\t", b":", b"\r\n ", b"\xff", b"\x80", b"\x85", b"\x0b",
)  # fmt: skip
LINES = (
    b"", b" ", b"GET", b"GET /", b"GET  / HTTP/1.1", b"GET / HTTP/1.2", b"GET / HTTP/2.0", b"GET / HTTP/0.9",
    b"GET / HTTP/1.", b"GET / http/1.1", b"G\0T / HTTP/1.1", b"GET http://[::1 HTTP/1.1",
    b"GET http://a:b@c:99999/health HTTP/1.1", b"GET //health HTTP/1.1", b"GET * HTTP/1.1", b"OPTIONS * HTTP/1.1",
    b"CONNECT a:1 HTTP/1.1", b"GET /\xff HTTP/1.1", b"GET /" + b"a" * 9000 + b" HTTP/1.1",
    b"GET /?" + b"a=b&" * 3000 + b" HTTP/1.1", b"PRI * HTTP/2.0", b"GET /health#x HTTP/1.1",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET /health HTTP/1.1 x", b"GET\t/health\tHTTP/1.1",
    b"GET /health HTTP/1.1\r", b"GET ?x HTTP/1.1", b"GET health HTTP/1.1", b"GET http://x HTTP/1.1",
    b"GET http:///health HTTP/1.1", b"get /health HTTP/1.1", b"GET /health HTTP/1.0", b"GET /health HTTP/1.1",
    b"PUT /health HTTP/1.1", b"GET /%", b"A" * 300 + b" / HTTP/1.1", b"GET ///%2e%2e/ HTTP/1.1",
    b"GET /v1/runs;x?y HTTP/1.1", b"GET http://127.0.0.1/v1/me HTTP/1.1", b"QUIT", b"\r\n\r\nGET / HTTP/1.1",
)  # fmt: skip
HEADERS = (
    b"Host", b"Host:", b": x", b"Host : x", b" Host: x", b"Ho st: x", b"Host: a\r\nHost: b", b"Content-Length: -1",
    b"Content-Length: +1", b"Content-Length: 1e3", b"Content-Length: 0x10", b"Content-Length: 3, 3",
    b"Content-Length: 3\r\nContent-Length: 4", b"Content-Length:", b"Content-Length: 99999999999999999999999",
    b"Content-Length: 18446744073709551616", b"Content-Length: \xb2", b"Content-Length: 1_0",
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: x", b"Transfer-Encoding:\x0bchunked", b"Transfer-Encoding: chunked\r\nContent-Length: 5",
    b"Transfer-Encoding: identity", b"Expect: 100-continue", b"Expect: 200-ok", b"Connection: close",
    b"Connection: keep-alive, close", b"Connection: upgrade\r\nUpgrade: h2c", b"Te: trailers", b"X: " + b"a" * 9000,
    b"X: \0", b"X: a\nY: b", b"X: a\r\n folded", b"X\0Y: z", b"\xff\xfe: x", b"X: \xff\xfe",
    b"Authorization: Basic \xff", b"\r\n".join(b"X%d: y" % n for n in range(150)), b"X" * 9000 + b": y",
    b"Script_Name: /v1", b"SCRIPT_NAME: /x", b"X-Forwarded-Host: \x01", b"Proxy: x",
    b"Content-Type: a/b\r\nContent-Type: application/json", b"Range: bytes=0-\r\nRange: bytes=1-", b"Trailer: X",
    b"Upgrade: websocket",
)  # fmt: skip
CHUNKS = (
    b"5\r\nhello\r\n0\r\n\r\n", b"5;ext=1\r\nhello\r\n0\r\n\r\n", b"-1\r\n", b"ffffffffffffffffff\r\n",
    b"5\nhello\n0\n\n", b"5\r\nhel", b"0\r\n\r\n", b"+5\r\nhello\r\n0\r\n\r\n", b"0x5\r\nhello\r\n0\r\n\r\n", b"\r\n",
    b"5 \r\nhello\r\n0\r\n\r\n", b"5\r\nhelloXX0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"z\r\n", b"5" * 5000,
    b"0\r\n" + b"X: y\r\n" * 500 + b"\r\n", b"1;" + b"a" * 9000 + b"\r\nx\r\n0\r\n\r\n",
)  # fmt: skip


def send_raw(target: Target, name: str) -> None:
    """The work of a process: broken bytes until the run ends."""
    source = target.source(name)
    rng = random.Random(f"{target.seed} {name}")
    slow: list[SlowClient] = []
    while source.goes_on():
        data = broken_request(rng, target.tokens)
        if len(slow) < SLOW and rng.random() < 0.02:
            slow.append(SlowClient(target, data))
        slow = [each for each in slow if each.goes_on()]
        if rng.random() < 0.05:
            _reset(source, target, data, rng)
        else:
            _exchange(source, target, data, rng)
    for each in slow:
        each.close()


def broken_request(rng: random.Random, tokens: dict[str, str]) -> bytes:
    """A request in which something is wrong, or several at once."""
    body = rng.choice((b"", b"", b'{"run": "true"}', b"{", rng.randbytes(50), rng.choice(CHUNKS), b"x" * 70_000))
    call = rng.choice(contract.CALLS)
    lines = [f"{call.method} {call.path} HTTP/1.1".encode(), b"Host: x"]
    if rng.random() < 0.7:
        lines.append(f"Authorization: Bearer {rng.choice(list(tokens.values()))}".encode())
    if body and rng.random() < 0.7:
        lines.append(b"Content-Type: application/json")
        length = len(body) + rng.choice((0, 0, 0, -1, 1, 1000))
        lines.append(rng.choice((b"Content-Length: %d" % length, b"Transfer-Encoding: chunked")))
    if rng.random() < 0.4:
        lines[0] = rng.choice(LINES)
    for _ in range(rng.choice((0, 1, 1, 2))):
        lines.insert(rng.randrange(1, len(lines) + 1), rng.choice(HEADERS))
    if rng.random() < 0.1:
        lines.append(hostile.text(rng).encode(errors="replace"))
    request = b"\r\n".join([*lines, b"", b""]) + body
    match rng.randrange(8):
        case 0:
            place = rng.randrange(len(request))
            request = request[:place] + rng.choice(BREAKS) + request[place + rng.randrange(3) :]
        case 1:
            request = request[: rng.randrange(len(request))]
        case 2:
            request += rng.choice(
                (request, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * rng.randrange(1, 30), b"\r\n" * 100)
            )
        case 3:
            request = request.replace(b"\r\n", b"\n", rng.choice((1, -1)))
    return request


def _exchange(source: Source, target: Target, data: bytes, rng: random.Random) -> None:
    """Send the bytes, perhaps in pieces, and read all answers that come."""
    connection, counted = Connection(target.address), False
    try:
        cut = rng.randrange(len(data) + 1) if rng.random() < 0.2 else len(data)
        connection.send(data[:cut])
        connection.send(data[cut:])
        if rng.random() < 0.7:
            connection.half_close()
        while rng.random() > IMPATIENT:
            answer = connection.receive(seconds=PATIENCE)
            if not counted:
                source.counts.answered(answer.status)
                counted = True
            _judge(source, answer, data)
            if not answer.stays_open:
                return
    except Malformed as problem:
        # The answer to HEAD has a length but no body, and the request may be too broken to say what its method is.
        if b"HEAD" not in data:
            source.found(str(problem), data, "malformed answer")
    except (NoAnswer, Late, OSError):
        pass
    finally:
        connection.close()
        if not counted:
            source.counts.add("requests")
            source.counts.add("unanswered")


def _judge(source: Source, answer: HttpAnswer, data: bytes) -> None:
    if answer.status >= 500 and answer.status != 503:
        source.found(f"{answer.status}: {answer.body[:300]!r}", data, str(answer.status))
    if b"Traceback" in answer.body:
        source.found("an answer has a traceback", data)


def _reset(source: Source, target: Target, data: bytes, rng: random.Random) -> None:
    """Send the bytes, or a part of them, and reset the connection."""
    connection = Connection(target.address)
    with contextlib.suppress(OSError):
        connection.send(data[: rng.randrange(len(data) + 1)])
    connection.close(reset=True)
    source.counts.add("requests")
    source.counts.add("unanswered")


class SlowClient:
    """Sends one byte per turn, and reads nothing."""

    def __init__(self, target: Target, data: bytes) -> None:
        self._socket = socket.create_connection(target.address)
        self._socket.setblocking(False)
        self._left, self._began = data, time.monotonic()

    def goes_on(self) -> bool:
        """Send a byte; False when all are sent, or the coordinator has had enough."""
        try:
            sent = self._socket.send(self._left[:1])
        except BlockingIOError:
            return True
        except OSError:
            sent = len(self._left)
        self._left = self._left[sent:]
        if not self._left:
            self.close()
        return bool(self._left)

    def close(self) -> None:
        self._socket.close()
