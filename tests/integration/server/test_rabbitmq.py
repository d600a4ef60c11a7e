"""The bridge to a real RabbitMQ: jobs come in, statuses go out, and whatever dies in between loses and repeats none."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.coordinator import CoordinatorProcess, clean_environment, family_of
from support.documents import blocks
from support.rabbitmq import BridgeProcess, Broker, Client, rabbitmq
from support.scripted_worker import ScriptedWorker
from support.targeted_proxy import TargetedProxy
from support.waiting import wait_until

__all__ = ["rabbitmq"]

DOCUMENT = Path(__file__).parents[3] / "docs" / "rabbitmq.md"


class Crew(contextlib.AbstractContextManager["Crew"]):
    """A worker in a thread, which takes every job that fits and finishes it at once."""

    def __init__(self, coordinator: CoordinatorProcess, **labels: Any) -> None:
        self._worker = ScriptedWorker(coordinator, "crew", **labels)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Crew:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _work(self) -> None:
        while not self._stop.is_set():
            for assignment in self._worker.claim(16, wait=0.2):
                self._worker.finish(assignment["attempt"])


@pytest.fixture
def publisher(rabbitmq: Broker) -> Iterator[Client]:
    client = rabbitmq.client()
    yield client
    client.close()


@pytest.fixture
def own(tmp_path: Path, rabbitmq: Broker, publisher: Client) -> Iterator[CoordinatorProcess]:
    """A coordinator of the test's own, with empty queues."""
    with contextlib.suppress(Exception):
        publisher.purge()
    with CoordinatorProcess(tmp_path) as coordinator:
        yield coordinator


def runs_of(coordinator: CoordinatorProcess) -> dict[str, dict[str, Any]]:
    """All runs, by their names."""
    items = coordinator.client().get("/v1/runs?limit=1000").json()["items"]
    assert len({run["name"] for run in items}) == len(items), "a message became two runs"
    return {run["name"]: run for run in items}


def ended(coordinator: CoordinatorProcess, count: int) -> bool:
    found = runs_of(coordinator).values()
    return len(found) == count and all(run["state"] == "succeeded" for run in found)


