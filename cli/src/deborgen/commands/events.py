"""deborgen events"""

from __future__ import annotations

from typing import Any

import click
import msgspec

from deborgen import output, refs
from deborgen.cli import App, json_option, verb
from deborgen_shared.messages import Event
from deborgen_shared.program_events import JOB_EVENT

COLUMNS = ["seq", "time", "type", "run", "job", "attempt", "worker", "actor", "old_state", "new_state", "data"]


@verb(name="events")
@click.argument("ref", metavar="[RUN|JOB]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on as things happen, until Ctrl-C.")
@click.option("--worker", metavar="NAME", help="Only of this worker.")
@click.option("--after", metavar="SEQ", type=click.IntRange(0), help="What came after this event.")
@click.option(
    "-n", "--limit", default=100, show_default=True, type=click.IntRange(1), help="At most so many, the newest."
)
@json_option
def command(
    app: App, ref: str | None, follow: bool, worker: str | None, after: int | None, limit: int, as_json: bool
) -> None:
    """Print the history: who did what, when.

    With --json, one object a line. With --after, the oldest that came after it. --follow starts there, too, and
    otherwise with what happens from now on.
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
    who = event.actor.rpartition(":")[2]
    if who and who not in (event.worker, "coordinator"):
        parts.append(f"by {who}")
    if event.type == JOB_EVENT:
        parts += _written(event.data)
    elif event.data:
        parts.append(output.cell(event.data))
    return output.one_line("  ".join(parts)).rstrip()


def _written(data: dict[str, Any]) -> list[str]:
    """What a program wrote: its own type of event, and the payload as JSON, because that may have any shape."""
    payload = data.get("payload")
    return [str(data.get("type", "")), *([msgspec.json.encode(payload).decode()] if payload else [])]
