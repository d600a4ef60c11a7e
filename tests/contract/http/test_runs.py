"""Runs and jobs, as a person with curl sees them."""

from __future__ import annotations

import csv
import hashlib
import io
import threading
from typing import Any

import pytest

from deborgen_coordinator.settings import CoordinatorSettings
from deborgen_shared import __version__
from support.coordinator import Client, CoordinatorProcess
from support.scripted_worker import ScriptedWorker


@pytest.fixture
def ada(coordinator: CoordinatorProcess) -> Client:
    return coordinator.client("submitter", "ada")


@pytest.fixture(scope="module")
def worker(coordinator: CoordinatorProcess) -> ScriptedWorker:
    return ScriptedWorker(coordinator, "w1")


def submit(client: Client, **document: Any) -> dict[str, Any]:
    answer = client.post("/v1/runs", json={"run": "echo hello", **document})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def drain(worker: ScriptedWorker) -> None:
    """Finish the jobs that other tests have left in the queue."""
    while found := worker.claim(64):
        for assignment in found:
            worker.finish(assignment["attempt"])


def test_a_job_file_may_be_one_line(ada: Client) -> None:
    run = submit(ada)
    assert run["state"] == "queued"
    assert run["submitter"] == "ada"
    assert run["jobs"] == {"queued": 1, "running": 0, "succeeded": 0, "failed": 0, "canceled": 0}
    assert (run["finished_at"], run["retry_of"]) == (None, None)
    assert run["created_at"].endswith("Z")
    assert ada.get(f"/v1/runs/{run['id']}").json() == {**run, "warnings": run["warnings"]}
    job = ada.get(f"/v1/jobs/{run['id']}.1").json()
    assert (job["id"], job["state"], job["attempts"]) == (f"{run['id']}.1", "queued", 0)
    assert job["max_attempts"] == job["spec"]["max_attempts"] == CoordinatorSettings().default_max_attempts == 3
    assert job["history"] == job["artifacts"] == []
    assert job["spec"]["run"] == "echo hello"