class Listener:
    """Collects statuses, as a careful consumer does: by their numbers, without those that it has already."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.seen: dict[str, dict[str, Any]] = {}
        self.ends = 0

    def listen(self) -> Listener:
        for properties, body in self._client.take_all("status.queue"):
            if properties.message_id not in self.seen:
                status = json.loads(body)
                self.seen[properties.message_id] = status | {"correlation_id": properties.correlation_id}
                self.ends += properties.type == "run"
        return self

    def check(self, runs: dict[str, dict[str, Any]]) -> None:
        """Every change of every run was told, in its order, and with the correlation id of its message."""
        for name, run in runs.items():
            told = [status for status in self.seen.values() if status["run"] == run["id"]]
            assert [status["state"] for status in told] == ["queued", "running", "succeeded", "succeeded"], name
            assert [status["seq"] for status in told] == sorted(status["seq"] for status in told)
            assert {status["correlation_id"] for status in told} == {f"for {name}"}


def publish(client: Client, name: str, **job: Any) -> None:
    body = {"run": "echo hello", "name": name, **job}
    client.publish(body, message_id=f"message {name}", correlation_id=f"for {name}", reply_to="answers")


def test_a_message_is_acknowledged_when_its_job_was_claimed_and_every_change_is_told(
    rabbitmq: Broker, own: CoordinatorProcess, publisher: Client
) -> None:
    with BridgeProcess(own.folder, rabbitmq, own, public_url="https://pool.example").until_ready() as bridge:
        publish(publisher, "first")
        publisher.publish(b"run: echo hello", {"deborgen-name": "second"}, correlation_id="for second")
        publisher.publish(b"run: echo hello", {"deborgen-name": "second"}, correlation_id="for second")
        wait_until(lambda: set(runs_of(own)) == {"first", "second"}, what="both runs", log=bridge.log)
        bridge.kill()
        wait_until(lambda: publisher.size("execute.queue") == 3, what="unclaimed messages to come back")
        bridge.start()
        wait_until(lambda: publisher.size("execute.queue") == 0, what="the messages to be taken again", log=bridge.log)
        with Crew(own):
            listener = Listener(publisher)
            wait_until(lambda: listener.listen().ends == 2, what="the ends of both runs", log=bridge.log)
        assert bridge.stop() == 0
    assert publisher.size("execute.queue") == 0
    runs = runs_of(own)
    listener.check(runs)
    first = [status for status in listener.seen.values() if status["run"] == runs["first"]["id"]]
    job = f"{runs['first']['id']}.1"
    done = {key: first[2][key] for key in ("job", "old_state", "attempt", "worker", "exit_code", "log_url")}
    assert done == {
        "job": job, "old_state": "running", "attempt": f"{job}/1", "worker": "crew", "exit_code": 0,
        "log_url": f"https://pool.example/v1/jobs/{job}/log?attempt=1",
    }  # fmt: skip
    assert (first[3]["jobs"]["succeeded"], first[3]["results_url"][-10:]) == (1, "/1/results")


def test_what_the_document_types_starts_a_bridge(rabbitmq: Broker, own: CoordinatorProcess, publisher: Client) -> None:
    [typed] = blocks(DOCUMENT, "sh")
    typed = typed.replace("amqp://127.0.0.1:5672/%2F", rabbitmq.url)
    typed = typed.replace("deborgen-coordinator rabbitmq", "exec deborgen-coordinator rabbitmq")
    there = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "DEBORGEN_DATA_DIR": str(own.data_dir),
        "DEBORGEN_RABBITMQ_COORDINATOR": own.url,
    }  # fmt: skip
    log = own.folder / "typed.log"
    with log.open("wb") as output:
        bridge = subprocess.Popen(
            ["sh", "-ec", typed], cwd=own.folder, env=clean_environment() | there, stdout=output, stderr=output
        )
    try:
        wait_until(lambda: "taking jobs" in log.read_text(), what="the bridge to be ready", log=log)
        publish(publisher, "typed")
        wait_until(lambda: "typed" in runs_of(own), what="the run", log=log)
        assert runs_of(own)["typed"]["submitter"] == "queue"
    finally:
        bridge.terminate()
        assert bridge.wait(30) == 0


def test_the_document_shows_the_fields_that_a_status_has(
    rabbitmq: Broker, own: CoordinatorProcess, publisher: Client
) -> None:
    shown = [json.loads(block) for block in blocks(DOCUMENT, "json")]
    with BridgeProcess(own.folder, rabbitmq, own).until_ready(), Crew(own):
        publisher.publish({"rum": "true"})
        publish(publisher, "good")
        listener = Listener(publisher)
        wait_until(lambda: len(listener.listen().seen) == 5, what="all statuses")
    real = [set(status) - {"correlation_id"} for status in listener.seen.values()]
    assert all(set(each) in real for each in shown)


def test_the_examples_publish_a_job_file_and_print_what_became_of_it(
    rabbitmq: Broker, own: CoordinatorProcess, publisher: Client
) -> None:
    examples = Path(__file__).parents[3] / "examples"

    def example(name: str, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(examples / "rabbitmq" / name), *words]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**clean_environment(), "AMQP_URL": rabbitmq.url}
        )

    with BridgeProcess(own.folder, rabbitmq, own).until_ready(), Crew(own):
        assert example("publish.py", str(examples / "hello.yml"), "order-7").wait(60) == 0
        printed, _ = example("consume.py").communicate(timeout=60)
        assert printed.splitlines() == [
            "order-7 1.1 queued", "order-7 1.1 running", "order-7 1.1 succeeded", "order-7 run 1 succeeded",
        ]  # fmt: skip


def test_a_message_that_can_never_be_a_job_is_put_aside_with_its_problems(
    rabbitmq: Broker, own: CoordinatorProcess, publisher: Client
) -> None:
    with BridgeProcess(own.folder, rabbitmq, own).until_ready() as bridge:
        publisher.publish(b"run: [", message_id="unreadable")
        publisher.publish({"rum": "true"}, {"mine": 1}, message_id="invalid", correlation_id="7")
        publish(publisher, "good")
        publisher.publish({"run": "echo other"}, message_id="message good")
        wait_until(lambda: publisher.size("execute.dead") == 3, what="three dead letters", log=bridge.log)
        dead = {properties.message_id: (properties, body) for properties, body in publisher.take_all("execute.dead")}
        assert set(dead) == {"unreadable", "invalid", "message good"}
        properties, body = dead["invalid"]
        assert (json.loads(body), properties.headers["mine"]) == ({"rum": "true"}, 1)
        [problem] = json.loads(properties.headers["deborgen-problems"])
        assert problem == {"path": "rum", "message": "unknown key 'rum'", "hint": "did you mean 'run'?"}
        told = {
            properties.correlation_id: json.loads(body)
            for properties, body in publisher.take_all("status.queue") if properties.type == "refused"
        }  # fmt: skip
        assert told["7"] == {"state": "refused", "message_id": "invalid", "problems": [problem]}
    assert set(runs_of(own)) == {"good"}


def test_messages_that_no_worker_fits_do_not_hold_up_others_and_a_closed_channel_is_opened_again(
    rabbitmq: Broker, own: CoordinatorProcess, publisher: Client
) -> None:
    # RabbitMQ reads this when a channel is opened.
    rabbitmq.control("eval", "application:set_env(rabbit, consumer_timeout, 2000).")
    with BridgeProcess(own.folder, rabbitmq, own, prefetch=2).until_ready() as bridge, Crew(own):
        for number in range(6):
            publish(publisher, f"later {number}", requires={"site": "moon"})
        publish(publisher, "now")
        wait_until(lambda: runs_of(own).get("now", {}).get("state") == "succeeded", what="the one that fits")
        wait_until(lambda: "closed the channel" in bridge.log.read_text(), what="the channel to be closed")
        rabbitmq.control("eval", "application:set_env(rabbit, consumer_timeout, 1800000).")
        ScriptedWorker(own, "moon", site="moon")
        with Crew(own, site="moon"):
            wait_until(lambda: ended(own, 7), what="the others, once there is a worker", log=bridge.log)
        listener = Listener(publisher)
        wait_until(lambda: listener.listen().ends == 7, what="the ends of all runs", log=bridge.log)
        listener.check(runs_of(own))


def test_the_bridge_ends_within_ten_seconds_even_if_the_coordinator_hangs(
    rabbitmq: Broker, own: CoordinatorProcess, publisher: Client
) -> None:
    with BridgeProcess(own.folder, rabbitmq, own).until_ready() as bridge:
        assert own.process is not None
        family = family_of(own.process.pid)
        for pid in family:
            os.kill(pid, signal.SIGSTOP)
        try:
            publish(publisher, "left")
            wait_until(lambda: publisher.size("execute.queue") == 0, what="the message to be taken", log=bridge.log)
            began = time.monotonic()
            assert bridge.stop() == 0
            assert time.monotonic() - began < 10
        finally:
            for pid in family:
                os.kill(pid, signal.SIGCONT)
    wait_until(lambda: publisher.size("execute.queue") == 1, what="the message to be back")


def test_fault_83_rabbitmq_is_blocked_killed_and_started_again(
    rabbitmq: Broker, own: CoordinatorProcess, publisher: Client
) -> None:
    """Seen to fail when statuses are not kept on RabbitMQ's disk."""
    listener = Listener(publisher)
    with BridgeProcess(own.folder, rabbitmq, own).until_ready() as bridge:
        rabbitmq.control("set_vm_memory_high_watermark", "0.000001")
        admin = own.client("submitter", "queue")
        origin = {"Deborgen-Origin": '{"bridge": "rabbitmq", "correlation_id": "for meanwhile"}'}
        assert (
            admin.post("/v1/runs", json={"run": "echo hello", "name": "meanwhile"}, headers=origin).status_code == 201
        )
        with Crew(own):
            wait_until(lambda: ended(own, 1), what="the run that was submitted while RabbitMQ was blocked")
        rabbitmq.control("set_vm_memory_high_watermark", "absolute", "1GB")
        for number in range(5):
            publish(publisher, f"{number}")
        wait_until(lambda: len(runs_of(own)) == 6, what="the runs", log=bridge.log)
        wait_until(lambda: publisher.size("status.queue") >= 8, what="the first statuses", log=bridge.log)
        rabbitmq.kill()
        with Crew(own):
            wait_until(lambda: ended(own, 6), what="the runs to end without RabbitMQ")
        rabbitmq.start()
        wait_until(lambda: listener.listen().ends == 6, what="the ends of all runs", log=bridge.log)
        wait_until(lambda: rabbitmq.holds("execute.queue") == 0, what="all messages to be acknowledged")
    listener.check(runs_of(own))


