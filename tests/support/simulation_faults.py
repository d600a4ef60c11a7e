"""The faults of the simulation: how likely the small ones are, and the large ones that strike now and then."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deborgen_coordinator.operations.runs.cancel import cancel_job, cancel_run
from deborgen_coordinator.operations.workers import steer as steering
from deborgen_coordinator.operations.workers.look import list_workers
from deborgen_shared.messages import SteerWorker
from deborgen_shared.states import Role
from support.in_process import person
from support.simulation_truth import Plan

if TYPE_CHECKING:
    from support.simulation import World
    from support.simulation_life import Life
    from support.simulation_machine import Machine

SUBMITTER, ADMIN = person("alice"), person("root", Role.ADMIN)
#: The large faults. One that is listed several times strikes more often.
KINDS = [
    "kill", "kill", "reboot", "partition", "partition", "no answers", "sleep", "stop", "wipe", "coordinator restart",
    "coordinator frozen", "wall clock", "owner pauses", "admin pauses", "cancel job", "cancel run", "disk full",
    "runner down", "old request", "old request", "old request", "submit",
]  # fmt: skip


@dataclass
class Faults:
    """The probability of each small fault, each time that it could happen."""

    drop_request: float = 0.0
    drop_answer: float = 0.0
    #: A request is executed twice.
    twice: float = 0.0
    #: A request is kept, and executed again when nobody expects it any more.
    keep: float = 0.0
    crash: float = 0.0
    coordinator_dies: float = 0.0
    start_fails: float = 0.0
    #: The average number of seconds between two large faults.
    pause_between: float = 1e9

    @classmethod
    def draw(cls, chance: random.Random) -> Faults:
        def rate(*choices: float) -> float:
            return chance.choice(choices)

        return cls(
            drop_request=rate(0.0, 0.02, 0.1, 0.3), drop_answer=rate(0.0, 0.02, 0.1, 0.3), twice=rate(0.0, 0.05, 0.2),
            keep=rate(0.0, 0.05, 0.2), crash=rate(0.0, 0.002, 0.01), coordinator_dies=rate(0.0, 0.002, 0.01),
            start_fails=rate(0.0, 0.0, 0.05), pause_between=rate(10.0, 30.0, 90.0),
        )  # fmt: skip


def strike(world: World) -> None:
    """Let one large fault happen, to a machine that the seed chooses."""
    chance, machine = world.random, world.random.choice(world.machines)
    name, life = machine.name, machine.life
    duration = chance.choice([chance.uniform(1, 50), chance.uniform(70, 400)])
    kind = chance.choice(KINDS)
    world.tell(f"-- {kind} {name} {duration:.0f}")
    match kind:
        case "kill":
            machine.kill(chance.uniform(0.1, duration))
        case "reboot":
            machine.lose_power(chance.uniform(5.0, duration + 5))
        case "partition" | "no answers":
            machine.partition = "all" if kind == "partition" else "answers"
            world.later(duration, lambda: setattr(machine, "partition", ""))
        case "sleep":
            machine.sleep(duration)
        case "stop" if life is not None and machine.awake:
            life.stop()
        case "wipe":
            world.wiped = True
            machine.wipe()
        case "coordinator restart":
            world.stop_coordinator(duration)
        case "coordinator frozen":
            world.freeze_coordinator(duration)
        case "wall clock":
            world.clock.step_wall(chance.choice([-86400.0, 86400.0, 3600.0]))
        case "owner pauses" if life is not None and machine.awake and not machine.disk.full:
            frozen = chance.random() < 0.5
            pause(life, frozen)
            world.later(duration, lambda: resume(world, machine))
        case "admin pauses" if world.up:
            steer(world, name, True)
            world.later(duration, lambda: steer(world, name, False))
        case "cancel job" | "cancel run" if world.up:
            cancel(world, chance.choice(sorted(world.states)), whole=kind == "cancel run")
        case "disk full":
            machine.disk.full = True
            world.later(duration, lambda: setattr(machine.disk, "full", False))
        case "runner down" if life is not None:
            life.runner.trouble = "podman does not answer"
            world.later(duration, lambda: setattr(life.runner, "trouble", ""))
        case "old request":
            world.network.replay()
        case "submit" if world.up:
            submit(world, 1)
    if world.up:
        world.check()


def pause(life: Life, frozen: bool) -> None:
    def work(life: Life) -> None:
        life.owner.pause(None, frozen)

    life.guard(work)


def resume(world: World, machine: Machine) -> None:
    life = machine.life
    if life is not None and machine.awake:

        def work(life: Life) -> None:
            life.owner.resume()

        life.guard(work)
    else:
        (machine.folder / "pause.json").unlink(missing_ok=True)


def steer(world: World, name: str, paused: bool) -> None:
    known = {worker.name for worker in list_workers(world.coordinator.ctx).items} if world.up else set()
    if name in known:
        steering.steer(world.coordinator.ctx, ADMIN, name, SteerWorker(paused=paused))


def cancel(world: World, job: int, whole: bool) -> None:
    run, index = job >> 20, job & 0xFFFFF
    wanted = [each for each in world.states if each >> 20 == run] if whole else [job]
    world.canceled.update(wanted)
    ctx = world.coordinator.ctx
    answer = cancel_run(ctx, SUBMITTER, run, "") if whole else cancel_job(ctx, SUBMITTER, run, index, "")
    for name, word in answer.jobs.items():
        world.canceled.add(key_of(name))
        if word == "canceled":
            world.promised.add(name)
        if word != "already_terminal":
            world.note_cancel(key_of(name))


def submit(world: World, count: int | None = None) -> None:
    for _ in range(count or world.random.randint(2, 7)):
        plan = Plan.draw(world.random)
        document = plan.document(world.random)
        if world.random.random() < 0.2:
            steps = [{"id": name, **{key: document[key] for key in ("run", "artifacts") if key in document}}
                     for name in ("make", "use")]  # fmt: skip
            document = {"steps": steps, **{k: v for k, v in document.items() if k not in ("run", "artifacts")}}
        elif world.random.random() < 0.3:
            document["sweep"] = {"grid": {"x": {"from": 1, "to": world.random.randint(2, 5)}}}
        if world.uses_loops:
            plan, document = plan.in_loop(document, world.random)
        world.plans[world.coordinator.submit(document).id] = plan
    world.check()


def key_of(name: str) -> int:
    run, _, index = name.partition(".")
    return int(run) << 20 | int(index)
