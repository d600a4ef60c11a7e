"""What the benchmarks of the HTTP API share: the cheapest client, and an echo server to compare with."""

from __future__ import annotations

import http.client
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

ECHO = """
from flask import Flask, request, Response
app = Flask("echo")
@app.post("/echo")
def echo():
    return Response(request.get_data(), 200, content_type="application/json")
"""


class BareClient:
    """One kept-alive connection, as cheap as Python allows: the client shares the machine with the server."""

    def __init__(self, url: str, token: str) -> None:
        self._http = http.client.HTTPConnection(url.removeprefix("http://"), timeout=120)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        self._http.request(method, path, msgspec.json.encode(body) if body is not None else None, self._headers)
        answer = self._http.getresponse()
        return answer.status, answer.read()


@contextmanager
def echo_server() -> Iterator[tuple[str, int]]:
    """Run an echo server. Yields its address and its process id."""
    folder = Path(tempfile.mkdtemp(prefix="deborgen-echo-"))
    (folder / "echo_app.py").write_text(ECHO)
    command = [sys.executable, "-m", "gunicorn", "-k", "gthread", "-w", "1", "--threads", "64", "-b", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--keep-alive", "75", "echo_app:app"], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "Listening at:" in line:
                yield line.split()[-2], process.pid
                break
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)
