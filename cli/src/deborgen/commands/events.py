"""deborgen events"""

from __future__ import annotations

from typing import Any

import click
import msgspec

from deborgen import output, refs
from deborgen.cli import App, json_option, verb
from deborgen_shared.messages import Event
from deborgen_shared.program_events import JOB_EVENT
from deborgen_shared.terminal import inert

COLUMNS = ["seq", "time", "type", "run", "job", "attempt", "worker", "actor", "old_state", "new_state", "data"]


@verb(name="events")
@click.argument("ref", metavar="[RUN|JOB]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Print new events as they happen, until Ctrl-C.")
@click.option("--worker", metavar="NAME", help="Only events of this worker.")
@click.option("--after", metavar="SEQ", type=click.IntRange(0), help="Start after the event with this number.")
@click.option(
    "-n", "--limit", default=100, show_default=True, type=click.IntRange(1), metavar="N", help="Show at most N events."
)
@json_option
def command(
    app: App, ref: str | None, follow: bool, worker: str | None, after: int | None, limit: int, as_json: bool
) -> None:
    """Print the history: who did what, and when.

    By default the newest events are shown; --after SEQ starts after event SEQ instead. With --follow and no --after,
    only new events are shown. With --json, each line is one JSON object.
    """
    run, job = None, None
    if ref:
        named = refs.parse(ref)
        run = app.client._number(named)
        if named.index is not None:
            run, job = None, f"{run}.{named.index}"
    found = app.client.events(
        after=after, run=run, job=job, worker=worker, limit=limit, follow=follow, on_trouble=output.trouble
    )
    if not as_json and not output.on_terminal():
        output.write("\t".join(COLUMNS) + "\n")
    for event in found:
        if as_json:
            output.json("event", event, indent=-1)
        elif output.on_terminal():
            output.write(_sentence(event) + "\n")
        else:
            output.write(output.tsv([getattr(event, name) for name in COLUMNS]) + "\n")


def _sentence(event: Event) -> str:
    what = event.attempt or event.job or (f"run {event.run}" if event.run else event.worker or "")
    parts = [event.time.astimezone().strftime("%H:%M:%S"), f"{event.type:<20}", f"{what:<10}"]
    if event.worker and event.worker != what:
        parts.append(f"on {event.worker}")
    who = event.actor.rpartition(":")[2]  # an actor is ROLE:NAME
    if who and who not in (event.worker, "coordinator"):
        parts.append(f"by {who}")
    if event.type == JOB_EVENT:
        parts += _program_event(event.data)
    elif event.data:
        parts.append(output.cell(event.data))
    return inert("  ".join(parts)).rstrip()


def _program_event(data: dict[str, Any]) -> list[str]:
    """A program's event: its type, and its payload as JSON, because a payload may have any shape."""
    payload = data.get("payload")
    return [str(data.get("type", "")), *([msgspec.json.encode(payload).decode()] if payload else [])]
