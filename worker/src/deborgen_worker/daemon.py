"""Puts the parts together and gives each its thread. The table in ARCHITECTURE.md lists all threads.

Apart from the threads of the runners, no other module starts any.
"""

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
from deborgen_worker.attempts import Done, StopCause
from deborgen_worker.cache import BlobCache
from deborgen_worker.claims import Claimer, Claims
from deborgen_worker.console import Console
from deborgen_worker.contact import Contact, Link
from deborgen_worker.control import ControlServer
from deborgen_worker.coordinator import CoordinatorClient
from deborgen_worker.disk import Disk
from deborgen_worker.exit import CannotRun
from deborgen_worker.heartbeat import HeartbeatLoop, Superseded
from deborgen_worker.log_pump import LogPump
from deborgen_worker.metrics import Gauges
from deborgen_worker.outbox import Outbox, ResultQueue
from deborgen_worker.owner import Owner
from deborgen_worker.runners.registry import make_runners
from deborgen_worker.settings import Settings
from deborgen_worker.spool import Spool
from deborgen_worker.token import TokenFile

#: At most this many threads for slow work. They start as needed, and most only wait for an image or for Podman.
SLOW_THREADS = 64
#: Seconds between two ticks, with attempts here and without.
TICK_SECONDS = 0.25
IDLE_TICK_SECONDS = 0.5
#: Seconds between two rounds of sending logs and events.
LOG_SECONDS = 0.5
#: Seconds between two checks of the hours, the disk and the runners.
CHECK_SECONDS = 10.0
#: A worker that ends tries to deliver its results for this many seconds.
DELIVER_SECONDS = 10.0
#: A worker that ends waits this many seconds for the coordinator to learn that it takes no new work.
REPORT_CLOSED_SECONDS = 3.0
#: After leaving the pool, a thread that the coordinator refuses waits this many seconds: the process is about to end.
AFTER_LEAVING_SECONDS = 3600.0
#: A program that has run for this many seconds is named in a heartbeat at once, so at most a second after it began.
REPORT_PROGRAM_SECONDS = 0.5


