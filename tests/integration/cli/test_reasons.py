"""Results that were left out, jobs that failed, and jobs that wait for another try: each reason is said once."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import deborgen
from deborgen_shared.states import State
from support.coordinator import CoordinatorProcess
from support.person import DEBORGEN, Person
from support.pool import Pool
from support.scripted_worker import ScriptedWorker
from support.waiting import wait_until

from .screen import Terminal

RESULTS = """
run: |
  case ${{ kind }} in
    numbers) printf '{"loss": NaN, "top": 1e999}' ;;
    nested) printf '{"train": {"loss": 0.5}}' ;;
    *) echo oops ;;
  esac > "$DEBORGEN_RESULT"
artifacts: [missing.txt]
sweep: {grid: {kind: [numbers, nested, bad, worse]}}
"""

NO_RESULT = "run: 'true'\nresult: out.json\nsweep: {grid: {n: [1, 2]}}\n"


def test_a_result_that_was_left_out_is_said_wherever_people_look(pool: Pool, anna: Person) -> None:
    """Seen to fail in release 0.1, where the rows were empty and only `show JOB` said why."""
    run = anna.submit(RESULTS, "--wait")
    left_out = "warning: 2 jobs: result left out: it is not JSON (Expecting value: line 1 column 1 (char 0))"
    for words in (["watch", run], ["results", run], ["show", run], ["why", run]):
        said = anna.err(*words, code=0)
        assert f"{left_out} (first: {run}.3)" in said, words
        assert f"warning: 4 jobs: artifact 'missing.txt' matched nothing (first: {run}.1)" in said, words
    assert "Warning: result left out: it is not JSON" in anna.out("why", f"{run}.3")
    rows = list(csv.DictReader(io.StringIO(anna.out("results", run, "--csv"))))
    assert [(row["loss"], row["top"], row["train.loss"]) for row in rows] == [
        ("", "", ""), ("", "", "0.5"), ("", "", ""), ("", "", ""),
    ]  # fmt: skip
    assert '"loss": "NaN"' in anna.out("results", run, "--json")
    job = deborgen.Client(pool.coordinator.url, pool.coordinator.token("submitter", "anna")).job(f"{run}.1")
    assert repr(dict(job.result)) == "{'loss': nan, 'top': inf}"
    assert job.warnings == ["artifact 'missing.txt' matched nothing"]


def test_a_result_file_that_was_not_written_is_a_warning(anna: Person) -> None:
    """Seen to fail when the worker does not warn of a missing `result`."""
    run = anna.submit(NO_RESULT, "--wait")
    for verb in ("watch", "results", "show", "why"):
        said = anna.err(verb, run, code=0)
        assert f"warning: 2 jobs: result left out: there is no file 'out.json' (first: {run}.1)" in said, verb


def test_failed_jobs_are_grouped_by_reason(anna: Person) -> None:
    """Seen to fail in release 0.1, which listed the first failed jobs one by one."""
    run = anna.submit("run: exit ${{ code }}\nsweep: {cases: [{code: 3}, {code: 3}, {code: 4}, {code: 0}]}\n")
    said = anna.err("watch", run, code=14)
    for text in (said, anna.err("show", run, code=0), anna.err("why", run, code=0)):
        assert f"failed:  2 jobs: exit code 3 (first: {run}.1)" in text
        assert f"failed:  1 job: exit code 4 (first: {run}.3)" in text


def test_a_job_that_waits_says_why_and_until_when(anna: Person) -> None:
    """Seen to fail in release 0.1, which said that a worker can take it with its next claim."""
    run = anna.submit("run: exit 3\nretry: {program: true, backoff: 5m}\n")
    log = anna.folder / "watching"
    with log.open("wb") as file:
        watching = anna.start("watch", run, stderr=file)
    try:
        wait_until(lambda: "waiting: 1 job: exit code 3; next try in " in log.read_text())
        assert "Queued: attempt 1 on box ended: exit code 3; next try in " in anna.out("why", run)
    finally:
        anna.out("cancel", run)
        assert watching.wait(30) == 11
    assert anna.rows("show", run)[0]["state"] == State.CANCELED


def test_results_show_the_newest_success_of_a_retried_job(anna: Person) -> None:
    """Seen to fail in release 0.1, which had none of these options, and left a hole."""
    ready = anna.folder / "ready-for-retry"
    job = f"run: test ${{{{ n }}}} = 1 || test -e {ready}\nsweep: {{grid: {{n: [1, 2]}}}}\n"
    run = anna.submit(job, "--wait", code=14)
    assert [row["job"] for row in anna.rows("show", run, "--state", "failed")] == [f"{run}.2"]
    assert [row["job"] for row in anna.rows("results", run, "--failed")] == [f"{run}.2"]
    ready.touch()
    again = anna.out("retry", run, "--failed").strip()
    anna.out("wait", again)
    rows = [(row["job"], row["retry_of"], row["state"]) for row in anna.rows("results", run)]
    assert rows == [(f"{run}.1", "", "succeeded"), (f"{again}.2", f"{run}.2", "succeeded")]
    assert [row["state"] for row in anna.rows("results", run, "--no-retries")] == ["succeeded", "failed"]
    chosen = anna.out("results", run, "--where", "n=2", "--sort", "-n", "--limit", "1", "--columns", "n,job")
    assert chosen == f"n\tjob\n2\t{again}.2\n"
    assert "KEY=VALUE" in anna.err("results", run, "--where", "n", code=2)


def test_a_run_that_was_canceled_as_a_whole_is_canceled_everywhere(anna: Person) -> None:
    """Seen to fail in release 0.1, which called the run failed because of its first job."""
    run = anna.submit("run: test ${{ n }} != 1 && sleep 600\nsweep: {grid: {n: [1, 2, 3]}}\n")
    anna.out("wait", f"{run}.1", code=10)
    anna.out("cancel", run)
    assert f"run {run} canceled" in anna.err("wait", run, code=11)
    assert anna.rows("list", "-n", "1")[0]["state"] == State.CANCELED
    assert run in [row["run"] for row in anna.rows("list", "--state", State.CANCELED)]
    assert run not in [row["run"] for row in anna.rows("list", "--state", State.FAILED)]


def test_an_attempt_that_a_worker_only_holds_is_called_assigned(tmp_path: Path) -> None:
    """Seen to fail in release 0.1, which called both jobs running."""
    with Pool(CoordinatorProcess(tmp_path)) as pool:
        worker = ScriptedWorker(pool.coordinator)
        ben = pool.person("ben")
        run = ben.submit("run: ls\nsweep: {grid: {n: [1, 2]}}\n")
        first, second = (each["attempt"] for each in worker.claim(2))
        held = [{"attempt": first, "began_seconds_ago": 1}, {"attempt": second}]
        assert worker.post("heartbeat", {"holding": held}).status_code == 200
        watching = Terminal([str(DEBORGEN), "watch", run], ben.folder, ben.environment)
        showing = Terminal([str(DEBORGEN), "show", run], ben.folder, ben.environment)
        listing = Terminal([str(DEBORGEN), "workers"], ben.folder, ben.environment)
        try:
            watching.until(lambda screen: "1 running  1 assigned" in screen.text)
            assert "assigned to w1" in watching.screen.text
            assert showing.end() == listing.end() == 0
            assert "1 running, 1 assigned" in showing.screen.text
            assert "1, 1 assigned" in listing.screen.text
            assert f"{run}.2\t\t\tAssigned to w1, attempt 1: its program has not begun." in ben.out("why", f"{run}.2")
        finally:
            for each in (watching, showing, listing):
                each.process.kill()
                each.process.wait()
                each.close()


def test_progress_and_assigned_jobs_are_seen_long_before_the_next_heartbeat(tmp_path: Path) -> None:
    """Seen to fail when the worker reads the progress only for its regular heartbeats."""
    gate = tmp_path / "gate"
    script = f'until test -e {gate}; do sleep 0.1; done; echo "0.5 half" > "$DEBORGEN_PROGRESS"; sleep 600'
    with Pool(CoordinatorProcess(tmp_path, heartbeat_seconds=600, lease_seconds=3600)) as pool:
        pool.add_worker("box", cpus=1, memory="4GiB", drain_grace="0s")
        job = f"{pool.submit(run=script)}.1"
        wait_until(lambda: pool.job(job)["began_at"])
        gate.touch()
        wait_until(lambda: (pool.job(job)["progress"], pool.job(job)["message"]) == (0.5, "half"))