def test_fault_04_five_repeats_of_a_submit_in_parallel_are_one_run(coordinator: CoordinatorProcess) -> None:
    """Seen to fail when the idempotency key is ignored."""
    answers: list[Any] = []

    def send() -> None:
        client = coordinator.client("submitter", "ada")
        answers.append(client.post("/v1/runs", json={"run": "true"}, headers={"Idempotency-Key": "five"}))

    threads = [threading.Thread(target=send, daemon=True) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(a.status_code for a in answers) == [200, 200, 200, 200, 201]
    assert len({a.json()["id"] for a in answers}) == 1


def test_fault_05_another_body_under_the_same_key_is_409_and_stores_nothing(ada: Client) -> None:
    """Seen to fail when an idempotency key is not tied to its body."""
    headers = {"Idempotency-Key": "fault-5"}
    assert ada.post("/v1/runs", json={"run": "true"}, headers=headers).status_code == 201
    before = ada.get("/v1/runs?limit=1").json()
    answer = ada.post("/v1/runs", json={"run": "false"}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "idempotency_conflict")
    assert ada.get("/v1/runs?limit=1").json() == before


def test_an_idempotency_key_belongs_to_its_submitter(coordinator: CoordinatorProcess, ada: Client) -> None:
    headers = {"Idempotency-Key": "shared-word"}
    one = ada.post("/v1/runs", json={"run": "true"}, headers=headers)
    two = coordinator.client("submitter", "bob").post("/v1/runs", json={"run": "true"}, headers=headers)
    assert (one.status_code, two.status_code) == (201, 201)
    assert one.json()["id"] != two.json()["id"]


def test_runs_are_listed_newest_first_in_pages_and_by_filter(ada: Client, coordinator: CoordinatorProcess) -> None:
    ids = [submit(ada, labels={"project": "paging", "n": n})["id"] for n in range(5)]
    first = ada.get("/v1/runs?label=project%3Dpaging&limit=2").json()
    assert [run["id"] for run in first["items"]] == ids[:2:-1]
    second = ada.get(f"/v1/runs?label=project%3Dpaging&limit=2&cursor={first['next']}").json()
    third = ada.get(f"/v1/runs?label=project%3Dpaging&limit=2&cursor={second['next']}").json()
    assert [run["id"] for run in second["items"] + third["items"]] == ids[2::-1]
    assert third["next"] is None
    assert ada.get("/v1/runs?label=project%3Dnone").json() == {"items": [], "next": None}
    assert ada.get("/v1/runs?submitter=nobody").json()["items"] == []
    assert {run["submitter"] for run in ada.get("/v1/runs?submitter=ada&limit=1000").json()["items"]} == {"ada"}
    assert ids[0] in [run["id"] for run in ada.get("/v1/runs?state=queued&limit=1000").json()["items"]]
    assert ada.get("/v1/runs?state=failed&label=project").json()["items"] == []


def test_the_last_run_is_the_callers_newest(ada: Client, coordinator: CoordinatorProcess) -> None:
    newcomer = coordinator.client("submitter", "newcomer")
    none = newcomer.get("/v1/runs/last")
    assert (none.status_code, none.json()["error"]["code"]) == (404, "not_found")
    assert none.json()["error"]["message"] == "newcomer has not submitted a run yet"
    mine = [submit(newcomer, run="true"), submit(newcomer, run="true")][-1]
    submit(ada, run="true")
    assert newcomer.get("/v1/runs/last").json()["id"] == mine["id"]
    assert newcomer.delete("/v1/runs/last").status_code == 405
    for run in newcomer.get("/v1/runs?submitter=newcomer").json()["items"]:
        newcomer.post(f"/v1/runs/{run['id']}/cancel")


def test_a_sweep_is_many_jobs_and_they_are_listed_in_order(ada: Client) -> None:
    run = submit(ada, run="echo ${{ seed }}", sweep={"grid": {"seed": {"from": 1, "to": 5}}})
    assert run["jobs"]["queued"] == 5
    first = ada.get(f"/v1/runs/{run['id']}/jobs?limit=3").json()
    rest = ada.get(f"/v1/runs/{run['id']}/jobs?limit=3&cursor={first['next']}").json()
    jobs = first["items"] + rest["items"]
    assert [job["params"] for job in jobs] == [{"seed": n} for n in range(1, 6)]
    assert [job["index"] for job in jobs] == [1, 2, 3, 4, 5]
    assert ada.get(f"/v1/jobs?run={run['id']}&state=queued").json()["items"] == jobs
    assert ada.get(f"/v1/jobs?run={run['id']}&state=running").json()["items"] == []


def test_the_results_table_comes_as_json_and_as_csv(ada: Client, worker: ScriptedWorker) -> None:
    drain(worker)
    sweep = {"grid": {"method": ["euler", "rk4"], "state": [1.5]}}
    run = submit(ada, run="echo ${{ method }}", sweep=sweep)
    for assignment in worker.claim(2):
        result = {"error": 1e-9, "method": 'a "quoted", one', "ok": True, "note": "=1+1"}
        assert worker.finish(assignment["attempt"], result=result) == "accepted"
    rows = ada.get(f"/v1/runs/{run['id']}/results").json()
    assert [row["params"]["method"] for row in rows["items"]] == ["euler", "rk4"]
    assert rows["items"][0]["result"]["error"] == 1e-9
    assert {row["state"] for row in rows["items"]} == {"succeeded"}
    assert {row["worker"] for row in rows["items"]} == {"w1"}
    answer = ada.get(f"/v1/runs/{run['id']}/results?format=csv")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    table = list(csv.DictReader(io.StringIO(answer.text)))
    assert list(table[0]) == [
        "job", "state", "method", "param.state", "error", "result.method", "note", "ok", "seconds", "worker",
    ]  # fmt: skip
    assert table[1]["method"] == "rk4"
    assert float(table[1]["error"]) == 1e-9
    assert table[1]["result.method"] == 'a "quoted", one'
    assert (table[1]["ok"], table[1]["note"], table[1]["seconds"]) == ("true", "=1+1", "1.5")


def test_numbers_that_json_has_no_word_for_are_texts_and_empty_cells(ada: Client, worker: ScriptedWorker) -> None:
    drain(worker)
    run = submit(ada, run="true")["id"]
    (assignment,) = worker.claim()
    worker.finish(assignment["attempt"], result={"loss": "NaN", "top": "-Infinity", "train.loss": 0.5})
    (row,) = ada.get(f"/v1/runs/{run}/results").json()["items"]
    assert row["result"] == {"loss": "NaN", "top": "-Infinity", "train.loss": 0.5}
    (line,) = csv.DictReader(io.StringIO(ada.get(f"/v1/runs/{run}/results?format=csv").text))
    assert (line["loss"], line["top"], line["train.loss"]) == ("", "", "0.5")


def test_the_overview_names_each_reason_and_each_warning_once(ada: Client, worker: ScriptedWorker) -> None:
    drain(worker)
    run = submit(ada, run="true", sweep={"grid": {"n": {"from": 1, "to": 6}}}, retry={"program": True, "backoff": "5m"})
    given = worker.claim(6)
    assert ada.get(f"/v1/runs/{run['id']}/overview").json()["assigned"] == 6
    assert ada.get(f"/v1/jobs/{run['id']}.1/why").json()["summary"].startswith("Assigned to w1, attempt 1: ")
    worker.post("heartbeat", {"holding": [{"attempt": given[0]["attempt"], "began_seconds_ago": 1}]})
    assert ada.get(f"/v1/runs/{run['id']}/overview").json()["assigned"] == 5
    begun = [job["began_at"] is not None for job in ada.get(f"/v1/runs/{run['id']}/jobs").json()["items"]]
    assert begun == [True, False, False, False, False, False]
    assert ada.get(f"/v1/jobs/{run['id']}.1/why").json()["summary"] == "Running on w1, attempt 1."
    assert given[0]["attempt"] not in ada.get("/v1/workers/w1").json()["assigned"]
    assert given[1]["attempt"] in ada.get("/v1/workers/w1").json()["assigned"]
    for assignment, where in zip(given[:2], ("line 1", "line 2"), strict=True):
        left_out = f"result left out: it is not JSON ({where})"
        worker.finish(assignment["attempt"], warnings=[left_out, "artifact 'x' matched nothing"])
    for assignment in given[2:4]:
        worker.finish(assignment["attempt"], "error", reason="no such image")
    worker.finish(given[4]["attempt"], "failed", exit_code=3)
    overview = ada.get(f"/v1/runs/{run['id']}/overview").json()
    assert [(group["jobs"], group["reason"], group["first"]) for group in overview["warnings"]] == [
        (2, "result left out: it is not JSON (line 1)", f"{run['id']}.1"),
        (2, "artifact 'x' matched nothing", f"{run['id']}.1"),
    ]
    waiting = [(group["jobs"], group["reason"], group["first"]) for group in overview["waiting"]]
    assert waiting == [(2, "no such image", f"{run['id']}.3"), (1, "exit code 3", f"{run['id']}.5")]
    assert all(group["next_try_at"] for group in overview["waiting"])
    why = ada.get(f"/v1/jobs/{run['id']}.5/why").json()
    assert why["summary"].startswith("Queued: attempt 1 on w1 ended: exit code 3; next try in ")
    assert why["workers"] == [], "no worker can take it before then"
    assert "Warning: artifact 'x' matched nothing." in ada.get(f"/v1/jobs/{run['id']}.1/why").json()["summary"]
    ada.post(f"/v1/runs/{run['id']}/cancel")
    worker.finish(given[5]["attempt"], "failed", exit_code=3)
    overview = ada.get(f"/v1/runs/{run['id']}/overview").json()
    (failed,) = overview["failed"]
    assert (failed["jobs"], failed["reason"], failed["first"]) == (1, "exit code 3", f"{run['id']}.6")
    assert (overview["waiting"], overview["assigned"]) == ([], 0)


def blob(worker: ScriptedWorker, path: str, data: bytes) -> dict[str, Any]:
    """An artifact whose bytes have been uploaded."""
    digest = hashlib.sha256(data).hexdigest()
    assert worker.http.put(f"/v1/blobs/{digest}", data=data).status_code == 201
    return {"path": path, "sha256": digest, "size": len(data)}


def shown(artifact: dict[str, Any]) -> dict[str, Any]:
    """An artifact as the coordinator lists it."""
    return {**artifact, "uri": f"/v1/blobs/{artifact['sha256']}"}


def test_the_artifacts_of_a_run_come_page_by_page(ada: Client, worker: ScriptedWorker) -> None:
    run = submit(ada, run="true", sweep={"grid": {"n": [1, 2, 3]}})["id"]
    left = {}
    for assignment, count in zip(worker.claim(3), (3, 0, 2), strict=True):
        made = [blob(worker, f"out/{n} \u00e9", f"{assignment['job']} {n}".encode()) for n in range(count)]
        left[assignment["job"]] = made
        assert worker.finish(assignment["attempt"], artifacts=made) == "accepted"
    whole = [{**shown(artifact), "job": job} for job, made in left.items() for artifact in made]
    assert ada.get(f"/v1/runs/{run}/artifacts").json() == {"items": whole, "next": None}
    for limit in (1, 2, 4, 5):
        seen, cursor = [], ""
        while True:
            page = ada.get(f"/v1/runs/{run}/artifacts?limit={limit}{cursor}").json()
            seen += page["items"]
            if page["next"] is None:
                break
            assert len(page["items"]) == limit
            cursor = f"&cursor={page['next']}"
        assert seen == whole
    assert ada.get("/v1/runs/999999/artifacts").status_code == 404
    for cursor in ("1", "1:1", "x"):
        assert ada.get(f"/v1/runs/{run}/artifacts?cursor={cursor}").status_code == 400


def test_the_artifacts_of_an_earlier_attempt_can_be_fetched(ada: Client, worker: ScriptedWorker) -> None:
    document = {"run": "true", "max_attempts": 3, "retry": {"program": True, "backoff": "0s"}}
    job = f"{submit(ada, **document)['id']}.1"
    first, second = blob(worker, "out.txt", b"first"), blob(worker, "out.txt", b"second")
    worker.finish(worker.claim(wait=10)[0]["attempt"], "failed", exit_code=1, artifacts=[first])
    assert ada.get(f"/v1/jobs/{job}/artifacts").json()["items"] == [shown(first)]
    worker.finish(worker.claim(wait=10)[0]["attempt"], "succeeded", artifacts=[second])
    for query, artifact, data in (("", second, b"second"), ("?attempt=1", first, b"first")):
        assert ada.get(f"/v1/jobs/{job}/artifacts{query}").json()["items"] == [shown(artifact)]
        assert ada.get(f"/v1/jobs/{job}/artifacts/out.txt{query}").content == data
    for path in ("artifacts", "artifacts/out.txt"):
        none = ada.get(f"/v1/jobs/{job}/{path}?attempt=3")
        assert (none.status_code, none.json()["error"]["message"]) == (404, f"job {job} has no attempt 3")


def test_a_cancel_answers_what_happened_to_each_job(ada: Client, worker: ScriptedWorker) -> None:
    drain(worker)
    run = submit(ada, sweep={"cases": [{"n": 1}, {"n": 2}, {"n": 3}]})["id"]
    done, running = worker.claim(2)
    worker.finish(done["attempt"])
    answer = ada.post(f"/v1/runs/{run}/cancel", json={"reason": "a mistake"}).json()
    assert answer["jobs"] == {
        f"{run}.1": "already_terminal",
        f"{run}.2": "cancel_requested",
        f"{run}.3": "canceled",
    }
    assert worker.heartbeat(running["attempt"])["attempts"] == {running["attempt"]: "cancel"}
    assert worker.finish(running["attempt"], "canceled") == "accepted"
    assert ada.get(f"/v1/runs/{run}").json()["state"] == "canceled"
    job = ada.get(f"/v1/jobs/{run}.3").json()
    assert (job["state"], "a mistake" in job["reason"]) == ("canceled", True)


def test_a_cancel_needs_no_body(ada: Client) -> None:
    run = submit(ada)["id"]
    assert ada.post(f"/v1/jobs/{run}.1/cancel").json() == {"jobs": {f"{run}.1": "canceled"}}
    assert ada.post(f"/v1/jobs/{run}.1/cancel", json={}).json() == {"jobs": {f"{run}.1": "already_terminal"}}


def test_only_the_submitter_or_an_admin_cancels_or_retries(coordinator: CoordinatorProcess, ada: Client) -> None:
    run = submit(ada)["id"]
    bob = coordinator.client("submitter", "bob")
    for path in (f"/v1/runs/{run}/cancel", f"/v1/jobs/{run}.1/cancel", f"/v1/runs/{run}/retry"):
        assert bob.post(path, json={}).status_code == 403
    assert bob.get(f"/v1/runs/{run}").json()["state"] == "queued"
    assert coordinator.client("admin").post(f"/v1/runs/{run}/cancel").status_code == 200


def test_a_retry_is_a_new_run_linked_to_the_old_one(ada: Client, worker: ScriptedWorker) -> None:
    drain(worker)
    run = submit(ada, sweep={"cases": [{"n": 1}, {"n": 2}]})["id"]
    for assignment, outcome in zip(worker.claim(2), ["succeeded", "failed"], strict=True):
        worker.finish(assignment["attempt"], outcome, exit_code=0 if outcome == "succeeded" else 3)
    assert ada.get(f"/v1/runs/{run}").json()["state"] == "failed"
    key = {"Idempotency-Key": "again"}
    answer = ada.post(f"/v1/runs/{run}/retry", json={"only": "failed"}, headers=key)
    assert answer.status_code == 201, answer.text
    again = answer.json()
    assert (again["retry_of"], again["jobs"]["queued"]) == (run, 1)
    repeated = ada.post(f"/v1/runs/{run}/retry", json={"only": "failed"}, headers=key)
    assert (repeated.status_code, repeated.json()["id"]) == (200, again["id"])
    conflict = ada.post(f"/v1/runs/{run}/retry", json={"only": "all"}, headers=key)
    assert conflict.status_code == 409
    assert ada.get(f"/v1/jobs/{again['id']}.2").json()["params"] == {"n": 2}, "a job keeps its index"
    assert ada.get(f"/v1/runs/{run}").json()["state"] == "failed", "the old run is as it was"


def test_the_results_of_a_run_can_include_the_newest_success_of_each_job(ada: Client, worker: ScriptedWorker) -> None:
    drain(worker)
    run = submit(ada, sweep={"cases": [{"n": 1}, {"n": 2}, {"n": 3}]})["id"]

    def finish(outcomes: list[str]) -> None:
        for assignment, outcome in zip(worker.claim(len(outcomes)), outcomes, strict=True):
            worker.finish(assignment["attempt"], outcome, exit_code=int(outcome == "failed"))

    def retry(of: int, only: str) -> int:
        return int(ada.post(f"/v1/runs/{of}/retry", json={"only": only}).json()["id"])

    def jobs(query: str) -> list[tuple[str, str | None]]:
        return [(row["job"], row["retry_of"]) for row in ada.get(f"/v1/runs/{run}/results{query}").json()["items"]]

    own = [(f"{run}.{n}", None) for n in (1, 2, 3)]
    finish(["succeeded", "failed", "failed"])
    second = retry(run, "failed")
    finish(["failed", "succeeded"])
    assert jobs("?retries=1") == [*own[:2], (f"{second}.3", f"{run}.3")]
    third = retry(second, "all")
    finish(["succeeded", "failed"])
    assert jobs("?retries=1") == [own[0], (f"{third}.2", f"{run}.2"), (f"{second}.3", f"{run}.3")]
    assert jobs("") == own
    table = ada.get(f"/v1/runs/{run}/results?retries=1&format=csv").text.splitlines()
    assert table[0].startswith("job,retry_of,state,n,")
    assert table[2].startswith(f"{third}.2,{run}.2,succeeded,2,")


def test_why_names_what_each_worker_lacks(ada: Client, worker: ScriptedWorker) -> None:
    run = submit(ada, requires={"gpu": "rtx*"})["id"]
    why = ada.get(f"/v1/jobs/{run}.1/why").json()
    assert (why["job"], why["state"]) == (f"{run}.1", "queued")
    (line,) = [w for w in why["workers"] if w["worker"] == "w1"]
    assert line["fits"] is False
    assert "gpu" in line["reason"]
    ada.post(f"/v1/runs/{run}/cancel")


def test_workers_are_listed_and_steered(coordinator: CoordinatorProcess, ada: Client) -> None:
    other = ScriptedWorker(coordinator, "w2", gpu="rtx4090")
    assert "w2" in [w["name"] for w in ada.get("/v1/workers").json()["items"]]
    seen = ada.get("/v1/workers/w2").json()
    assert (seen["state"], seen["labels"]["gpu"], seen["paused"], seen["running"]) == ("open", "rtx4090", False, [])
    admin = coordinator.client("admin")
    steered = admin.patch("/v1/workers/w2", json={"paused": True})
    assert (steered.status_code, steered.json()["paused"]) == (200, True)
    assert other.heartbeat()["orders"] == {"pause": True, "drain": False}
    assert admin.patch("/v1/workers/w2", json={"pause": True}).status_code == 400
    assert admin.patch("/v1/workers/nobody", json={"paused": True}).status_code == 404
    admin.patch("/v1/workers/w2", json={"paused": False})
    assert other.http.delete("/v1/workers/w2").status_code == 204
    assert ada.get("/v1/workers/w2").json()["state"] == "left"


def test_a_worker_reports_its_state_and_its_machines_metrics(coordinator: CoordinatorProcess, ada: Client) -> None:
    other = ScriptedWorker(coordinator, "w3")
    assert ada.get("/v1/workers/w3").json()["metrics"] is None
    metrics = {
        "load": 0.5,
        "memory_free": 2**33,
        "disk_free": 2**40,
        "temperature": 48.5,
        "gpus": [{"name": "RTX 4090"}],
    }
    said = {"state": "yielding", "reason": "its owner plays", "until": "2030-01-31T18:00:00+01:00", "metrics": metrics}
    assert other.post("heartbeat", said).status_code == 200
    assert other.post("heartbeat", {key: said[key] for key in ("state", "reason", "until")}).status_code == 200
    seen = ada.get("/v1/workers/w3").json()
    assert (seen["availability"], seen["state"], seen["reason"]) == ("yielding", "paused", "its owner plays")
    assert (seen["until"], seen["metrics"]) == ("2030-01-31T17:00:00Z", metrics)
    assert other.heartbeat()["orders"] == {"pause": False, "drain": False}
    seen = ada.get("/v1/workers/w3").json()
    assert (seen["availability"], seen["state"], seen["until"], seen["metrics"]) == ("free", "open", None, metrics)


def test_a_claim_without_a_job_is_204_with_retry_after(worker: ScriptedWorker) -> None:
    drain(worker)
    body = {"request_id": "none", "free": {"cpus": 1}, "wait_seconds": 0}
    answer = worker.post("claim", body)
    assert (answer.status_code, answer.content) == (204, b"")
    assert int(answer.headers["Retry-After"]) >= 0


def test_a_waiting_claim_wakes_for_a_submit(ada: Client, worker: ScriptedWorker) -> None:
    drain(worker)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(worker.claim(1, wait=20)), daemon=True)
    thread.start()
    run = submit(ada)["id"]
    thread.join(10)
    assert [a["job"] for a in found] == [f"{run}.1"]
    worker.finish(found[0]["attempt"])


