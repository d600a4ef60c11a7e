"""The local socket over which the owner's commands reach a running worker. Anyone who can open it is its owner."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deborgen_worker.sockets import is_from_program, short_path

SOCKET = "control.sock"
ANSWER_SECONDS = 30.0

Handler = Callable[[dict[str, Any]], dict[str, Any]]


class NotRunningError(Exception):
    """No worker is running on this state directory."""


class ControlServer:
    """Answers one JSON line with one JSON line, from a thread of its own."""

    def __init__(self, state: Path, handler: Handler) -> None:
        self._state, self._handler = state, handler
        (state / SOCKET).unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_path(state / SOCKET) as path:
            self._listener.bind(path)
        (state / SOCKET).chmod(0o600)
        self._listener.listen(8)
        threading.Thread(target=self._serve, name="control", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
                if is_from_program(connection, self._is_supervisor):
                    connection.close()
                    continue
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), name="control-answer", daemon=True).start()

    def _is_supervisor(self, pid: int) -> bool:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return os.fsencode(self._state) in words and any(b"supervisor" in word for word in words)

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, ValueError):
            connection.settimeout(ANSWER_SECONDS)
            with connection.makefile("rwb") as file:
                request = json.loads(file.readline(65536))
                try:
                    answer = self._handler(request)
                except (ValueError, KeyError, OSError) as error:
                    answer = {"error": str(error)}
                file.write(json.dumps(answer).encode() + b"\n")

    def close(self) -> None:
        self._listener.close()


def ask(state: Path, message: dict[str, Any], seconds: float = ANSWER_SECONDS, name: str = SOCKET) -> dict[str, Any]:
    """Send a command to the worker of this state directory. Raises `NotRunningError` if no worker answers."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(seconds)
    try:
        with connection, short_path(state / name) as path:
            connection.connect(path)
            with connection.makefile("rwb") as file:
                file.write(json.dumps(message).encode() + b"\n")
                file.flush()
                answer = file.readline()
    except OSError as error:
        raise NotRunningError(f"no worker is running on {state}") from error
    if not answer:
        raise NotRunningError(f"the worker on {state} ended before it answered")
    return dict(json.loads(answer))


def ask_supervisor(state: Path, do: str) -> dict[str, Any]:
    """Send a command to the supervisor, which outlives the worker. The answer is empty if there is no supervisor."""
    try:
        return ask(state, {"do": do}, 5.0, "owner.sock")
    except NotRunningError:
        return {}
