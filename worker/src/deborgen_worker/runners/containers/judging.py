"""How a program in a container ended, judged by its state and not by its exit code alone. All of it is pure."""

from __future__ import annotations

from deborgen_shared.jobfile.units import format_size
from deborgen_worker.attempts import Exit
from deborgen_worker.runners.containers.engine import Seen
from deborgen_worker.runners.containers.usage import Usage
from deborgen_worker.runners.protocol import Launch

KILLED = 137


def judge(
    launch: Launch, seen: Seen, usage: Usage, *, signalled: bool = False, watched: float = 0.0, marked: bool = False
) -> Exit:
    """The end of a container that its engine calls ended.

    `signalled` says that the worker sent it a signal, `watched` for how many seconds the worker knows it, and `marked`
    that a container ran out of memory in that time.
    """
    seconds = watched
    if seen.started_at and seen.finished_at >= seen.started_at:  # it may have ended long before it was asked about
        seconds = seen.finished_at - seen.started_at
    oom = seen.code != 0 and not signalled and out_of_memory(launch, seen, usage, marked)
    reason = ""
    if oom:
        reason = f"the program wanted more memory than the {format_size(launch.memory)} that the job has"
    elif seen.code == KILLED and not signalled:
        reason = "killed by SIGKILL"
    return Exit(
        code=seen.code if seen.code >= 0 else None,
        error=seen.error if seen.code != 0 else "",
        out_of_memory=oom,
        reason=reason,
        seconds=seconds,
        cpu_seconds=usage.cpu_seconds,
        peak_memory=usage.peak_memory,
        image=f"{launch.image}@{seen.image}" if seen.image else launch.image,
    )


def out_of_memory(launch: Launch, seen: Seen, usage: Usage, marked: bool) -> bool:
    """Several signs together, because each of them is missing somewhere."""
    if seen.oom_killed or usage.oom_kills:
        return True
    if seen.code != KILLED:
        return False
    if usage.peak_memory is None:
        return marked
    return bool(launch.memory) and usage.peak_memory >= launch.memory * 0.99


def fault_of_the_program(launch: Launch, message: str) -> Exit | None:
    """A start that failed because of the program ends as a shell would end it. None: the machine failed."""
    words, program = message.lower(), launch.argv[0]
    if not any(sign in words for sign in ("executable file", f'exec: "{program.lower()}": ', f"`{program.lower()}`")):
        return None
    code = 126 if "permission denied" in words else 127
    return Exit(code=code, reason=f"cannot execute {program!r}: {message}"[:500], seconds=0.0)
