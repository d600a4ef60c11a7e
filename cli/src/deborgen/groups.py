"""Jobs that share a reason or a warning, as lines for people: `17 jobs: exit code 3 (first: 12.9)`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from deborgen import layout, output
from deborgen_shared.messages import JobGroup, RunOverview
from deborgen_shared.terminal import inert

#: Print at most this many groups of each kind.
MOST_GROUPS = 5


def described(overview: RunOverview) -> list[str]:
    """All groups of a run, one line each: why jobs failed, why they wait, and their warnings."""
    kinds = (("failed:", overview.failed), ("waiting:", overview.waiting), ("warning:", overview.warnings))
    return [f"{kind:<9}{text}" for kind, groups in kinds for text in lines(groups)]


def lines(groups: Sequence[JobGroup], width: int | None = None) -> list[str]:
    """One line per group, in which the reason is shortened to fit the width. Further groups are only counted."""
    shown = [line(group, width) for group in groups[:MOST_GROUPS]]
    if len(groups) > MOST_GROUPS:
        rest = groups[MOST_GROUPS:]
        jobs = output.counted(sum(group.jobs for group in rest), "job")
        shown.append(f"{jobs}: {len(rest)} other reasons")
    return shown


def line(group: JobGroup, width: int | None = None) -> str:
    before, after = f"{output.counted(group.jobs, 'job')}: ", f" (first: {group.first})"
    if group.next_try_at is not None:
        left = max(0.0, (group.next_try_at - datetime.now(UTC)).total_seconds())
        after = f"; next try in {output.seconds(left)}{after}"
    reason = inert(group.reason)
    if width is not None:
        reason = layout.shortened(reason, max(layout.SHORTEST_TEXT, width - len(before) - len(after)))
    return f"{before}{reason}{after}"
