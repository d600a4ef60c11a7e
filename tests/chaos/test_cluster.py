"""Two coordinators on one PostgreSQL. One of them is killed every few seconds, and nobody is to notice."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deborgen import Client
from support.coordinator import CoordinatorProcess
from support.waiting import wait_until
from support.worker import WorkerProcess, shared_file

pytestmark = pytest.mark.postgres

#: For how long coordinators are killed.
SECONDS = 60 if os.environ.get("DEBORGEN_LONG") else 15


class Load:
    """People who submit jobs one after the other, each through a client of its own."""

    def __init__(self, url: str, token: str, script: Callable[[str], str]) -> None:
        self._url, self._token, self._script = url, token, script
        self.submitted: dict[str, int] = {}
        self._stop = threading.Event()

    def submit(self, person: int) -> None:
        with Client(self._url, self._token) as client:
            for number in itertools.count():
                if self._stop.wait(0.15):
                    return
                name = f"{person}-{number}"
                self.submitted[name] = client.submit({"run": self._script(name), "name": name, "max_attempts": 1}).id

    def stop(self) -> None:
        self._stop.set()


def follow(url: str, token: str, seen: list[tuple[int, str]], until: threading.Event) -> None:
    """Collect the events that end jobs, live, until a run named `last` was submitted."""
    with Client(url, token) as client:
        for event in client.events(after=0, follow=True):
            if event.type == "job.succeeded":
                seen.append((event.seq, str(event.job)))
            if event.data.get("name") == "last":
                until.set()
                return


def test_fault_82_one_of_two_coordinators_is_killed_every_few_seconds(tmp_path: Path, postgres_url: str) -> None:
    """Seen to fail when a client asks only the first coordinator."""
    done = shared_file(tmp_path / "done")
    one, two = (CoordinatorProcess(tmp_path, database=postgres_url, max_running_per_submitter=3) for _ in range(2))
    with one, two:
        urls = [f"{one.url},{two.url}", f"{two.url},{one.url}"]
        token = one.token("submitter", "ada")
        load = Load(urls[1], token, lambda name: f"echo {name} >> {done}; echo the log of {name}")
        seen: list[tuple[int, str]] = []
        last_was_seen = threading.Event()
        workers = [WorkerProcess(tmp_path, one, f"w{at}", url=urls[at], cpus=4) for at in range(2)]
        with ThreadPoolExecutor(4) as pool, workers[0], workers[1]:
            following = pool.submit(follow, urls[0], token, seen, last_was_seen)
            people = [pool.submit(load.submit, person) for person in range(3)]
            end = time.monotonic() + SECONDS
            for victim in itertools.cycle((one, two)):
                if time.monotonic() > end:
                    break
                victim.kill()
                enough = len(seen) + 5
                wait_until(lambda: len(seen) >= enough, what="jobs to end at the other one", log=one.log)  # noqa: B023
                victim.start()
            load.stop()
            for person in people:
                person.result(60)  # raises what the person saw
            with Client(urls[0], token) as client:
                for name, number in load.submitted.items():
                    client.run(number).wait(timeout=120)
                    assert client.run(number).state == "succeeded", name
                logs = {name: client.job(f"{run}.1").logs() for name, run in list(load.submitted.items())[-5:]}
                client.submit({"run": "true", "name": "last"})
            following.result(60)
    assert last_was_seen.is_set()
    assert logs == {name: f"the log of {name}\n" for name in logs}
    ran = Counter(done.read_text().split())
    assert set(ran) == set(load.submitted), "a job was lost, or nobody knows who submitted it"
    assert set(ran.values()) == {1}, "a job ran twice"
    assert seen == sorted(seen)
    assert {f"{run}.1" for run in load.submitted.values()} <= {job for _, job in seen}
    assert len(seen) == len({job for _, job in seen}), "an event came twice"