#: The bridge is killed at each of these requests, before it arrives and after it was executed.
STEPS = [
    (when, request)
    for request in ("POST /v1/runs", "GET /v1/events", "GET /v1/jobs", "PUT /v1/cursors")
    for when in ("before", "after")
]


class DeadlyProxy(TargetedProxy):
    """Kills the bridge at the next request of the chosen step."""

    def __init__(self, target: str) -> None:
        self.bridge: BridgeProcess | None = None
        self.step: tuple[str, str] | None = None
        super().__init__(target, self._choose_fault)

    def _choose_fault(self, line: str, body: bytes) -> str:
        return "drop_before" if self._is_due("before", line) else ""

    def _send(self, request: bytes) -> bytes:
        answer = super()._send(request)
        self._is_due("after", request.decode(errors="replace"))
        return answer

    def _is_due(self, when: str, line: str) -> bool:
        if self.bridge is None or self.step is None or self.step[0] != when or not line.startswith(self.step[1]):
            return False
        self.bridge.kill()
        self.step = None
        return True


def test_fault_83_the_bridge_is_killed_at_each_step(
    rabbitmq: Broker, own: CoordinatorProcess, publisher: Client
) -> None:
    """Seen to fail when a message that is delivered again has another key, and when the place in the history is stored
    before the statuses are published."""
    listener = Listener(publisher)
    with DeadlyProxy(own.url) as proxy, Crew(own):
        bridge = proxy.bridge = BridgeProcess(own.folder, rabbitmq, own, coordinator=proxy.url)
        with bridge.until_ready():
            for number, step in enumerate(STEPS):
                proxy.step = step
                publish(publisher, f"{number}")
                wait_until(lambda: proxy.step is None, what=f"the bridge to be killed {step}", log=bridge.log)
                bridge.start()
            wait_until(lambda: ended(own, len(STEPS)), what="all runs to end", log=bridge.log)
            wait_until(lambda: listener.listen().ends == len(STEPS), what="the ends of all runs", log=bridge.log)
            wait_until(lambda: rabbitmq.holds("execute.queue") == 0, what="all messages to be acknowledged")
    listener.check(runs_of(own))


def test_fault_83_two_bridges_take_turns_and_one_goes_on_alone(
    rabbitmq: Broker, own: CoordinatorProcess, publisher: Client
) -> None:
    """Seen to fail when a bridge never takes over from another one."""
    listener = Listener(publisher)
    first, second = (BridgeProcess(own.folder, rabbitmq, own, prefetch=3) for _ in range(2))
    with first, Crew(own):
        first.until_ready()
        with second:
            second.until_ready()
            assert "publishing statuses" not in second.log.read_text()
            for number in range(20):
                publish(publisher, f"{number}")
                if number == 10:
                    first.kill()
            wait_until(lambda: listener.listen().ends == 20, what="the ends of all runs", log=second.log)
            wait_until(lambda: rabbitmq.holds("execute.queue") == 0, what="all messages to be acknowledged")
            assert second.stop() == 0
    assert ended(own, 20)
    listener.check(runs_of(own))
