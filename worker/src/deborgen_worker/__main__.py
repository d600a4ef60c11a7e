"""`deborgen-worker`: the daemon, and its owner's commands."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deborgen_shared.terminal import inert, inert_lines
from deborgen_worker import __version__, control
from deborgen_worker.settings import TABLE, SettingsError, default_state_dir

if TYPE_CHECKING:
    from deborgen_worker.policy import PauseFile
    from deborgen_worker.runners.unattended import Unattended

#: A worker that does not answer for this many seconds has as many more to end, and is then killed.
HUNG_SECONDS = 10.0
#: Show at most this many characters of a job's name or a submitter's.
NAME_CHARACTERS = 100


def main() -> None:
    arguments = build_parser().parse_args()
    try:
        code = COMMANDS[arguments.command](arguments)
    except SettingsError as error:
        report(error.problems)
        code = 2
    except KeyboardInterrupt:
        code = 130
    with contextlib.suppress(OSError, ValueError):  # the terminal may be closed
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
        "stop": "give all jobs back and end the worker, also if it is dead or does not answer",
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
        if name == "stop":
            words = "let running jobs continue for a worker that is started within two minutes"
            each.add_argument("--keep-jobs", action="store_true", help=words)
    check = commands.add_parser("check-config", help="say everything that is wrong with a file of settings")
    check.add_argument("file", metavar="FILE", help="a file for `run --config`; worker.local.toml beside it counts too")
    return parser


def report(problems: Iterable[str]) -> None:
    for problem in problems:
        print(f"deborgen-worker: {inert_lines(problem)}", file=sys.stderr)


def run(arguments: argparse.Namespace) -> int:
    settings = TABLE.load(vars(arguments), os.environ, arguments.config)
    for needed in ("coordinator", "token_file"):
        if not getattr(settings, needed):
            raise SettingsError(f"--{needed.replace('_', '-')} is required")
    from deborgen_worker.console import Console
    from deborgen_worker.daemon import Daemon
    from deborgen_worker.exit import CannotRun
    from deborgen_worker.runners.protocol import CannotStart

    # A short job passes through several threads. With Python's default interval of 5 ms they would delay each other.
    sys.setswitchinterval(0.0005)
    try:
        return Daemon(settings, Console(json_for=settings.name if settings.log_format == "json" else "")).run()
    except CannotRun as error:
        print(f"deborgen-worker: {inert_lines(str(error))}", file=sys.stderr)
        return error.code
    except (CannotStart, ValueError, OSError) as error:
        print(f"deborgen-worker: {inert_lines(str(error))}", file=sys.stderr)
        return 1


def check_config(arguments: argparse.Namespace) -> int:
    """Exit with 3 if `run` would refuse the file, and name every problem."""
    problems = TABLE.check_file(arguments.file)
    report(problems)
    return 3 if problems else 0


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


def status(arguments: argparse.Namespace) -> int:
    answer = ask(arguments, {"command": "status"})
    if answer is None:
        return status_without_worker(state_of(arguments), json_wanted=arguments.json)
    if arguments.json:
        print(json.dumps(answer, indent=2))
        return 0
    print(inert(f"{answer['name']}: {answer['headline']}"))
    offered, free = answer["offered"], answer["free"]
    memory = f"{free['memory'] / 2**30:.1f} of {offered['memory'] / 2**30:.1f} GiB"
    print(f"free: {free['cpus']:g} of {offered['cpus']:g} cpus, {memory} of memory")
    for each in answer["attempts"]:
        whose = f"{shown(each['name'])} for {shown(each['submitter'])}"
        print(f"  {each['attempt']:<12} {each['stage']:<10} {each['seconds']:>8.1f} s  {whose}")
    if answer["unsent"]:
        print(f"{answer['unsent']} results not sent yet")
    return 0


def status_without_worker(state: Path, *, json_wanted: bool) -> int:
    """Say what is left of a dead worker. The exit code says that no worker runs."""
    with unattended(state) as programs:
        found = programs.find()
        for name, (seconds, frozen) in found.items() if not json_wanted else ():
            how = f"{'is frozen' if frozen else 'keeps running'} without a worker"
            print(inert(f"  {name:<12} {how}" + (f", {seconds:.1f} s" if seconds is not None else "")))
    if found:
        left = f"{jobs_are(len(found))} without one; `deborgen-worker stop` ends {'it' if len(found) == 1 else 'them'}"
    else:
        left = "nothing of deborgen runs there; choose another directory with --state-dir"
    trouble = f"; containers could not be checked: {programs.trouble}" if programs.trouble else ""
    print(inert(f"no worker is running on {state}, and {left}{trouble}"), file=sys.stderr)
    return 7


def jobs_are(count: int) -> str:
    return f"{count} {'job runs' if count == 1 else 'jobs run'}"


def unattended(state: Path) -> Unattended:
    """The programs of a dead worker, as its own user."""
    from deborgen_worker.runners.unattended import Unattended
    from deborgen_worker.stopping import act_as_owner_of

    act_as_owner_of(state)
    return Unattended(state)


def shown(text: str) -> str:
    return inert(text)[:NAME_CHARACTERS] or "-"


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
        with unattended(state_of(arguments)) as programs:
            pauses(arguments).write(None if seconds is None else time.time() + seconds, arguments.now)
            kept = len(programs.freeze() if arguments.now else ())
        frozen = f"; {kept} running {'job is' if kept == 1 else 'jobs are'} frozen" if kept else ""
        answer = {"said": f"paused; no worker is running now, so the pause applies when one starts{frozen}"}
    print(inert(answer["said"]))
    return 0


def resume(arguments: argparse.Namespace) -> int:
    answer = ask(arguments, {"command": "resume"})
    if answer is None:
        with unattended(state_of(arguments)) as programs:
            pauses(arguments).clear()
            woken = sum(each.frozen for each in programs.wake().values())
        jobs = f"; {woken} frozen {'job continues' if woken == 1 else 'jobs continue'}" if woken else ""
        answer = {"said": f"the pause is lifted; no worker is running now{jobs}"}
    print(inert(answer["said"]))
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
        if details := "; ".join(receipt(each)):
            print(inert(f"    {details}"))
    if not items:
        print("no job has run here yet")
    return 0


def stop(arguments: argparse.Namespace) -> int:
    """End the worker and everything of it, whether it answers, hangs or is dead."""
    from deborgen_worker import stopping

    state = state_of(arguments)
    answer = ask(arguments, {"command": "stop", "keep_jobs": arguments.keep_jobs}, seconds=HUNG_SECONDS)
    if answer is None and arguments.keep_jobs:
        return status_without_worker(state, json_wanted=False)
    if answer is None:
        return end_abandoned(state, leaving=False)
    stopping.await_end(state, answer["seconds"])
    stopping.stop_unit(state)
    jobs = f"{answer['jobs']} {'job' if answer['jobs'] == 1 else 'jobs'}"
    if arguments.keep_jobs:
        print(f"the worker has ended; {jobs} left running for a worker that is started within two minutes")
    else:
        print(inert(f"{jobs} given back; the worker has ended; {stopping.end_abandoned(state)}"))
    return 0


def receipt(item: dict[str, Any]) -> Iterator[str]:
    """What a job used, in words. A release before this one did not write everything down."""
    from deborgen_shared.jobfile.units import format_size

    if (cpu := item.get("cpu_seconds")) is not None:
        yield f"{cpu:.1f} s of processor time"
    if memory := item.get("peak_memory"):
        yield f"{format_size(memory)} of memory"
    received, sent = item.get("bytes_received", 0), item.get("bytes_sent", 0)
    if received or sent:
        yield f"received {format_size(received)}, sent {format_size(sent)}"
    if image := item.get("image"):
        yield f"image {image}"
    if reason := item.get("reason"):
        yield reason


def leave(arguments: argparse.Namespace) -> int:
    answer = ask(arguments, {"command": "leave"}, seconds=120.0)
    if answer is None:
        return end_abandoned(state_of(arguments), leaving=True)
    print(inert(answer["said"]))
    return 0


def end_abandoned(state: Path, *, leaving: bool) -> int:
    """End what a dead worker has left."""
    from deborgen_worker import stopping

    if not state.exists():
        return status_without_worker(state, json_wanted=False)
    stopping.stop_unit(state)
    stopping.act_as_owner_of(state)
    stopping.await_end(state, HUNG_SECONDS)
    print(inert(f"no worker was running on {state}; {stopping.end_abandoned(state, leaving=leaving)}"))
    return 0


def pauses(arguments: argparse.Namespace) -> PauseFile:
    """The pause file of a worker that is not running."""
    from deborgen_worker.disk import Disk
    from deborgen_worker.policy import PauseFile

    state = state_of(arguments)
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    return PauseFile(state, Disk())


COMMANDS = {
    "run": run, "status": status, "pause": pause, "resume": resume, "history": history, "stop": stop, "leave": leave,
    "check-config": check_config,
}  # fmt: skip


if __name__ == "__main__":
    main()
