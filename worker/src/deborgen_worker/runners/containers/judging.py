"""Decide how a program in a container ended, not by its exit code alone. Pure."""

from __future__ import annotations

from deborgen_shared.jobfile.units import format_size
from deborgen_worker.attempts import Exit
from deborgen_worker.runners.containers.engine import ContainerInfo
from deborgen_worker.runners.containers.usage import Usage
from deborgen_worker.runners.protocol import Launch

KILLED = 137


def judge(
    launch: Launch,
    seen: ContainerInfo,
    usage: Usage,
    *,
    signalled: bool = False,
    watched: float = 0.0,
    marked: bool = False,
) -> Exit:
    """How a container ended, after its engine has said that it ended.

    `signalled` says that the worker sent it a signal, `watched` for how many seconds the worker has watched it, and
    `marked` that some container ran out of memory in that time.
    """
    seconds = watched
    if seen.started_at and seen.finished_at >= seen.started_at:  # it may have ended long before anyone asked
        seconds = seen.finished_at - seen.started_at
    shortage = seen.code != 0 and not signalled and usage.oom_kills > 0 and not reached_limit(launch, usage)
    oom = seen.code != 0 and not signalled and not shortage and out_of_memory(launch, seen, usage, marked)
    reason = ""
    if oom:
        reason = f"the program needed more memory than the {format_size(launch.memory)} that the job has"
    elif seen.code == KILLED and not signalled:
        reason = "killed by SIGKILL"
    return Exit(
        code=seen.code if seen.code >= 0 else None,
        error=seen.error if seen.code != 0 else "",
        out_of_memory=oom,
        shortage=shortage,
        reason=reason,
        seconds=seconds,
        cpu_seconds=usage.cpu_seconds,
        peak_memory=usage.peak_memory,
        image=f"{launch.image}@{seen.image}" if seen.image and not launch.image_id else launch.image,
    )


def out_of_memory(launch: Launch, seen: ContainerInfo, usage: Usage, marked: bool) -> bool:
    """Whether the container ran out of memory. There are several signs, because each is missing on some systems."""
    if seen.oom_killed or usage.oom_kills:
        return True
    if seen.code != KILLED:
        return False
    if usage.peak_memory is None:
        return marked
    return near_limit(launch, usage)


def reached_limit(launch: Launch, usage: Usage) -> bool:
    """Whether the container reached its own limit. Some kernels do not count that, but all know the peak."""
    return usage.limit_hits != 0 or near_limit(launch, usage)


def near_limit(launch: Launch, usage: Usage) -> bool:
    return bool(launch.memory) and usage.peak_memory is not None and usage.peak_memory >= launch.memory * 0.99


def program_fault(launch: Launch, message: str) -> Exit | None:
    """The end of a program that cannot be executed, with a shell's exit code; None if the program is not to blame."""
    words, program = message.lower(), launch.argv[0]
    if not any(sign in words for sign in ("executable file", f'exec: "{program.lower()}": ', f"`{program.lower()}`")):
        return None
    code = 126 if "permission denied" in words else 127
    return Exit(code=code, reason=f"cannot execute {program!r}: {message}"[:500], seconds=0.0)
