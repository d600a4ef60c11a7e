"""deborgen workers"""

from __future__ import annotations

from typing import Literal

import click

from deborgen import machines, output
from deborgen.cli import CONTEXT, App, did_you_mean, json_option, the_app, url_option, verb
from deborgen_shared.messages import Worker
from deborgen_shared.states import RunAs
from deborgen_shared.terminal import inert

COLUMNS = ["worker", "availability", "cpus", "memory", "gpus", "running", "last_seen", "labels", "reason"]
#: The columns that a narrow terminal leaves out first.
SPARE = ["labels", "last_seen", "gpus", "memory"]
#: A pipe has room for more columns. `state` is kept for scripts written for release 0.1.
FULL_COLUMNS = [*COLUMNS, "state", "until", "troubles"]


class WorkersGroup(click.Group):
    """Treats `deborgen workers NAME` as `deborgen workers show NAME` if NAME is not a command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, further = args[0], args[1:]
        if name in self.commands or name.startswith("-"):
            return super().resolve_command(ctx, args)
        if further and not further[0].startswith("-") and (meant := did_you_mean(name, self.commands)):
            ctx.fail(f"there is no command '{name}'.{meant}")
        return show.name, show, [*args, "--json"] if ctx.params.get("as_json") else args


@click.group(
    cls=WorkersGroup,
    name="workers",
    context_settings=CONTEXT,
    invoke_without_command=True,
    subcommand_metavar="[NAME | COMMAND [ARGS]...]",
)
@url_option("Address of the coordinator.")
@json_option
@click.pass_context
def command(ctx: click.Context, url: str | None, as_json: bool) -> None:
    """Show the machines of the pool; pause, resume or drain them.

    Without arguments, it lists all machines; with a NAME, it shows everything about that machine. `3/8` cpus means
    that 3 of 8 are free.
    """
    app = the_app(url)
    if ctx.invoked_subcommand is None:
        _list(app, as_json)


def _list(app: App, as_json: bool) -> None:
    workers = app.client.workers()
    if as_json:
        output.json("workers", workers)
    elif output.on_terminal():
        output.table(COLUMNS, map(_row, workers), numeric=["running"], text=["labels", "reason"], spare=SPARE)
    else:
        output.table(FULL_COLUMNS, map(_full_row, workers))
    if not workers:
        output.hint(
            "no machine has joined yet. On each machine, run: deborgen-worker run --coordinator URL --name NAME …"
        )


def _row(worker: Worker) -> list[object]:
    return [
        worker.name,
        machines.availability(worker),
        _cpus(worker),
        f"{output.size(worker.free.memory)} of {output.size(worker.capacity.memory)}",
        _gpus(worker),
        _running(worker),
        output.age(worker.last_seen_at),
        _short_labels(worker.labels),
        "; ".join(filter(None, [machines.why(worker), *machines.troubles(worker)])),
    ]


def _full_row(worker: Worker) -> list[object]:
    return [
        worker.name,
        machines.availability(worker),
        _cpus(worker),
        f"{worker.free.memory}/{worker.capacity.memory}",
        _gpus(worker),
        worker.running,
        worker.last_seen_at,
        worker.labels,
        worker.reason,
        worker.state,
        worker.until,
        [each.reason for each in worker.troubles],
    ]


def _running(worker: Worker) -> str:
    """How many jobs run, and how many the worker only holds so far: `4`, or `4, 40 assigned`."""
    running, assigned = len(worker.running) - len(worker.assigned), len(worker.assigned)
    return f"{running}, {assigned} assigned" if assigned else str(running or "")


def _cpus(worker: Worker) -> str:
    return f"{worker.free.cpus:g}/{worker.capacity.cpus:g}"


def _gpus(worker: Worker) -> str:
    return f"{worker.free.gpus}/{worker.capacity.gpus}" if worker.capacity.gpus else ""


def _short_labels(labels: dict[str, object]) -> str:
    """The labels for a terminal: runners, system, architecture and GPU. A pipe and --json get all labels."""
    runners = [each for each in RunAs if each.offered(labels)]
    return " ".join([*runners, *(str(labels[key]) for key in ("os", "arch", "gpu") if labels.get(key))])


@verb(command.command, name="show")
@click.argument("name")
@json_option
def show(app: App, name: str, as_json: bool) -> None:
    """Show everything about one machine."""
    worker = app.client.worker(name)
    if as_json:
        output.json("worker", worker)
        return
    lines = list(_lines(worker))
    if not output.on_terminal():
        output.table(["field", "value"], lines)
        return
    for field, value in lines:
        output.write(f"{field:<13}{inert(output.cell(value))}\n")


def _lines(worker: Worker) -> list[tuple[str, object]]:
    """The known facts about a worker, by name. Unknown ones are left out."""
    facts: list[tuple[str, object]] = [
        ("worker", worker.name),
        ("availability", machines.availability(worker)),
        ("reason", machines.why(worker)),
        *[("trouble", each) for each in machines.troubles(worker)],
        ("last seen", output.age(worker.last_seen_at)),
        ("host", worker.hostname),
        ("version", worker.version),
        ("cpus", f"{_cpus(worker)} free"),
        ("memory", f"{output.size(worker.free.memory)} of {output.size(worker.capacity.memory)} free"),
        ("disk", f"{output.size(worker.free.disk)} of {output.size(worker.capacity.disk)} free"),
        ("gpus", _gpus(worker)),
        *machines.measured(worker.metrics),
        ("running", [name for name in worker.running if name not in worker.assigned]),
        ("assigned", worker.assigned),
        ("labels", worker.labels),
    ]
    return [(field, value) for field, value in facts if value]


def _steer(app: App, name: str, order: Literal["pause", "resume", "drain"], sentence: str) -> None:
    worker = app.client.steer(name, order)
    output.say(f"{worker.name} {sentence}")


@verb(command.command, name="pause")
@click.argument("name")
def pause(app: App, name: str) -> None:
    """Stop giving this worker new jobs. Its running jobs continue."""
    _steer(app, name, "pause", f"takes no new jobs. Undo: deborgen workers resume {name}")


@verb(command.command, name="resume")
@click.argument("name")
def resume(app: App, name: str) -> None:
    """Give this worker jobs again."""
    _steer(app, name, "resume", "takes jobs again")


@verb(command.command, name="drain")
@click.argument("name")
def drain(app: App, name: str) -> None:
    """Let this worker finish its running jobs, and give it no new ones."""
    _steer(app, name, "drain", f"finishes its running jobs and takes no new ones. Undo: deborgen workers resume {name}")
