"""Translates the supervisor's report of a program's end."""

from __future__ import annotations

import contextlib
import signal

from deborgen_worker.attempts import Exit
from deborgen_worker.runners.supervision import Message


def exit_of(report: Message) -> Exit:
    reason = report.get("reason", "")
    with contextlib.suppress(ValueError, KeyError):
        reason = f"killed by {signal.Signals(report['signal']).name}"
    return Exit(
        code=report.get("code"),
        timed_out=report.get("timed_out", False),
        error=report.get("error", ""),
        shortage=report.get("shortage", False),
        reason=reason,
        seconds=report.get("seconds"),
        cpu_seconds=report.get("cpu"),
        peak_memory=report.get("rss"),
    )
