"""Puts the parts together and gives each its thread, by the table in ARCHITECTURE.md. Nothing else here has one, except
a runner for its own ends."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from deborgen_shared.client.transport import Refused, Transport, Unreachable
from deborgen_shared.errors import Code
from deborgen_shared.jobfile.units import format_size
from deborgen_shared.messages import Register
from deborgen_shared.states import RunAs
from deborgen_worker import __version__, host, leases, policy, recovery
from deborgen_worker.agent import Agent
from deborgen_worker.attempts import Done, Ending
from deborgen_worker.cache import BlobCache
from deborgen_worker.claims import Claimer, Claims
from deborgen_worker.console import Console
from deborgen_worker.contact import Contact, Line
from deborgen_worker.control import ControlServer
from deborgen_worker.coordinator import Coordinator
from deborgen_worker.disk import Disk
from deborgen_worker.heartbeat import Heart, Superseded
from deborgen_worker.log_pump import LogPump
from deborgen_worker.metrics import Gauges
from deborgen_worker.outbox import Outbox, Results
from deborgen_worker.owner import Owner
from deborgen_worker.runners.choose import make_runners
from deborgen_worker.settings import Settings
from deborgen_worker.spool import Spool
from deborgen_worker.token import CannotRun, TokenFile

#: Threads are made as they are needed; most of them only wait, for an image or for Podman.
SLOW_THREADS = 64
TICK_SECONDS = 0.25
IDLE_TICK_SECONDS = 0.5
LOG_SECONDS = 0.5
CHECK_SECONDS = 10.0
DELIVER_SECONDS = 10.0
TELL_SECONDS = 3.0
LEFT_SECONDS = 3600.0
#: A program that has run for this long is named in a heartbeat, at the latest a second after it began.
NAME_SECONDS = 0.5


class Daemon:
    """One life of the worker: one session."""

    def __init__(self, settings: Settings, console: Console) -> None:
        self.settings, self.console = settings, console
        self.session = uuid.uuid4().hex
        self.state = Path(settings.state_dir)
        self.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock_file = self._lock()
        disk, boot = Disk(), host.boot_id()
        transport = Transport(
            settings.coordinator, TokenFile(Path(settings.token_file)),
            agent=f"deborgen-worker/{__version__}", ca_file=settings.ca_file or None,
        )  # fmt: skip
        self.coordinator = Coordinator(transport, settings.name)
        self.results = Results()
        self.contact = Contact(time.monotonic, console.say, self._wake_all)
        self.line = Line(self.coordinator, self.contact, self.session, console.say)
        self.spool = Spool(self.state, disk, boot)
        cache = BlobCache(self.state / "cache", settings.cache_size, self.coordinator.download)
        self.pool = ThreadPoolExecutor(SLOW_THREADS, "slow")
        self._disk, self._boot = disk, boot
        self._registered = threading.Event()
        self._over = threading.Event()
        self._rejoining = threading.Lock()
        self._signaled: list[int] = []
        self._exit: tuple[int, str] | None = None
        self._wake_heart = threading.Event()
        self._wake_logs = threading.Event()
        self._wake_claimer = threading.Event()
        self.agent = Agent(
            settings, self.spool, cache, policy.offered(settings, disk, self.state),
            partial(make_runners, settings, self.state), clock=time.monotonic, lease_clock=leases.clock,
            say=console.say, run_slow=self.pool.submit, on_room=self._room, on_results=self.results.put,
            on_gate=self._wake_heart.set, gpus=[name for name, _ in host.gpus()],
        )  # fmt: skip
        self.gauges = Gauges(self.state)
        self.heart = Heart(self.agent, self.line, self.gauges.read)
        self.claims = Claims(self.agent, self.spool)
        self.outbox = Outbox(self.agent, self.spool, self.line, self.heart, self.claims, self.results)
        self.logs = LogPump(self.agent, self.line, self.heart)
        self.owner = Owner(settings, self.agent, self.spool, self.contact, policy.PauseFile(self.state, disk))

    def _lock(self) -> int:
        fd = os.open(self.state / "worker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CannotRun(7, f"another worker runs on {self.state} already") from None
        return fd

    # A life

    def run(self) -> int:
        """Until a signal, or until the coordinator says that this session is over. Returns the exit code."""
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(each, self._signal)
        for gap in host.missing():
            self.console.say(f"on this system {gap}")
        for runner in self.agent.runners.values():
            for warning in runner.describe().warnings:
                self.console.say(f"{runner.name}: {warning}")
        self.owner.apply()
        recovered = recovery.recover(self.agent, self.spool, self._boot, self.console.say)
        control = ControlServer(self.state, self._control)
        self._thread("heartbeat", lambda: self._beat(recovered), self._wake_heart)
        claimer = Claimer(self.agent, self.spool, self.line, self.heart, self.claims)
        self._thread("claim", claimer.step, self._wake_claimer)
        self._thread("finish", self.outbox.step, self.results.woken)
        self._thread("uploads", self.outbox.step_uploads, self.results.uploads)
        self._thread("clock", self._tick, threading.Event())
        self._thread("logs", self._send_logs, self._wake_logs)
        self._thread("check", self._check, threading.Event())
        self._thread("sensors", self.gauges.take_temperature, threading.Event())
        self._watch()
        control.close()
        return self._end()

    def _watch(self) -> None:
        every = 1.0 if self.console.terminal else 2.0
        while not self._over.wait(every if not self._signaled else 0.0):
            if self._signaled:
                return
            self.console.show(self.owner.headline())

    def _end(self) -> int:
        if self._exit is not None:  # superseded: what we hold is somebody else's now
            code, message = self._exit
            self.console.say(message)
            self.agent.discard_all()
            self._close()
            return code
        if self._signaled[-1] == signal.SIGHUP:
            self.console.say("handing over: what runs goes on, the next session takes it up")
            self._close()
            return 0
        self._drain("the worker is stopping", self.settings.drain_grace)
        self._close()
        return 0

    def _drain(self, reason: str, grace: float) -> None:
        """Take nothing new, let what runs finish for a while, give the rest back, and see that all is delivered."""
        self.agent.keep("draining", reason)
        self._tell_closed()
        end = time.monotonic() + grace
        while self._busy() and time.monotonic() < end and len(self._signaled) < 2:
            self.console.show(self.owner.headline())
            time.sleep(0.05)
        self.agent.stop_all(Ending.RELEASE, reason)
        self._until(lambda: not self._busy(), self.settings.kill_grace + 5.0)
        self.results.wake()
        self._until(lambda: self.outbox.empty, DELIVER_SECONDS if self._registered.is_set() else 0.0)
        left = len(self.spool.unsent())
        if left:
            self.console.say(f"{left} results could not be delivered: they are kept for the next start")

    def _tell_closed(self) -> None:
        """Tell the coordinator first: a claim that still waits there must not be given a job that nobody would run."""
        self._wake_heart.set()
        if self._registered.is_set() and self.contact.lost_since is None:
            self._until(lambda: not self.heart.told_open, TELL_SECONDS)

    def _close(self) -> None:
        self.console.end()
        for runner in self.agent.runners.values():
            runner.close()
        self.spool.commit()

    def _busy(self) -> bool:
        return self.agent.look(
            lambda machine, _: any(not isinstance(each.stage, Done) for each in machine.attempts.values())
        )

    @staticmethod
    def _until(condition: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            time.sleep(0.02)

    # The threads

    def _thread(self, name: str, step: Callable[[], float], wake: threading.Event) -> None:
        needs_registration = name not in {"heartbeat", "clock", "check", "sensors"}

        def loop() -> None:
            if needs_registration:
                self._registered.wait()
            while not self._over.is_set():
                wake.clear()
                try:
                    delay = step()
                except Superseded as reason:
                    delay = self._rejoin(str(reason))
                except CannotRun as error:
                    return self._give_up(error.code, str(error))
                except Exception:  # a fault of ours must not silence the thread; it is told, and tried again
                    self.console.say(f"a fault in the worker: {traceback.format_exc()}")
                    delay = 5.0
                if delay > 0:
                    wake.wait(delay)
            return None

        threading.Thread(target=loop, name=name, daemon=True).start()

    def _give_up(self, code: int, message: str) -> None:
        if self._exit is None:
            self._exit = (code, message)
        self._over.set()

    def _rejoin(self, reason: str) -> float:
        """The coordinator does not know this session: it was made to leave, or a newer one of this name is there.

        Registering again tells which. A newer one wins, and this one ends.
        """
        leaving, held = self.agent.look(lambda machine, _: ("leaving" in machine.gate.reasons, list(machine.attempts)))
        if leaving:
            return LEFT_SECONDS
        with self._rejoining:
            try:
                self._register(recovery.Recovered(held), again=True)
            except Unreachable as error:
                return self.contact.failed("register", error)
            except Refused as refused:
                if refused.code == Code.SUPERSEDED:
                    self._give_up(7, f"{reason}: this session ends")
                    return 0.0
                return self.heart.when_refused(refused)
        return 0.5

    def _room(self) -> None:
        """The claimer asks for it, or the finish if the claimer waits for an answer."""
        self._wake_claimer.set()
        if self.claims.waits_for is not None:
            self.results.woken.set()

    def _wake_all(self) -> None:
        """The coordinator is there again: nobody waits any longer."""
        self.logs.retry()
        self.results.wake()
        self._wake_heart.set()
        self._room()

    def _beat(self, recovered: recovery.Recovered) -> float:
        if self._registered.is_set():
            return self.heart.step()
        try:
            self._register(recovered)
        except Unreachable as error:
            return self.contact.failed("register", error)
        except Refused as refused:
            if refused.status in {401, 403}:
                raise CannotRun(4, f"the coordinator does not accept this worker: {refused.message}") from None
            raise CannotRun(1, f"the coordinator refused this worker: {refused.message} {refused.hint}") from None
        return 0.0

    def _register(self, recovered: recovery.Recovered, again: bool = False) -> None:
        labels: dict[str, Any] = {
            **host.labels(),
            "network": self.settings.network,
            "network.internet": self.settings.network == "internet",
            **{label: False for each in RunAs for label in (each.label, each.first_label)},
        }
        for runner in self.agent.runners.values():
            labels |= runner.describe().labels
        labels |= self.settings.labels
        held = [name for name in recovered.held if name in self.spool.entries]
        offered = self.agent.look(lambda machine, _: machine.ledger.offered)
        answer = self.coordinator.register(
            Register(
                session=self.session, version=__version__, hostname=socket.gethostname(), labels=labels,
                capacity=offered.message(), holding=held, gone=recovered.gone,
                metrics=self.gauges.read(),
            )
        )  # fmt: skip
        self.heart.registered(answer.heartbeat_seconds, answer.lease_seconds)
        self.contact.most_seconds = min(60.0, max(2.0, answer.lease_seconds))
        self.contact.ok("register")
        self._registered.set()
        if again:
            return
        self.console.say(
            f"{self.settings.name} is registered at {self.settings.coordinator}, with {offered.cpus:g} cpus, "
            f"{format_size(offered.memory)} of memory and {offered.gpus} gpus; runs jobs as "
            + " or ".join(f"a {each}" for each in self.agent.runners)
        )

    def _tick(self) -> float:
        self.owner.apply()
        self.agent.tick()
        if self._registered.is_set() and self.contact.lost_since is None and self.agent.unnamed(NAME_SECONDS):
            self._wake_heart.set()
        return TICK_SECONDS if self.agent.look(lambda machine, _: bool(machine.attempts)) else IDLE_TICK_SECONDS

    def _send_logs(self) -> float:
        self.logs.step()
        return LOG_SECONDS

    def _check(self) -> float:
        """Hours, disk and runners: each closes the gate and opens it again."""
        outside = not policy.within(self.settings.hours, datetime.now())
        self.agent.keep("hours", f"its owner offers it at {self.settings.hours} only" if outside else "")
        free = self._disk.free(self.state)
        low = free < self.settings.min_free_disk
        self.agent.keep("disk", f"only {format_size(free)} of disk are free in {self.state}" if low else "")
        trouble = [f"{runner.name}: {why}" for runner in self.agent.runners.values() if (why := runner.check())]
        self.agent.keep("runner", "; ".join(trouble))
        if not trouble:
            recovery.ask_again(self.agent, self.console.say)
            self.agent.clean_again()
        return CHECK_SECONDS

    # Signals and commands

    def _signal(self, number: int, _frame: object) -> None:
        self._signaled.append(signal.SIGTERM if number == signal.SIGINT else number)

    def _control(self, ask: dict[str, Any]) -> dict[str, Any]:
        match ask.get("command"):
            case "status":
                return self.owner.status() | {"threads": sorted(each.name for each in threading.enumerate())}
            case "pause":
                return {"said": self.owner.pause(ask.get("seconds"), bool(ask.get("now")))}
            case "resume":
                return {"said": self.owner.resume()}
            case "leave":
                return {"said": self._leave()}
        raise ValueError(f"unknown command {ask.get('command')!r}")

    def _leave(self) -> str:
        """Give everything back, say goodbye, and end."""
        self.agent.keep("leaving", "leaving the pool")
        self._tell_closed()
        self.agent.stop_all(Ending.RELEASE, "the worker is leaving")
        self._until(lambda: not self._busy(), self.settings.kill_grace + 5.0)
        self._until(lambda: self.outbox.empty, DELIVER_SECONDS)
        try:
            self.coordinator.leave(self.session)
            said = f"{self.settings.name} has left the pool"
        except (Unreachable, Refused) as error:
            said = f"stopped; the coordinator was not told ({error}), so what it held is free when its lease ends"
        threading.Timer(0.2, self._signaled.append, (signal.SIGTERM,)).start()
        return said
