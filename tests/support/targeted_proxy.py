"""A fault proxy that a test controls: it says, request by request, which fault happens."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from support.fault_proxy import FaultProxy, flipped, read_message

Aim = Callable[[str, bytes], str]


class TargetedProxy(FaultProxy):
    """`aim` gets the request line and the body, and returns the name of a fault, or "". Three more faults are:

    - `trickle`: the answer comes one byte at a time;
    - `flip_answer`: a bit of the answer's body is flipped;
    - `refuse 503`: the request never arrives, and is answered with this status.

    `log` has the line and the fault of each request, and `heads` has its head."""

    def __init__(self, target: str, aim: Aim = lambda _line, _body: "") -> None:
        self.aim = aim
        self.log: list[tuple[str, str]] = []
        self.heads: list[bytes] = []
        self._aiming = threading.Lock()
        super().__init__(target, rate=0.0)

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, EOFError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            reader = client.makefile("rb")
            while True:
                request = read_message(reader)
                line = request.partition(b"\r\n")[0].decode()
                with self._aiming:
                    fault = (
                        "drop_before" if self.cut_off.is_set() else self.aim(line, request.partition(b"\r\n\r\n")[2])
                    )
                    self.log.append((line, fault))
                    self.heads.append(request.partition(b"\r\n\r\n")[0])
                if fault == "drop_before":
                    return
                if fault.startswith("refuse"):
                    status = fault.split()[1].encode()
                    client.sendall(b"HTTP/1.1 " + status + b" Refused\r\nContent-Length: 0\r\n\r\n")
                    continue
                answer = self._send(flipped(request) if fault == "flip" else request)
                if fault == "flip_answer":
                    answer = flipped(answer)
                if fault == "duplicate":
                    answer = self._send(request)
                if fault == "drop_after" or self.cut_off.is_set():
                    return
                if fault == "cut":
                    client.sendall(answer[: len(answer) // 2])
                    return
                if fault == "trickle":
                    for at in range(len(answer)):
                        client.sendall(answer[at : at + 1])
                        time.sleep(0.002)  # the slowness is the fault
                else:
                    client.sendall(answer)
