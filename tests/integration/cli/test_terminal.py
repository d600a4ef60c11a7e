"""On a terminal: the live view draws, updates, and leaves the terminal as it was; no job can control the terminal."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

from support.person import Person
from support.pool import Pool
from support.waiting import wait_until

from .screen import Open

SWEEP = """
name: waves
run: |
  echo wave ${{ x }}
  while [ ! -e "$GATE"/${{ x }} ]; do sleep 0.05; done
  if [ ${{ x }} = 3 ]; then printf 'about to \\033[2Jfail\\n'; exit 7; fi
env: {GATE: "GATE_FOLDER"}
sweep: {grid: {x: {from: 1, to: 4}}}
"""


class Gates:
    """Jobs that wait until their gate is opened."""

    def __init__(self, person: Person, name: str) -> None:
        self.folder = person.folder / f"gates-{name}"
        self.folder.mkdir()
        person.write("waves.yml", SWEEP.replace("GATE_FOLDER", str(self.folder)))

    def open(self, *names: int) -> None:
        for name in names:
            (self.folder / str(name)).touch()


def test_the_live_view_draws_updates_and_leaves_the_terminal_clean(anna: Person, terminal: Open) -> None:
    gates = Gates(anna, "live")
    watching = terminal("submit", "waves.yml", "--watch")
    watching.until(lambda screen: "0/4" in screen.text and "2 running" in screen.text)
    watching.until(lambda screen: "x=1" in screen.text and "on box" in screen.text)
    assert not watching.screen.cursor_shown
    updates = watching.screen.updates
    gates.open(1, 2)
    watching.until(lambda screen: "2/4" in screen.text and "2 succeeded" in screen.text)
    assert watching.screen.updates > updates
    gates.open(3)
    watching.until(lambda screen: "exit code 7" in screen.text)
    shown = watching.until(lambda screen: "about to" in screen.text).text
    assert "about to ␛[2Jfail" in shown, "the last lines of the failed job's log, made inert"
    assert "next: deborgen logs" in shown
    gates.open(4)
    assert watching.end() == 14
    assert watching.is_clean()
    last = watching.screen.text
    assert "4/4 failed after" in last
    assert last.count("waves ━") == 1, "one picture stays, not one for every update"
    assert "\x1b[?1049h" not in watching.raw.decode()


def test_ctrl_c_detaches_and_says_how_to_cancel(anna: Person, terminal: Open) -> None:
    gates = Gates(anna, "detach")
    watching = terminal("submit", "waves.yml", "--watch")
    watching.until(lambda screen: "2 running" in screen.text)
    run = watching.screen.lines[0].split()[1].rstrip(":")
    watching.type("\x03")
    assert watching.end() == 130
    assert watching.is_clean()
    assert f"detached; run {run} continues" in watching.screen.text
    assert f"deborgen cancel {run}" in watching.screen.text
    gates.open(1, 2, 3, 4)
    anna.out("wait", run, code=14)


def test_ctrl_c_detaches_from_logs_too(anna: Person, terminal: Open) -> None:
    gates = Gates(anna, "logs")
    run = anna.out("submit", "waves.yml").strip()
    following = terminal("logs", "-f", f"{run}.1")
    following.until(lambda screen: "wave 1" in screen.text)
    following.type("\x03")
    assert following.end() == 130
    assert f"detached; job {run}.1 continues" in following.screen.text
    assert following.is_clean()
    gates.open(1, 2, 3, 4)
    anna.out("wait", run, code=14)


def test_ctrl_c_detaches_from_many_logs_immediately(anna: Person, terminal: Open) -> None:
    gates = Gates(anna, "many")
    following = terminal("submit", "waves.yml", "--follow")
    following.until(lambda screen: "wave 1" in screen.text and "wave 2" in screen.text)
    run = following.screen.lines[0].split()[1].rstrip(":")
    following.type("\x03")
    assert following.end(10) == 130, "it does not wait for logs that are silent"
    assert f"detached; run {run} continues" in following.screen.text
    gates.open(1, 2, 3, 4)
    anna.out("wait", run, code=14)


def test_fault_37_what_a_job_writes_cannot_steer_the_terminal(anna: Person, terminal: Open) -> None:
    """Seen to fail when control characters go to the terminal as they are."""
    hostile = r"\033[2J\033]0;owned\007\033[31mred\xc2\x9b2J\xe2\x80\xaeback\r\nnext\n"
    run = anna.submit(f"name: \"evil\\e[2Jname\"\nrun: printf '{hostile}'\n", "--wait")
    for words in (["logs", run], ["show", run], ["list"], ["watch", run], ["logs", "-f", run]):
        # The screen refuses every control sequence except those of our own live view.
        shown = terminal(*words)
        assert shown.end() == 0
        assert b"owned\x07" not in shown.raw
        assert b"\x1b[2J" not in shown.raw
        assert shown.is_clean()
    assert anna.run("logs", run).stdout == (
        b"\x1b[2J\x1b]0;owned\x07\x1b[31mred\xc2\x9b2J\xe2\x80\xaeback\r\nnext\n"
    ), "in a pipe the bytes are as they were written"


def test_on_a_terminal_a_list_is_a_table_and_in_colour_unless_no_color(anna: Person, terminal: Open) -> None:
    anna.submit("run: 'true'\n", "--wait")
    shown = terminal("list")
    assert shown.end() == 0
    assert shown.screen.text.splitlines()[0].split()[:3] == ["RUN", "NAME", "STATE"]
    assert b"\x1b[32m" in shown.raw
    plain = terminal("list", NO_COLOR="1")
    assert plain.end() == 0
    assert b"\x1b[3" not in plain.raw


def test_a_narrow_terminal_gets_short_values_and_a_pipe_full_ones(anna: Person, terminal: Open) -> None:
    name = "long-" * 30 + "name"
    anna.submit(f"name: {name}\nrun: 'true'\n", "--wait")
    shown = terminal("list", COLUMNS="80")
    assert shown.end() == 0
    assert name not in shown.screen.text
    assert "…" in shown.screen.text
    assert name in anna.out("list")


def test_login_asks_for_the_token_without_showing_it(anna: Person, terminal: Open) -> None:
    token = anna.environment["DEBORGEN_TOKEN"]
    asking = terminal("login", anna.environment["DEBORGEN_URL"])
    asking.until(lambda screen: "Token" in screen.text)
    asking.type(token + "\n")
    assert asking.end() == 0
    assert "Logged in" in asking.screen.text
    assert token not in asking.screen.text
    assert asking.is_clean()


def test_an_upload_has_a_progress_bar_that_disappears(anna: Person, terminal: Open) -> None:
    (anna.folder / "large.bin").write_bytes(random.Random(2).randbytes(8_000_000))
    anna.write("large.yml", "run: wc -c < large.bin\nfiles: [large.bin]\nartifacts: [large.bin]\n")
    sending = terminal("submit", "large.yml", "--wait")
    assert sending.end() == 0
    assert b"uploading" in sending.raw
    assert "uploading" not in sending.screen.text
    assert sending.is_clean()
    fetching = terminal("artifacts", "pull", "last")
    assert fetching.end() == 0
    assert b"fetching" in fetching.raw
    assert fetching.is_clean()


def sockets(pid: int) -> int:
    """The number of open sockets of a process."""
    count = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            count += str(each.readlink()).startswith("socket")
    return count


def test_an_unreachable_coordinator_is_waited_for(pool: Pool, anna: Person, terminal: Open) -> None:
    gates = Gates(anna, "away")
    watching = terminal("submit", "waves.yml", "--watch")
    watching.until(lambda screen: "2 running" in screen.text)
    run = watching.screen.lines[0].split()[1].rstrip(":")
    waiting = anna.start("wait", "-q", run)
    # One connection asks and one listens: the command has found its run and is waiting.
    wait_until(lambda: sockets(waiting.pid) >= 2, what="the command to wait at the coordinator")
    pool.coordinator.kill()
    watching.until(lambda screen: "trying again" in screen.text, 60)
    gates.open(1, 2, 3, 4)
    pool.coordinator.start()
    assert watching.end(90) == 14
    assert "4/4 failed after" in watching.screen.text
    assert "trying again" not in watching.screen.text
    assert watching.is_clean()
    assert waiting.wait(60) == 14
