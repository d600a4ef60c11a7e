"""`deborgen-worker`: the daemon, and its owner's commands."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deborgen_worker import __version__, control
from deborgen_worker.console import printable
from deborgen_worker.settings import TABLE, SettingsError, default_state_dir

if TYPE_CHECKING:
    from deborgen_worker.policy import PauseFile

#: Show at most this many characters of a job's name or a submitter's.
NAME_CHARACTERS = 100


def main() -> None:
    arguments = build_parser().parse_args()
    try:
        code = COMMANDS[arguments.command](arguments)
    except SettingsError as error:
        print(f"deborgen-worker: {error}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        code = 130
    sys.stdout.flush()
    sys.stderr.flush()
    # Do not wait for threads that are blocked on the network.
    os._exit(code)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="deborgen-worker", description="Lends this machine to a deborgen pool.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    TABLE.add_flags(commands.add_parser("run", help="take jobs from the coordinator and run them"))
    for name, words in {
        "status": "show what this worker is doing",
        "pause": "stop taking new jobs, for a while or until `resume`",
        "resume": "take new jobs again",
        "history": "list the jobs that ran here, for whom, and for how long",
        "leave": "give all jobs back and leave the pool",
    }.items():
        each = commands.add_parser(name, help=words)
        each.add_argument("--state-dir", default=None, help="the worker's state directory")
        if name in {"status", "history"}:
            each.add_argument("--json", action="store_true", help="print JSON")
        if name == "history":
            each.add_argument("--limit", type=int, default=50, help="show at most N of the newest jobs", metavar="N")
        if name == "pause":
            each.add_argument("duration", nargs="?", help="for example 2h; without it, until `resume`")
            each.add_argument("--now", action="store_true", help="also freeze the running jobs")
    return parser


def run(arguments: argparse.Namespace) -> int:
    settings = TABLE.load(vars(arguments), os.environ, arguments.config)
    for needed in ("coordinator", "token_file"):
        if not getattr(settings, needed):
            raise SettingsError(f"--{needed.replace('_', '-')} is required")
    from deborgen_worker.console import Console
    from deborgen_worker.daemon import Daemon
    from deborgen_worker.exit import CannotRun
    from deborgen_worker.runners.protocol import CannotStart

    # A short job passes through several threads. With the default interval of 5 ms they would wait for each other.
    sys.setswitchinterval(0.0005)
    try:
        return Daemon(settings, Console()).run()
    except CannotRun as error:
        print(f"deborgen-worker: {error}", file=sys.stderr)
        return error.code
    except (CannotStart, ValueError, OSError) as error:
        print(f"deborgen-worker: {error}", file=sys.stderr)
        return 1


def state_of(arguments: argparse.Namespace) -> Path:
    given = arguments.state_dir or os.environ.get("DEBORGEN_WORKER_STATE_DIR") or default_state_dir()
    return Path(given).expanduser().absolute()


def ask(arguments: argparse.Namespace, message: dict[str, Any], seconds: float = 30.0) -> dict[str, Any] | None:
    """The worker's answer, or None if no worker is running on this state directory."""
    try:
        answer = control.ask(state_of(arguments), message, seconds)
    except control.NotRunningError:
        return None
    if "error" in answer:
        raise SettingsError(str(answer["error"]))
    return answer


def not_running(arguments: argparse.Namespace) -> int:
    print(f"no worker is running on {state_of(arguments)}", file=sys.stderr)
    return 7


def status(arguments: argparse.Namespace) -> int:
    answer = ask(arguments, {"command": "status"})
    if answer is None:
        found = control.ask_supervisor(state_of(arguments), "status") if not arguments.json else {}
        for name, (seconds, frozen) in found.get("programs", {}).items():
            print(f"  {name:<12} {'is frozen' if frozen else 'keeps running'} without a worker, {seconds:.1f} s")
        return not_running(arguments)
    if arguments.json:
        print(json.dumps(answer, indent=2))
        return 0
    print(f"{answer['name']}: {answer['headline']}")
    offered, free = answer["offered"], answer["free"]
    memory = f"{free['memory'] / 2**30:.1f} of {offered['memory'] / 2**30:.1f} GiB"
    print(f"free: {free['cpus']:g} of {offered['cpus']:g} cpus, {memory} of memory")
    for each in answer["attempts"]:
        whose = f"{shown(each['name'])} for {shown(each['submitter'])}"
        print(f"  {each['attempt']:<12} {each['stage']:<10} {each['seconds']:>8.1f} s  {whose}")
    if answer["unsent"]:
        print(f"{answer['unsent']} results not sent yet")
    return 0


def shown(text: str) -> str:
    return printable(text)[:NAME_CHARACTERS] or "-"


def pause(arguments: argparse.Namespace) -> int:
    from deborgen_shared.jobfile.units import parse_duration

    seconds = None
    if arguments.duration is not None:
        try:
            seconds = parse_duration(arguments.duration)
        except ValueError as error:
            raise SettingsError(f"{arguments.duration!r} is not a duration: {error}") from None
    answer = ask(arguments, {"command": "pause", "seconds": seconds, "now": arguments.now})
    if answer is None:
        pauses(arguments).write(None if seconds is None else time.time() + seconds, arguments.now)
        kept = len(control.ask_supervisor(state_of(arguments), "pause").get("programs", ())) if arguments.now else 0
        frozen = f"; {kept} running {'job is' if kept == 1 else 'jobs are'} frozen" if kept else ""
        answer = {"said": f"paused; no worker is running now, the pause applies when one starts{frozen}"}
    print(answer["said"])
    return 0


def resume(arguments: argparse.Namespace) -> int:
    answer = ask(arguments, {"command": "resume"})
    if answer is None:
        pauses(arguments).clear()
        control.ask_supervisor(state_of(arguments), "resume")
        answer = {"said": "the pause is lifted; no worker is running now"}
    print(answer["said"])
    return 0


def history(arguments: argparse.Namespace) -> int:
    from deborgen_worker.spool import read_history

    items = read_history(state_of(arguments), arguments.limit)
    if arguments.json:
        print(json.dumps(items, indent=2))
        return 0
    for each in items:
        whose = f"{shown(str(each['name']))} for {shown(str(each['submitter']))}"
        how = each["outcome"] or each["answer"]
        print(f"{each['ended_at']}  {each['attempt']:<12} {how:<13} {each['seconds']:>9.1f} s  {whose}")
    if not items:
        print("no job has run here yet")
    return 0


def leave(arguments: argparse.Namespace) -> int:
    answer = ask(arguments, {"command": "leave"}, seconds=120.0)
    if answer is None:
        return not_running(arguments)
    print(answer["said"])
    return 0


def pauses(arguments: argparse.Namespace) -> PauseFile:
    """The pause file of a worker that is not running."""
    from deborgen_worker.disk import Disk
    from deborgen_worker.policy import PauseFile

    state = state_of(arguments)
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    return PauseFile(state, Disk())


COMMANDS = {"run": run, "status": status, "pause": pause, "resume": resume, "history": history, "leave": leave}


if __name__ == "__main__":
    main()
