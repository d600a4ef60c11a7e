"""`deborgen up`: it is found without configuration, runs once, ends cleanly, and its jobs outlive it."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.person import DEBORGEN, Person
from support.waiting import wait_until

from .screen import Terminal


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Person]:
    person = Person(tmp_path / "home")
    yield person
    person.run("down")


def runtime(person: Person) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((person.home / "state/deborgen/up.json").read_text())
    return found


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def up(person: Person, *words: str) -> str:
    return person.err("up", "--detach", "--runner", "subprocess", *words, code=0)


def test_it_is_found_without_configuration_and_ends_with_down(home: Person) -> None:
    said = up(home)
    state = runtime(home)
    assert f"deborgen is up at {state['url']}" in said
    assert "runner: subprocess" in said
    assert f"see it: {state['url']}/sign-in?code=" in said
    assert stat.S_IMODE((home.home / "state/deborgen/up.json").stat().st_mode) == 0o600
    assert home.out("run", "--", "echo", "hello") == "hello\n"
    assert home.rows("list")[0]["state"] == "succeeded"
    assert "already up" in home.err("up", code=7)
    assert home.out("run", "--", "echo", "still") == "still\n", "a second up harms nothing"
    home.out("down")
    assert not any(is_alive(pid) for pid in (state["pid"], *state["children"].values()))
    assert not (home.home / "state/deborgen/up.json").exists()
    assert "no coordinator is known" in home.err("list", code=5)
    assert "deborgen was not up" in home.err("down", code=0)


def test_the_token_is_on_no_command_line_and_in_no_log(home: Person) -> None:
    up(home)
    state = runtime(home)
    for pid in (state["pid"], *state["children"].values()):
        assert state["token"] not in Path(f"/proc/{pid}/cmdline").read_text()
    for log in (home.home / "data/deborgen/up").glob("*.log"):
        assert state["token"] not in log.read_text()


def test_a_run_and_its_results_outlive_a_restart(home: Person) -> None:
    up(home)
    run = home.submit("run: |\n  printf '{\"y\": 7}' > $DEBORGEN_RESULT\n", "--wait")
    go = home.folder / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done; echo done"
    queued = home.submit(f"run: {wait}\nsweep: {{grid: {{x: {{from: 1, to: 6}}}}}}\n")
    wait_until(lambda: "running" in home.out("show", queued), what="a job to run")
    home.out("down")
    up(home)
    go.touch()
    assert home.rows("results", run)[0]["y"] == "7"
    home.out("wait", queued, "--timeout", "45s")
    assert {row["state"] for row in home.rows("show", queued)} == {"succeeded"}


def test_ctrl_c_ends_it_and_its_children(home: Person) -> None:
    terminal = Terminal([str(DEBORGEN), "up", "--runner", "subprocess"], home.folder, home.environment)
    try:
        terminal.until(lambda screen: "stop it: Ctrl-C" in screen.text)
        state = runtime(home)
        terminal.type("\x03")
        assert terminal.end() == 0
        assert "Runs and results are kept" in terminal.screen.text
        assert not any(is_alive(pid) for pid in state["children"].values())
        assert terminal.is_clean()
    finally:
        terminal.close()


@pytest.mark.parametrize("child", ["coordinator", "worker"])
def test_a_process_that_was_killed_is_reported_and_started_again(home: Person, child: str) -> None:
    process = home.start("up", "--runner", "subprocess", stderr=subprocess.PIPE)
    wait_until(lambda: (home.home / "state/deborgen/up.json").exists(), what="the pool to be up")
    before = runtime(home)["children"]
    os.kill(before[child], signal.SIGKILL)
    wait_until(lambda: runtime(home)["children"][child] != before[child], what="the process to be started again")
    assert home.out("run", "--", "echo", "again") == "again\n"
    home.out("down")
    said = process.communicate(timeout=30)[1].decode()
    assert f"the {child} was killed (SIGKILL); starting it again" in said
    assert not any(is_alive(pid) for pid in before.values())


def test_when_one_process_ends_by_itself_up_says_so_and_ends_the_other(home: Person) -> None:
    process = home.start("up", "--runner", "subprocess", stderr=subprocess.PIPE)
    wait_until(lambda: (home.home / "state/deborgen/up.json").exists(), what="the pool to be up")
    state = runtime(home)
    os.kill(state["children"]["worker"], signal.SIGTERM)
    said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 1
    assert "the worker ended" in said
    assert not any(is_alive(pid) for pid in state["children"].values())
    assert "no coordinator is known" in home.err("list", code=5)


def test_an_unreadable_profile_does_not_end_up(home: Person) -> None:
    """Seen to fail when up ended with an error, after it had said that it is up."""
    profile = home.home / "config/deborgen/profile.json"
    profile.parent.mkdir(parents=True)
    profile.write_text("not JSON")
    said = home.err("up", "--detach", "--runner", "subprocess", code=0)
    url = runtime(home)["url"]
    assert f"note:   {profile} cannot be read: " in said
    assert f"to use this one: export DEBORGEN_URL={url}" in said
    home.environment["DEBORGEN_URL"] = url
    assert home.out("run", "--", "echo", "it is up") == "it is up\n"


def test_jobs_may_use_the_internet_if_up_says_so(home: Person) -> None:
    up(home)
    run = home.submit("run: echo out\nnetwork: internet\n")
    assert "deborgen up --network internet" in home.out("why", run)
    home.out("down")
    up(home, "--network", "internet")
    home.out("wait", run, "--timeout", "45s")


def test_after_a_killed_up_the_next_up_works(home: Person) -> None:
    up(home)
    run = home.submit("run: echo kept\n", "--wait")
    state = runtime(home)
    os.kill(state["pid"], signal.SIGKILL)
    wait_until(lambda: not is_alive(state["pid"]), what="the pool to be gone")
    assert "no coordinator is known" in home.err("list", code=5)
    up(home)
    assert home.out("logs", run) == "kept\n"
    assert not any(is_alive(pid) for pid in state["children"].values()), "nothing of the first one is left"


def test_another_port_is_used_when_the_usual_one_is_taken(home: Person, tmp_path: Path) -> None:
    other = Person(tmp_path / "other")
    up(home)
    try:
        up(other, "--data-dir", str(tmp_path / "elsewhere"))
        assert runtime(home)["url"] != runtime(other)["url"]
        assert runtime(other)["data_dir"] == str(tmp_path / "elsewhere")
        other.submit("run: 'true'\n", "--wait")
        assert home.rows("list") == []
    finally:
        other.run("down")


def test_a_profile_takes_precedence_over_up_and_up_says_so(home: Person) -> None:
    folder = home.home / "config/deborgen"
    folder.mkdir(parents=True)
    (folder / "profile.json").write_text('{"url": "http://pool.example"}')
    said = up(home)
    assert f"export DEBORGEN_URL={runtime(home)['url']}" in said
    home.environment["DEBORGEN_URL"] = runtime(home)["url"]
    assert home.rows("workers")[0]["state"] == "open"


def test_a_port_that_another_program_takes_first_is_not_used(
    tmp_path: Path, home: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another coordinator has taken the port that was free a moment ago."""
    from deborgen import local_pool
    from support.coordinator import CoordinatorProcess

    (tmp_path / "other").mkdir()
    with CoordinatorProcess(tmp_path / "other") as other:
        taken = int(other.url.rpartition(":")[2])
        offered = iter([taken, taken])
        real = local_pool.free_port
        monkeypatch.setattr(local_pool, "free_port", lambda: next(offered, None) or real())
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        ours = local_pool.LocalPool(local_pool.PoolPlan(tmp_path / "data", None, "subprocess"))
        try:
            state = ours.start()
            assert state.url not in ("", other.url)
        finally:
            ours.stop()