def test_an_older_session_is_superseded(coordinator: CoordinatorProcess) -> None:
    worker = ScriptedWorker(coordinator, "w3")
    old = worker.session
    worker.session = "newer"
    worker.register()
    worker.session = old
    answer = worker.post("heartbeat", {})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "superseded")


def test_the_metrics_match_the_database(coordinator: CoordinatorProcess, ada: Client) -> None:
    queued = sum(run["jobs"]["queued"] for run in ada.get("/v1/runs?limit=1000").json()["items"])
    answer = ada.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain")
    numbers = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
    assert float(numbers['deborgen_jobs{state="queued"}']) == queued
    assert float(numbers["deborgen_workers_online"]) >= 1
    for name in ("lease_expired_total", "job_retries_total", "stale_results_total"):
        assert float(numbers[f"deborgen_{name}"]) >= 0
    for name in ("queue_wait_seconds", "run_seconds"):
        assert float(numbers[f"deborgen_{name}_count"]) > 0
        assert numbers[f'deborgen_{name}_bucket{{le="+Inf"}}'] == numbers[f"deborgen_{name}_count"]


def test_health_needs_no_token(coordinator: CoordinatorProcess) -> None:
    answer = coordinator.client(None).get("/health")
    assert answer.json() == {
        "status": "ok",
        "version": __version__,
        "artifact_store": "local",
        "artifact_store_trouble": "",
    }
