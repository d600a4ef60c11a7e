"""A worker in one page: it claims jobs, runs each as a plain process, and reports how it ended.

    URL=http://127.0.0.1:8765 TOKEN=dbg_worker_... python worker.py NAME

It needs only requests. docs/http-api.md explains the calls. Unlike the real worker, it supports no files, artifacts or
containers.
"""

import base64
import os
import signal
import subprocess
import sys
import time
import uuid
from subprocess import PIPE, STDOUT
from typing import Any

import requests

NAME, SESSION, ROOM = sys.argv[1], uuid.uuid4().hex, {"cpus": 1, "memory": 2**32, "disk": 2**34}
http = requests.Session()
http.headers["Authorization"] = f"Bearer {os.environ['TOKEN']}"


def clock() -> float:
    """A clock that keeps running while the machine sleeps, as leases do."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def ask(method: str, path: str, **body: object) -> dict[str, Any]:
    """Send the call until it is answered. Sending it twice has the same effect as sending it once."""
    while True:
        sent = clock()
        try:
            url = f"{os.environ['URL']}/v1/workers/{NAME}{path}"
            answer = http.request(method, url, json={"session": SESSION, **body}, timeout=60)
            if answer.status_code < 500:
                answer.raise_for_status()
                return {"sent": sent} | (answer.json() if answer.content else {})
        except (requests.ConnectionError, requests.Timeout):
            pass
        time.sleep(1)


def work(attempt: str, spec: dict[str, Any]) -> None:
    """Run one attempt. While its process runs, heartbeats renew the lease and say whether to go on."""
    command = spec["run"] if isinstance(spec["run"], list) else ["sh", "-euc", spec["run"]]
    began, output, code = clock(), b"", None
    order, period = "continue", 1.0  # the first heartbeat follows after a second
    process = subprocess.Popen(command, stdout=PIPE, stderr=STDOUT, start_new_session=True)
    while code is None and order == "continue":
        try:
            output, code = process.communicate(timeout=period)[0], process.returncode
        except subprocess.TimeoutExpired:
            held = [{"attempt": attempt, "began_seconds_ago": clock() - began}]
            order, period = ask("POST", "/heartbeat", holding=held)["attempts"][attempt], PERIOD
    if code is None:
        os.killpg(process.pid, signal.SIGKILL)  # the shell and all its children
        output = process.communicate()[0]
    outcome = "canceled" if code is None else "succeeded" if code == 0 else "failed"
    log = {"offset": 0, "data": base64.b64encode(output).decode()}
    took = {"seconds": clock() - began, "began_seconds_ago": clock() - began, "log_size": len(output)}
    ask("POST", "/finish", results=[{"attempt": attempt, "outcome": outcome, "exit_code": code, "log": log, **took}])


PERIOD = ask("PUT", "", labels={"runner.process": True}, capacity=ROOM)["heartbeat_seconds"]
while True:
    claim = ask("POST", "/claim", request_id=uuid.uuid4().hex, free=ROOM, max=1, wait_seconds=20)
    for assignment in claim.get("assignments", []):
        # Until this time the lease is certainly valid, with a margin. Later, another worker may have the job.
        if clock() < claim["sent"] + claim["waited_seconds"] + 0.9 * assignment["lease_seconds"]:
            work(assignment["attempt"], assignment["spec"])
