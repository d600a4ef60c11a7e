"""Commands that only read: lists, logs, reasons, results, artifacts and the history."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import subprocess
import threading
from pathlib import Path

import pytest

from support.person import Person
from support.pool import Pool
from support.waiting import wait_until
from support.worker import shared_file

SWEEP = """
name: curve
labels: {project: thesis}
run: |
  echo x is ${{ x }}
  mkdir out; printf 'artifact %s' ${{ x }} > out/value.txt
  printf '{"y": %s}' $(( (DEBORGEN_PARAM_X - 2) * (DEBORGEN_PARAM_X - 2) )) > "$DEBORGEN_RESULT"
artifacts: [out/*]
sweep: {grid: {x: {from: 1, to: 4}}}
"""


@pytest.fixture(scope="module")
def curve(anna: Person) -> str:
    """A finished run of four jobs with results and artifacts."""
    return anna.submit(SWEEP, "--wait", name="curve.yml")


def test_list_shows_my_run_and_filters(anna: Person, curve: str) -> None:
    row = anna.rows("list", "--label", "project=thesis")[0]
    assert {key: row[key] for key in ("run", "name", "state", "done", "jobs", "failed", "submitter")} == {
        "run": curve, "name": "curve", "state": "succeeded", "done": "4", "jobs": "4", "failed": "0",
        "submitter": "anna",
    }  # fmt: skip
    assert anna.rows("list", "--submitter", "nobody") == []
    assert all(row["state"] == "failed" for row in anna.rows("list", "--state", "failed"))


def test_last_is_the_newest_run_of_the_same_person(pool: Pool, anna: Person, curve: str) -> None:
    mine = anna.submit("run: echo mine\n", "--wait")
    pool.person("carl").submit("run: echo his\n", "--wait")
    assert anna.out("logs") == "mine\n"
    assert anna.out("logs", "last.1") == "mine\n"
    assert json.loads(anna.out("show", "last", "--json"))["run"]["id"] == int(mine)


def test_without_any_submitted_run_there_is_no_last(pool: Pool) -> None:
    assert "dora has not submitted a run yet" in pool.person("dora").err("show", code=6)


def test_a_run_number_may_stand_for_its_only_job(anna: Person, curve: str) -> None:
    run = anna.submit("run: echo alone\n", "--wait")
    assert anna.out("logs", run) == anna.out("logs", f"{run}.1") == "alone\n"
    assert anna.out("why", run).splitlines()[1].startswith(f"{run}.1\t")
    assert anna.out("why", curve).splitlines()[1].startswith(f"{curve}.1\t"), "of several, the first"


def test_show_lists_jobs_and_attempts(anna: Person, curve: str) -> None:
    rows = anna.rows("show", curve)
    assert [(row["job"], row["params"], row["exit_code"]) for row in rows] == [
        (f"{curve}.{x}", f"x={x}", "0") for x in range(1, 5)
    ]
    (attempt,) = anna.rows("show", f"{curve}.2")
    assert (attempt["attempt"], attempt["worker"], attempt["outcome"], attempt["log"]) == ("1", "box", "succeeded", "7")


def test_fault_36_a_log_in_a_pipe_is_byte_for_byte_what_was_written(anna: Person) -> None:
    """Seen to fail when a log loses its carriage returns."""
    data = bytes(range(256)) * 300 + b"no line end"
    path = anna.folder / "noise.bin"
    path.write_bytes(data)
    run = anna.submit("run: cat noise.bin\nfiles: [noise.bin]\n", "--wait")
    assert anna.run("logs", run).stdout == data
    assert anna.run("logs", "-f", run).stdout == data


def test_the_logs_of_several_jobs_have_headings(anna: Person, curve: str) -> None:
    done = anna.run("logs", curve)
    assert done.stdout.decode() == "".join(f"x is {x}\n" for x in range(1, 5))
    assert f"==> {curve}.3 (x=3) succeeded <==" in done.stderr.decode()


def test_logs_can_be_limited_to_failed_jobs(anna: Person) -> None:
    run = anna.submit("run: echo ${{ x }}; exit ${{ x }}\nsweep: {grid: {x: [0, 1, 2]}}\n", "--wait", code=14)
    assert anna.out("logs", run, "--failed") == "1\n2\n"
    assert anna.rows("why", run)[0]["job"] == f"{run}.2", "the first that failed"
    assert f"jobs failed; this is the first, {run}.2\n" in anna.run("why", run).stderr.decode()


def test_followed_logs_can_be_limited_to_failed_jobs(anna: Person) -> None:
    """Seen to fail when `--follow` ignored `--failed`."""
    run = anna.submit("run: echo ${{ x }}; exit ${{ x }}\nsweep: {grid: {x: [0, 1, 2]}}\n")
    assert sorted(anna.out("logs", run, "-f", "--failed").splitlines()) == [f"{run}.2 | 1", f"{run}.3 | 2"]
    good = anna.submit("run: echo fine\n")
    done = anna.run("logs", good, "-f", "--failed")
    assert (done.stdout, done.stderr.decode()) == (b"", f"no job of run {good} failed\n")


def test_a_log_is_followed_while_it_grows(anna: Person) -> None:
    gate = anna.folder / "gate"
    run = anna.submit(f"run: echo before; while [ ! -e {gate} ]; do sleep 0.05; done; echo after\n")
    following = anna.start("logs", "-f", run, stdout=subprocess.PIPE)
    assert following.stdout is not None
    assert following.stdout.readline() == b"before\n"
    gate.touch()
    assert following.stdout.read() == b"after\n"
    assert following.wait(20) == 0


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_log_is_followed_over_a_restart_of_the_coordinator(pool: Pool, anna: Person, jobs: int) -> None:
    """A coordinator that shuts down cleanly also ends its streams cleanly. That is not the end of the log."""
    go = anna.folder / f"over-{jobs}"
    script = f"echo before; while [ ! -e {go} ]; do sleep 0.05; done; echo after"
    run = anna.submit(f"run: '{script}'\nsweep: {{grid: {{n: {{from: 1, to: {jobs}}}}}}}\nresources: {{cpus: 0.5}}\n")
    following = anna.start("logs", "-f", run, stdout=subprocess.PIPE)
    assert following.stdout is not None
    for _ in range(jobs):
        assert following.stdout.readline().endswith(b"before\n")
    pool.coordinator.stop()
    pool.coordinator.start()
    go.touch()
    rest = following.communicate(timeout=60)[0].splitlines()
    assert [line.rpartition(b" ")[2] for line in rest] == [b"after"] * jobs
    assert following.returncode == 0


def test_every_attempt_of_a_retried_job_is_followed(anna: Person) -> None:
    script = "echo attempt $DEBORGEN_ATTEMPT; test $DEBORGEN_ATTEMPT = 2"
    text = f"run: {script}\nsweep: {{grid: {{n: [1, 2]}}}}\nmax_attempts: 2\nretry: {{program: true, backoff: 0s}}\n"
    run = anna.submit(text)
    said = anna.out("logs", "-f", run).splitlines()
    assert sorted(said) == [f"{run}.{n} | attempt {number}" for n in (1, 2) for number in (1, 2)]


def test_the_reader_of_many_logs_may_close_the_pipe(anna: Person) -> None:
    """Seen to fail when a closed pipe ends a printing thread but not the command."""
    go = anna.folder / "enough"
    script = f"while [ ! -e {go} ]; do echo line; sleep 0.02; done"
    run = anna.submit(f"run: '{script}'\nsweep: {{grid: {{n: [1, 2]}}}}\nresources: {{cpus: 0.5}}\n")
    following = anna.start("logs", "-f", run, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert following.stdout is not None
    assert following.stderr is not None
    assert following.stdout.readline().endswith(b" | line\n")
    following.stdout.close()
    assert following.wait(30) == 141, following.stderr.read()
    assert following.stderr.read() == b""
    go.touch()
    anna.out("wait", run)


def test_a_log_can_be_followed_before_the_job_starts(pool: Pool, anna: Person, admin: Person) -> None:
    admin.out("workers", "pause", "box")
    run = anna.submit("run: echo at last\n")
    following = anna.start("logs", "-f", run, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert following.stderr is not None
    assert b"has not started: Queued" in following.stderr.readline()
    admin.out("workers", "resume", "box")
    assert following.communicate(timeout=30)[0] == b"at last\n"


def test_the_log_of_an_earlier_attempt_can_be_read(anna: Person) -> None:
    count = shared_file(anna.folder / "count")
    text = f"""
run: echo x >> {count}; wc -l < {count}; [ $(wc -l < {count}) = 2 ]
max_attempts: 2
retry: {{program: true, backoff: 0s}}
"""
    run = anna.submit(text, "--wait")
    assert anna.out("logs", run).strip() == "2"
    assert anna.out("logs", run, "--attempt", "1").strip() == "1"
    assert anna.out("logs", f"{run}.1/1").strip() == "1"
    assert [row["outcome"] for row in anna.rows("show", f"{run}.1")] == ["failed", "succeeded"]


def test_why_prints_one_line_per_worker(anna: Person) -> None:
    run = anna.submit("run: ls\nresources: {memory: 500GiB}\n")
    rows = anna.rows("why", run)
    assert rows[0]["worker"] == ""
    assert rows[1] == {
        "job": f"{run}.1", "worker": "box", "fits": "false",
        "reason": "has 4GiB of memory in total, the job asks for 500GiB",
    }  # fmt: skip
    anna.out("cancel", run)
    assert "cancel" in anna.out("why", run)


def test_results_can_be_sorted_and_searched(anna: Person, curve: str) -> None:
    rows = anna.rows("results", curve)
    assert [(row["job"], row["state"], row["x"], row["y"], row["worker"]) for row in rows] == [
        (f"{curve}.{x}", "succeeded", str(x), str((x - 2) ** 2), "box") for x in range(1, 5)
    ]
    assert [row["y"] for row in anna.rows("results", curve, "--sort", "y")] == ["0", "1", "1", "4"]
    assert [row["y"] for row in anna.rows("results", curve, "--sort", "-y")] == ["4", "1", "1", "0"]
    assert [row["x"] for row in anna.rows("results", curve, "--best", "y:min")] == ["2"]
    assert [row["x"] for row in anna.rows("results", curve, "--best", "y:max")] == ["4"]
    assert "did you mean 'y'?" in anna.err("results", curve, "--sort", "yy", code=2)


def test_the_best_row_of_a_text_column_is_an_error(anna: Person) -> None:
    """Seen to fail in release 0.1, which printed only a header."""
    run = anna.submit("run: 'true'\nsweep: {grid: {method: [euler, rk4]}}\n", "--wait")
    assert "no row has a number in the column 'method'" in anna.err("results", run, "--best", "method", code=2)


def test_a_job_is_not_taken_for_its_run(anna: Person, curve: str) -> None:
    """Seen to fail in release 0.1, which silently took the whole run."""
    for verb in ("results", "watch", "retry"):
        said = anna.err(verb, f"{curve}.3", code=2)
        assert f"{curve}.3 is a job, and this needs a run" in said
        assert f"write {curve}" in said


def test_a_filter_that_finds_nothing_is_named(anna: Person) -> None:
    """Seen to fail in release 0.1, which said only `no runs`."""
    assert "no run has a label called 'foo'" in anna.err("list", "--label", "foo", code=0)
    assert "no run matches: submitter nobody" in anna.err("list", "--submitter", "nobody", code=0)


def test_names_that_people_type_from_habit_are_understood(anna: Person, curve: str) -> None:
    """Seen to fail in release 0.1, which had no such commands."""
    assert anna.rows("ls") == anna.rows("list")
    assert anna.rows("status") == anna.rows("list")
    assert anna.out("help", "results") == anna.out("results", "--help")
    assert anna.out("help") == anna.out("--help")


def test_results_as_csv_and_json_are_the_same_table(anna: Person, curve: str) -> None:
    lines = list(csv.DictReader(io.StringIO(anna.out("results", curve, "--csv"))))
    table = json.loads(anna.out("results", curve, "--json"))["results"]
    assert list(lines[0]) == table["columns"] == ["job", "state", "x", "y", "seconds", "worker"]
    assert [int(line["y"]) for line in lines] == [row["y"] for row in table["rows"]] == [1, 0, 1, 4]


def test_artifacts_are_listed_with_their_digests(anna: Person, curve: str) -> None:
    rows = anna.rows("artifacts", "list", curve)
    assert [(row["job"], row["path"], row["size"]) for row in rows] == [
        (f"{curve}.{x}", "out/value.txt", "10") for x in range(1, 5)
    ]
    assert rows[0]["sha256"] == hashlib.sha256(b"artifact 1").hexdigest()


def test_artifacts_are_pulled_once_into_one_folder_per_job(anna: Person, curve: str) -> None:
    printed = anna.out("artifacts", "pull", curve).splitlines()
    folder = anna.folder / f"curve-{curve}"
    assert printed == [f"curve-{curve}/{x}/out/value.txt" for x in range(1, 5)]
    assert (folder / "3/out/value.txt").read_text() == "artifact 3"
    kept = (folder / "3/out/value.txt").stat()
    (folder / "2/out/value.txt").write_text("damaged!!!")
    anna.out("artifacts", "pull", curve)
    assert (folder / "2/out/value.txt").read_text() == "artifact 2"
    assert (folder / "3/out/value.txt").stat().st_ino == kept.st_ino


def test_the_artifacts_of_one_job_go_to_the_given_folder(anna: Person, curve: str, tmp_path: Path) -> None:
    anna.out("artifacts", "pull", f"{curve}.4", "--into", str(tmp_path / "here"))
    assert (tmp_path / "here/out/value.txt").read_text() == "artifact 4"


def test_events_are_the_history(anna: Person, curve: str) -> None:
    types = [row["type"] for row in anna.rows("events", f"{curve}.1")]
    assert types[0] == "job.queued"
    assert types[-1] == "job.succeeded"
    assert anna.rows("events", curve)[0]["type"] == "run.submitted"
    lines = [json.loads(line) for line in anna.out("events", curve, "--json").splitlines()]
    assert all(line["version"] == 1 for line in lines)
    after = lines[3]["event"]["seq"]
    assert len(anna.rows("events", curve, "--after", str(after))) == len(lines) - 4
    newest = [row["seq"] for row in anna.rows("events", curve, "-n", "2")]
    assert newest == [str(line["event"]["seq"]) for line in lines[-2:]]
    assert len(anna.rows("events", "-n", "3")) == 3
    assert int(anna.rows("events", "-n", "3")[-1]["seq"]) >= int(newest[-1])


def test_the_events_of_a_program_are_in_the_history(anna: Person) -> None:
    run = anna.submit("""run: echo '{"type":"epoch","payload":{"loss":0.5}}' >> $DEBORGEN_EVENTS\n""")
    anna.out("wait", run)
    (row,) = [row for row in anna.rows("events", run) if row["type"] == "job.event"]
    assert (row["job"], row["data"]) == (f"{run}.1", "type=epoch payload=loss=0.5 number=0")
    lines = [json.loads(line)["event"] for line in anna.out("events", run, "--json").splitlines()]
    (event,) = [line for line in lines if line["type"] == "job.event"]
    assert event["data"] == {"type": "epoch", "payload": {"loss": 0.5}, "number": 0}


def test_events_are_followed_live_and_survive_a_restart_of_the_coordinator(pool: Pool, anna: Person) -> None:
    following = anna.start("events", "-f", "--json", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert following.stdout is not None
    try:
        first = ""
        # The stream begins with the first event after it was opened: submit jobs until it is open.
        lines: list[str] = []
        threading.Thread(
            target=lambda: lines.extend(iter(lambda: following.stdout.readline().decode(), "")),  # type: ignore[union-attr]
            daemon=True,
        ).start()

        def heard() -> str:
            run = anna.submit("run: 'true'\n")
            return run if any(f'"run":{run}' in line for line in lines) else ""

        first = wait_until(heard, what="a first event")
        pool.coordinator.restart()
        wait_until(lambda: pool.coordinator.client().get("/health").ok, what="the coordinator to be back")
        second = anna.submit("run: 'true'\n")
        wait_until(lambda: any(f'"run":{second}' in line for line in lines), what="an event after the restart")
        numbers = [json.loads(line)["event"]["seq"] for line in lines]
        assert numbers == sorted(set(numbers)), "none twice, all in order"
        assert int(second) > int(first)
    finally:
        following.kill()
        following.wait()


def test_workers_shows_the_machines(anna: Person) -> None:
    (row,) = anna.rows("workers")
    assert (row["worker"], row["availability"], row["state"]) == ("box", "free", "open")
    assert row["cpus"].endswith("/2")
    assert "runner.process=true" in row["labels"]


def test_workers_shows_one_machine_by_its_name(anna: Person) -> None:
    shown = {row["field"]: row["value"] for row in anna.rows("workers", "box")}
    assert (shown["worker"], shown["availability"], shown["cpus"]) == ("box", "free", "2/2 free")
    assert shown["memory free"].endswith("iB")
    assert float(shown["load"]) >= 0
    assert "runner.process=true" in shown["labels"]
    assert anna.rows("workers", "show", "box")[0] == {"field": "worker", "value": "box"}
    for words in (["box", "--json"], ["--json", "box"], ["show", "box", "--json"]):
        worker = json.loads(anna.out("workers", *words))["worker"]
        assert (worker["name"], worker["availability"]) == ("box", "free")
        assert worker["metrics"]["memory_free"] > 0


def test_workers_names_the_unknown_machine_or_command(anna: Person) -> None:
    assert "nobody" in anna.err("workers", "nobody", code=6)
    assert "Did you mean 'pause'?" in anna.err("workers", "puase", "box", code=2)
    assert "there is no worker" in anna.err("workers", "pauline", code=6)


def test_the_ledger_is_shown_as_a_table_as_csv_and_as_json(anna: Person, curve: str) -> None:
    [row] = [row for row in anna.rows("ledger") if row["person"] == "anna"]
    assert int(row["used_attempts"]) > 0
    names, *lines = csv.reader(anna.out("ledger", "--by", "both", "--csv").splitlines())
    assert names[:2] == ["person", "machine"]
    assert {tuple(line[:2]) for line in lines} >= {("anna", "box")}
    ledger = json.loads(anna.out("ledger", "--by", "machine", "--json"))["ledger"]
    assert [item["machine"] for item in ledger["items"]] == ["box"]
    assert anna.rows("ledger", "--since", "9000-01-01") == []
    assert "write a day as YEAR-MONTH-DAY" in anna.err("ledger", "--since", "yesterday", code=2)
