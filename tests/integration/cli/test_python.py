"""`import deborgen`: using the pool from Python."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import deborgen
from support.coordinator import CoordinatorProcess
from support.person import Person
from support.pool import Pool
from support.waiting import wait_until

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def client(pool: Pool) -> deborgen.Client:
    return deborgen.Client(pool.coordinator.url, pool.coordinator.token("submitter", "anna"))


def test_the_client_is_found_as_the_command_finds_it(anna: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DEBORGEN_URL", "DEBORGEN_TOKEN"):
        monkeypatch.setenv(name, anna.environment[name])
    assert deborgen.Client().me().name == "anna"


def test_a_file_is_submitted_with_parameters(client: deborgen.Client, tmp_path: Path) -> None:
    job = tmp_path / "job.yml"
    job.write_text("run: echo ${{ seed }}\nsweep: {grid: {seed: [0]}}\n")
    run = client.submit(job, params={"seed": range(3)}).wait(timeout=60)
    assert (run.state, run.total, run.counts["succeeded"]) == ("succeeded", 3, 3)
    assert list(run.logs().values()) == ["0\n", "1\n", "2\n"]


def test_a_dict_is_submitted_with_files(client: deborgen.Client, tmp_path: Path) -> None:
    (tmp_path / "input.txt").write_text("data\n")
    job = {"run": "tr a-z A-Z < input.txt | tee out.txt", "files": ["input.txt"], "artifacts": ["out.txt"]}
    run = client.submit(job, base=tmp_path).wait(timeout=60, check=True)
    assert run.pull(tmp_path / "got") == [tmp_path / "got/out.txt"]
    assert (tmp_path / "got/out.txt").read_text() == "DATA\n"
    assert client.job(str(run.id)).logs() == "DATA\n"


def test_a_wrong_dict_raises_all_its_problems(client: deborgen.Client) -> None:
    with pytest.raises(deborgen.InvalidJob) as refusal:
        client.submit({"run": "ls", "memroy": 1, "timeout": 5})
    assert len(refusal.value.details["problems"]) == 2
    assert "unknown key 'memroy' (known keys: name, run, " in str(refusal.value), "the hints belong to the text"
    assert "'timeout' is not a duration (write 5s, 5m or 5h" in str(refusal.value)


def test_map_quotes_the_values(client: deborgen.Client) -> None:
    nasty = "two words; $HOME 'quoted' \"too\" {brace}"
    run = client.map("printf '%s|' {text} {{literal}}", [{"text": nasty}], name="quoting").wait(timeout=60)
    assert run.name == "quoting"
    assert next(run.jobs()).logs() == f"{nasty}|{{literal}}|"


def test_as_completed_yields_each_job_once(client: deborgen.Client) -> None:
    run = client.map("sleep {x}; exit {code}", [{"x": 0.1 * x, "code": x % 2} for x in range(5)])
    seen = [(job.id, job.state) for job in run.as_completed()]
    assert sorted(seen) == [(f"{run.id}.{x + 1}", "failed" if x % 2 else "succeeded") for x in range(5)]
    assert [job.id for job in run.as_completed()] == [f"{run.id}.{x + 1}" for x in range(5)]


def test_as_completed_yields_the_jobs_that_a_loop_adds(client: deborgen.Client) -> None:
    run = client.submit({"run": "true", "repeat": {"until": "test $DEBORGEN_ROUND = 2", "most": 2}})
    seen = [(job.id, job.phase, job.round, job.verified) for job in run.as_completed()]
    assert seen == [
        (f"{run.id}.1", "work", 1, None), (f"{run.id}.2", "verify", 1, False),
        (f"{run.id}.3", "work", 2, None), (f"{run.id}.4", "verify", 2, True),
    ]  # fmt: skip
    again = run.retry("all", rounds="last").wait(timeout=60, check=True)
    assert [(job.phase, job.round) for job in again.jobs()] == [("verify", 2)]
    [row] = again.results()
    assert (row["job"], row["round"], row["verified"]) == (f"{run.id}.3", 2, True)


def test_results_are_a_list_of_dicts(client: deborgen.Client) -> None:
    command = """x={x}; printf '{{"y": %s}}' $(( x * x )) > "$DEBORGEN_RESULT" """
    results = client.map(command, [{"x": 3}, {"x": 4}]).wait(timeout=60, check=True).results()
    assert [(row["x"], row["y"]) for row in results] == [(3, 9), (4, 16)]
    best = results.best("y", "max")
    assert best is not None
    assert best["x"] == 4
    assert isinstance(results, list)


def test_results_become_a_data_frame(client: deborgen.Client) -> None:
    command = """test {x} -ne 5 && printf '{{"y": %s, "half": 0.5, "word": "a b"}}' {x} > "$DEBORGEN_RESULT" """
    frame = client.map(command, [{"x": 3}, {"x": 4}, {"x": 5}]).wait(timeout=60).results().to_pandas()
    assert list(frame.columns) == ["job", "state", "x", "half", "word", "y", "seconds", "worker"]
    assert frame["state"].tolist() == ["succeeded", "succeeded", "failed"]
    assert frame.dtypes["x"] == "int64"
    assert frame["x"].tolist() == [3, 4, 5]
    assert frame.dtypes["y"] == "float64", "the job that failed has none"
    assert frame["y"].tolist()[:2] == [3.0, 4.0]
    assert frame["y"].isna().tolist() == [False, False, True]
    assert frame["word"].tolist()[:2] == ["a b", "a b"]
    assert (frame["seconds"] >= 0).all()
    assert frame["worker"].tolist() == ["box"] * 3


def test_a_failure_is_raised_on_request(client: deborgen.Client) -> None:
    """Seen to fail in release 0.1, whose message was only `the job of run 9 failed`."""
    run = client.submit({"run": "echo what it said last; exit 9"})
    assert run.wait(timeout=60).state == "failed"
    with pytest.raises(deborgen.JobsFailed, match=r"failed on box: exit code 9\n    what it said last$"):
        run.wait(check=True)
    new = run.retry()
    assert new.id != run.id
    assert new.data.retry_of == run.id
    with pytest.raises(deborgen.JobsFailed):
        new.wait(timeout=60, check=True)


def test_the_text_of_an_error_says_what_to_do(client: deborgen.Client) -> None:
    """Seen to fail in release 0.1, where the hint was not part of the text."""
    with pytest.raises(deborgen.DeborgenError) as wrong:
        client.run("tomorrow")
    assert str(wrong.value) == "'tomorrow' names neither a run nor a job (write for example 42, 42.7, last or last.7)"


@pytest.mark.parametrize("waits", ["for job in run.as_completed(): print(job.id, flush=True)", "run.wait()"])
def test_ctrl_c_in_a_script_ends_it_with_one_sentence(client: deborgen.Client, anna: Person, waits: str) -> None:
    """Seen to fail in release 0.1, which printed a traceback."""
    run, said, code = interrupted(client, anna, waits)
    assert said == f"\ninterrupted; run {run} continues. Watch it: deborgen watch {run}\n"
    assert code == 130


def test_a_script_may_catch_ctrl_c_itself(client: deborgen.Client, anna: Person) -> None:
    """Seen to fail when the interrupt became a SystemExit, which such a script does not catch."""
    loop = "for job in run.as_completed(): print(job.id, flush=True)"
    script = f"try:\n    {loop}\nexcept KeyboardInterrupt:\n    run.cancel()"
    run, _, code = interrupted(client, anna, script)
    assert (client.run(run).state, code) == ("canceled", 0)


def interrupted(client: deborgen.Client, anna: Person, script: str) -> tuple[int, str, int]:
    """Interrupt a script that waits for a run: the run, what the script said on stderr, and its exit code."""
    never = {"id": "never", "run": "ls", "requires": {"moon": "full"}}
    run = client.submit({"steps": [{"id": "first", "run": "true"}, never]})
    first = next(run.jobs()).wait(60)
    assert first.state == "succeeded"
    text = f"import deborgen\nrun = deborgen.Client().run({run.id})\nprint('ready', flush=True)\n{script}\n"
    with subprocess.Popen(
        [sys.executable, "-c", text], env=anna.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if "as_completed" in script:
            assert process.stdout.readline() == f"{run.id}.1\n"
        else:  # one connection asks and one listens: the script waits at the coordinator
            wait_until(lambda: sockets(process.pid) >= 2, what="the script to wait")
        wait_until(lambda: sleeps(process.pid), what="the script to wait for the next job")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    return run.id, said, process.returncode


def sockets(pid: int) -> int:
    """The number of open sockets of a process."""
    count = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            count += str(each.readlink()).startswith("socket")
    return count


def sleeps(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_a_wait_times_out_and_a_cancel_ends_the_run(client: deborgen.Client) -> None:
    run = client.submit({"run": "ls", "requires": {"moon": "full"}})
    with pytest.raises(deborgen.WaitRanOut):
        run.wait(timeout=0.3)
    assert run.cancel("enough") == {f"{run.id}.1": "canceled"}
    with pytest.raises(deborgen.JobsCanceled):
        run.wait(check=True)
    assert client.run("last").id == run.id


def test_many_waits_leave_no_stream_behind(tmp_path: Path) -> None:
    """The coordinator serves at most 2 streams of one person. A finished wait frees its stream immediately.

    Seen to fail when a finished wait does not hang up.
    """
    with CoordinatorProcess(tmp_path, max_streams=8) as coordinator:
        client = deborgen.Client(coordinator.url, coordinator.token("submitter", "anna"))
        run = client.submit({"run": "ls", "requires": {"moon": "full"}})
        client.connection.patience = 0
        for _ in range(10):
            with pytest.raises(deborgen.WaitRanOut):
                run.wait(timeout=0.2)

        def fail(sentence: str) -> None:
            raise AssertionError(sentence)

        assert next(client.events(follow=True, after=0, on_trouble=fail)).seq > 0


def test_the_notebook_runs_unchanged(anna: Person) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "notebook.py"], env=anna.environment, cwd=anna.folder, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].endswith("6 jobs")
    assert "the largest: 6 36" in lines
    assert "computed 1" in lines


def test_the_package_is_typed() -> None:
    assert (Path(deborgen.__file__).parent / "py.typed").exists()
    assert set(deborgen.__all__) <= set(dir(deborgen)) | {"Client", "Job", "Results", "Run"}
    for name in deborgen.__all__:
        assert getattr(deborgen, name)
