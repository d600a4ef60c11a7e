"""Record the requests of a release's worker, so that a test can check that later coordinators still understand them.

git worktree add /tmp/release 3b73588      the commit of the release; this is 0.1.0
make -C /tmp/release install
python tools/record_worker.py /tmp/release/.venv/bin/python 0.1.0
git worktree remove --force /tmp/release

The worker of that release talks to its own coordinator, through a proxy that records the requests. The story is
short: two steps with a log, progress, an artifact and an input; a job that is canceled; short jobs, some of which are
claimed ahead; and the worker leaves. It goes to tests/contract/http/recorded/, where a test replays it to today's
coordinator.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import requests

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.recording import RecordingProxy  # noqa: E402
from support.waiting import wait_until  # noqa: E402

NAME = "desk-3"
LEASE_SECONDS, HEARTBEAT_SECONDS = 10, 1
STEPS = {
    "name": "two-steps",
    "steps": [
        {
            "id": "make",
            "run": "echo begun; echo '0.5 half of it' > $DEBORGEN_PROGRESS; sleep 3; echo ended; echo made > out.txt; "
            "echo '{\"n\": 7}' > $DEBORGEN_RESULT",
            "artifacts": ["out.txt"],
        },
        {"id": "use", "run": "cat inputs/make/out.txt"},
    ],
}
CANCELED = {"name": "canceled", "run": "echo begun; sleep 600"}
SHORT = {"name": "short", "run": "echo $DEBORGEN_PARAM_N", "sweep": {"grid": {"n": {"from": 1, "to": 12}}}}


class Release:
    """The coordinator and the worker of the recorded release, in a folder of their own."""

    def __init__(self, python: str, folder: Path) -> None:
        self.python, self.folder = python, folder
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("DEBORGEN_")}
        self.data = ["--data-dir", str(folder / "coordinator")]
        self.state = ["--state-dir", str(folder / "worker")]
        self.processes: list[subprocess.Popen[str]] = []

    def token(self, role: str, name: str) -> str:
        words = ["deborgen_coordinator", "token", "create", "--role", role, "--name", name, *self.data]
        return self.run(*words).strip()

    def run(self, *words: str) -> str:
        command = [self.python, "-m", *words]
        return subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True).stdout

    def start(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen([self.python, "-m", *words], env=self.environment, text=True, **more)
        self.processes.append(process)
        return process

    def serve(self) -> str:
        process = self.start(
            "deborgen_coordinator", "serve", "--listen", "127.0.0.1:0", *self.data,
            f"--lease-seconds={LEASE_SECONDS}", f"--heartbeat-seconds={HEARTBEAT_SECONDS}", stdout=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"http://\S+:\d+", line):
                return found[0]
        raise SystemExit("the coordinator of that release did not start")

    def work(self, url: str, token: str) -> None:
        file = self.folder / "token"
        file.write_text(token)
        file.chmod(0o600)
        # With one processor, only one claim waits at a time. If two waited, a replay could give the job to the other.
        self.start(
            "deborgen_worker", "run", "--coordinator", url, "--name", NAME, "--token-file", str(file), *self.state,
            "--runner=subprocess", "--cpus=1", "--memory=4GiB", "--min-free-disk=0", "--kill-grace=1s",
        )  # fmt: skip

    def end(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
            process.wait(30)


class Person:
    """Submits, cancels and looks, after telling the recording."""

    def __init__(self, url: str, token: str, proxy: RecordingProxy) -> None:
        self.url, self.proxy = url, proxy
        self.http = requests.Session()
        self.http.headers["Authorization"] = f"Bearer {token}"

    def submit(self, document: dict[str, Any]) -> int:
        wait_until(lambda: self.proxy.waiting_claims, what="a waiting claim")
        self.proxy.record_person(submits=document)
        answer = self.http.post(f"{self.url}/v1/runs", json=document, timeout=20)
        answer.raise_for_status()
        return int(answer.json()["id"])

    def cancel(self, job: str) -> None:
        self.proxy.record_person(cancels=job)
        self.http.post(f"{self.url}/v1/jobs/{job}/cancel", json={}, timeout=20).raise_for_status()

    def wait_for(self, run: int, state: str) -> None:
        def is_reached() -> bool:
            return bool(self.http.get(f"{self.url}/v1/runs/{run}", timeout=20).json()["state"] == state)

        wait_until(is_reached, what=f"run {run} to be {state}")

    def log(self, job: str) -> bytes:
        return self.http.get(f"{self.url}/v1/jobs/{job}/log", timeout=20).content


def record(python: str, folder: Path) -> list[dict[str, Any]]:
    release = Release(python, folder)
    admin, worker = release.token("admin", "ada"), release.token("worker", NAME)
    try:
        url = release.serve()
        with RecordingProxy(url) as proxy:
            person = Person(url, admin, proxy)
            release.work(proxy.url, worker)
            person.wait_for(person.submit(STEPS), "succeeded")
            canceled = person.submit(CANCELED)
            wait_until(lambda: person.log(f"{canceled}.1") == b"begun\n", what="the job to run")
            person.cancel(f"{canceled}.1")
            person.wait_for(canceled, "canceled")
            person.wait_for(person.submit(SHORT), "succeeded")
            release.run("deborgen_worker", "leave", *release.state)
            return proxy.story()
    finally:
        release.end()


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        story = record(sys.argv[1], Path(folder))
    for entry in story:
        body = entry.get("request", {}).get("body") or {}
        if "labels" in body:  # do not publish what machine it was
            body |= {"hostname": NAME, "labels": body["labels"] | {"kernel": "6.1.0", "cpu": "a processor"}}
    file = ROOT / "tests/contract/http/recorded" / f"worker-{sys.argv[2]}.json"
    file.write_text(json.dumps({"release": sys.argv[2], "worker": NAME, "story": story}, indent=1) + "\n")
    print(f"{file.relative_to(ROOT)}: {len(story)} entries")


if __name__ == "__main__":
    main()