class Daemon:
    """One run of the worker process, which is one session."""

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
        self.coordinator = CoordinatorClient(transport, settings.name)
        self.results = ResultQueue()
        self.contact = Contact(time.monotonic, console.say, self._wake_all)
        self.link = Link(self.coordinator, self.contact, self.session, console.say)
        self.spool = Spool(self.state, disk, boot)
        cache = BlobCache(self.state / "cache", settings.cache_size, self.coordinator.download)
        self.pool = ThreadPoolExecutor(SLOW_THREADS, "slow")
        self._disk, self._boot = disk, boot
        self._registered = threading.Event()
        self._ended = threading.Event()
        self._rejoining = threading.Lock()
        self._signaled: list[int] = []
        self._exit: tuple[int, str] | None = None
        self._wake_heartbeat = threading.Event()
        self._wake_logs = threading.Event()
        self._wake_claimer = threading.Event()
        self.agent = Agent(
            settings, self.spool, cache, policy.offered(settings, disk, self.state),
            partial(make_runners, settings, self.state), clock=time.monotonic, lease_clock=leases.clock,
            say=console.say, run_slow=self.pool.submit, on_room=self._wake_for_work, on_results=self.results.put,
            on_gate=self._wake_heartbeat.set, gpus=[name for name, _ in host.gpus()],
        )  # fmt: skip
        self.gauges = Gauges(self.state)
        self.heartbeats = HeartbeatLoop(self.agent, self.link, self.gauges.read)
        self.claims = Claims(self.agent, self.spool)
        self.outbox = Outbox(self.agent, self.spool, self.link, self.heartbeats, self.claims, self.results)
        self.logs = LogPump(self.agent, self.link, self.heartbeats)
        self.owner = Owner(settings, self.agent, self.spool, self.contact, policy.PauseFile(self.state, disk))

    def _lock(self) -> int:
        fd = os.open(self.state / "worker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CannotRun(7, f"another worker is already running on {self.state}") from None
        return fd

    # From start to end

    def run(self) -> int:
        """Run until a signal, or until the coordinator ends this session. Returns the exit code."""
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(each, self._signal)
        for gap in host.missing_features():
            self.console.say(f"on this system {gap}")
        for runner in self.agent.runners.values():
            for warning in runner.describe().warnings:
                self.console.say(f"{runner.name}: {warning}")
        self.owner.apply()
        recovered = recovery.recover(self.agent, self.spool, self._boot, self.console.say)
        control = ControlServer(self.state, self._control)
        self._thread("heartbeat", lambda: self._register_or_beat(recovered), self._wake_heartbeat)
        claimer = Claimer(self.agent, self.spool, self.link, self.heartbeats, self.claims)
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
        while not self._ended.wait(every if not self._signaled else 0.0):
            if self._signaled:
                return
            self.console.show(self.owner.headline())

    def _end(self) -> int:
        if self._exit is not None:  # superseded: our attempts belong to another session now
            code, message = self._exit
            self.console.say(message)
            self.agent.discard_all()
            self._close()
            return code
        if self._signaled[-1] == signal.SIGHUP:
            self.console.say("handing over: running jobs go on, and the next session adopts them")
            self._close()
            return 0
        self._drain("the worker is stopping", self.settings.drain_grace)
        self._close()
        return 0

    def _drain(self, reason: str, grace: float) -> None:
        """Take no new work, let running jobs finish for a while, give the rest back, and deliver all results."""
        self.agent.set_gate("draining", reason)
        self._report_closed()
        end = time.monotonic() + grace
        while self._has_unfinished() and time.monotonic() < end and len(self._signaled) < 2:
            self.console.show(self.owner.headline())
            time.sleep(0.05)
        self.agent.stop_all(StopCause.RELEASE, reason)
        self._wait_until(lambda: not self._has_unfinished(), self.settings.kill_grace + 5.0)
        self.results.wake()
        self._wait_until(lambda: self.outbox.empty, DELIVER_SECONDS if self._registered.is_set() else 0.0)
        left = len(self.spool.unsent())
        if left:
            self.console.say(f"{left} results could not be delivered; the next start will send them")

    def _report_closed(self) -> None:
        """Tell the coordinator first, so that a claim that still waits there is not given a job nobody would run."""
        self._wake_heartbeat.set()
        if self._registered.is_set() and self.contact.lost_since is None:
            self._wait_until(lambda: not self.heartbeats.reported_open, REPORT_CLOSED_SECONDS)

    def _close(self) -> None:
        self.console.end()
        for runner in self.agent.runners.values():
            runner.close()
        self.spool.commit()

    def _has_unfinished(self) -> bool:
        return self.agent.read_state(
            lambda machine, _: any(not isinstance(each.stage, Done) for each in machine.attempts.values())
        )

    @staticmethod
    def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            time.sleep(0.02)

    # The threads

    def _thread(self, name: str, step: Callable[[], float], wake: threading.Event) -> None:
        needs_registration = name not in {"heartbeat", "clock", "check", "sensors"}

        def loop() -> None:
            if needs_registration:
                self._registered.wait()
            while not self._ended.is_set():
                wake.clear()
                try:
                    delay = step()
                except Superseded as reason:
                    delay = self._rejoin(str(reason))
                except CannotRun as error:
                    return self._end_with(error.code, str(error))
                except Exception:  # a bug must not end the thread: report it, and retry
                    self.console.say(f"internal error in the worker: {traceback.format_exc()}")
                    delay = 5.0
                if delay > 0:
                    wake.wait(delay)
            return None

        threading.Thread(target=loop, name=name, daemon=True).start()

    def _end_with(self, code: int, message: str) -> None:
        if self._exit is None:
            self._exit = (code, message)
        self._ended.set()

    def _rejoin(self, reason: str) -> float:
        """Register again, because the coordinator does not know this session: it was removed, or a newer one exists.

        If there is a newer session of this name, the coordinator refuses, and this session ends.
        """
        leaving, held = self.agent.read_state(
            lambda machine, _: ("leaving" in machine.gate.reasons, list(machine.attempts))
        )
        if leaving:
            return AFTER_LEAVING_SECONDS
        with self._rejoining:
            try:
                self._register(recovery.Recovered(held), again=True)
            except Unreachable as error:
                return self.contact.failed("register", error)
            except Refused as refused:
                if refused.code == Code.SUPERSEDED:
                    self._end_with(7, f"{reason}; ending this session")
                    return 0.0
                return self.heartbeats.when_refused(refused)
        return 0.5

    def _wake_for_work(self) -> None:
        """Have the claimer ask for work, or the next finish while the claimer waits for an answer."""
        self._wake_claimer.set()
        if self.claims.waiting_amount is not None:
            self.results.woken.set()

    def _wake_all(self) -> None:
        """Let all threads retry now: the coordinator answers again."""
        self.logs.retry()
        self.results.wake()
        self._wake_heartbeat.set()
        self._wake_for_work()

    def _register_or_beat(self, recovered: recovery.Recovered) -> float:
        if self._registered.is_set():
            return self.heartbeats.step()
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
        offered = self.agent.read_state(lambda machine, _: machine.ledger.offered)
        answer = self.coordinator.register(
            Register(
                session=self.session, version=__version__, hostname=socket.gethostname(), labels=labels,
                capacity=offered.message(), holding=held, gone=recovered.gone,
                metrics=self.gauges.read(),
            )
        )  # fmt: skip
        self.heartbeats.registered(answer.heartbeat_seconds, answer.lease_seconds)
        self.contact.max_wait_seconds = min(60.0, max(2.0, answer.lease_seconds))
        self.contact.ok("register")
        self._registered.set()
        if again:
            return
        self.console.say(
            f"{self.settings.name} is registered at {self.settings.coordinator}, with {offered.cpus:g} cpus, "
            f"{format_size(offered.memory)} of memory and {offered.gpus} gpus; it runs jobs as "
            + " or ".join(f"a {each}" for each in self.agent.runners)
        )

    def _tick(self) -> float:
        self.owner.apply()
        self.agent.tick()
        if (
            self._registered.is_set()
            and self.contact.lost_since is None
            and self.agent.has_unreported_program(REPORT_PROGRAM_SECONDS)
        ):
            self._wake_heartbeat.set()
        return TICK_SECONDS if self.agent.read_state(lambda machine, _: bool(machine.attempts)) else IDLE_TICK_SECONDS

    def _send_logs(self) -> float:
        self.logs.step()
        return LOG_SECONDS

    def _check(self) -> float:
        """Close or open the gate for the owner's hours, the free disk and the state of the runners."""
        outside = not policy.within(self.settings.hours, datetime.now())
        self.agent.set_gate("hours", f"its owner offers it only at {self.settings.hours}" if outside else "")
        free = self._disk.free(self.state)
        low = free < self.settings.min_free_disk
        self.agent.set_gate("disk", f"only {format_size(free)} of disk is free in {self.state}" if low else "")
        trouble = [f"{runner.name}: {why}" for runner in self.agent.runners.values() if (why := runner.check())]
        self.agent.set_gate("runner", "; ".join(trouble))
        if not trouble:
            recovery.retry_adoptions(self.agent, self.console.say)
            self.agent.retry_cleanup()
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
        """Give all jobs back, leave the pool, and end."""
        self.agent.set_gate("leaving", "leaving the pool")
        self._report_closed()
        self.agent.stop_all(StopCause.RELEASE, "the worker is leaving")
        self._wait_until(lambda: not self._has_unfinished(), self.settings.kill_grace + 5.0)
        self._wait_until(lambda: self.outbox.empty, DELIVER_SECONDS)
        try:
            self.coordinator.leave(self.session)
            said = f"{self.settings.name} has left the pool"
        except (Unreachable, Refused) as error:
            said = f"stopped; the coordinator could not be told ({error}), so its jobs are free when their leases end"
        threading.Timer(0.2, self._signaled.append, (signal.SIGTERM,)).start()
        return said
