"""Puts the parts together and gives each its thread. The table in ARCHITECTURE.md lists all threads."""

from __future__ import annotations

import signal
import socket
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from deborgen_shared.client.transport import NoAnswer, Refused, Transport
from deborgen_shared.errors import Code
from deborgen_shared.jobfile.units import format_size
from deborgen_shared.messages import Register
from deborgen_shared.states import RunAs
from deborgen_worker import __version__, host, leases, policy, recovery, repositories, session, sharing
from deborgen_worker.agent import Agent
from deborgen_worker.attempts import Done, StopCause
from deborgen_worker.cache import BlobCache
from deborgen_worker.checkpoint_uploads import CheckpointUploads
from deborgen_worker.claims import Claimer, Claims
from deborgen_worker.console import Console
from deborgen_worker.contact import Contact, Link
from deborgen_worker.control import ControlServer
from deborgen_worker.coordinator import CoordinatorClient
from deborgen_worker.disk import Disk
from deborgen_worker.disk_use import DiskUse
from deborgen_worker.exit import CannotRun
from deborgen_worker.heartbeat import HeartbeatLoop, Superseded
from deborgen_worker.leaving import farewell
from deborgen_worker.log_pump import LogPump
from deborgen_worker.metrics import Gauges
from deborgen_worker.observer import Observer
from deborgen_worker.outbox import Outbox, ResultQueue
from deborgen_worker.owner import Owner
from deborgen_worker.runners.isolation import choose_isolation
from deborgen_worker.runners.landlock import holds_read_only
from deborgen_worker.runners.registry import make_runners
from deborgen_worker.secret_files import SecretFiles
from deborgen_worker.service_manager import Ending, ending, unit_to_stop
from deborgen_worker.settings import WorkerSettings
from deborgen_worker.spool import Spool
from deborgen_worker.token import TokenFile

#: Use at most this many threads for slow work. They start when needed, and mostly wait for an image or for Podman.
SLOW_THREADS = 64
#: Seconds between two ticks, with attempts and without.
TICK_SECONDS = 0.25
IDLE_TICK_SECONDS = 0.5
#: Seconds between two rounds of sending logs and events.
LOG_SECONDS = 0.5
#: Seconds between two looks at the workspaces of running jobs.
OBSERVE_SECONDS = 0.5
#: Seconds between two looks for a signal, and between two updates of the status line.
SIGNAL_SECONDS = 0.25
STATUS_SECONDS = 1.0
#: Seconds between two checks of the disk and the runners.
CHECK_SECONDS = 10.0
#: When the worker ends, it tries to deliver its results for this many seconds.
DELIVER_SECONDS = 10.0
#: When the worker ends, it waits this many seconds until the containers and folders of its jobs are removed.
REMOVE_SECONDS = 5.0
#: When the service manager or the owner stops the worker, each job has at most this many seconds from TERM to KILL. The
#: rest of the unit's stop time is for the results.
STOP_KILL_SECONDS = 20.0
#: When the worker ends, it waits this many seconds until the coordinator knows that it takes no new work.
REPORT_CLOSED_SECONDS = 3.0
#: A worker that is stopped at once ends within this many seconds.
STOP_SECONDS = REPORT_CLOSED_SECONDS + STOP_KILL_SECONDS + 5.0 + DELIVER_SECONDS + REMOVE_SECONDS + 10.0
#: The reason with which jobs are given back when the worker ends.
STOPPING = "the worker is stopping"
#: After the worker has left the pool, refused threads wait this many seconds, because the process is about to end.
AFTER_LEAVING_SECONDS = 3600.0
#: Once a program has run for this many seconds, send a heartbeat that names it.
REPORT_PROGRAM_SECONDS = 0.5


class Daemon:
    """One run of the worker process, which is one session."""

    def __init__(self, settings: WorkerSettings, console: Console) -> None:
        self.settings, self.console = settings, console
        self.session = uuid.uuid4().hex
        self.state = Path(settings.state_dir)
        self.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock_file = session.lock(self.state)
        if self._lock_file is None:
            raise CannotRun(
                7, f"another worker is already running on {self.state}; stop it, or choose another --state-dir"
            )
        self._signaled: list[int] = []
        self._hurry = False
        self._catch(signal.SIGTERM, signal.SIGHUP)  # before the runners are ready: jobs may wait for their adoption
        disk, boot = Disk(), host.boot_id()
        pool = (settings.name, settings.coordinator, settings.token_file, settings.ca_file)
        session.write(self.state, disk, session.SessionNote(self.session, *pool, unit_to_stop()))
        transport = Transport(
            settings.coordinator, TokenFile(Path(settings.token_file)),
            agent=f"deborgen-worker/{__version__}", ca_file=settings.ca_file or None,
        )  # fmt: skip
        self.coordinator = CoordinatorClient(transport, settings.name)
        self.results = ResultQueue()
        self.contact = Contact(time.monotonic, console.say, self._wake_all)
        self.link = Link(self.coordinator, self.contact, self.session, console.say)
        isolation = choose_isolation(settings)
        own = [str(self.state), settings.token_file, *isolation.hide]
        if problem := sharing.check_apart(settings.shared, own):
            raise CannotRun(2, problem)
        self.spool = Spool(self.state, disk, boot, isolation.users)
        cache = BlobCache(self.state / "cache", settings.cache_size, self.coordinator.download)
        pin = partial(self.coordinator.pin, self.session)
        self.repositories = repositories.make_repositories(settings, self.state, isolation.secrets, pin)
        self.pool = ThreadPoolExecutor(SLOW_THREADS, "slow")
        self._disk, self._boot = disk, boot
        self._registered = threading.Event()
        self._ended = threading.Event()
        self._rejoining = threading.Lock()
        #: How the owner's `stop` or `leave` ends the worker. Otherwise the service manager is asked.
        self._ending: Ending | None = None
        self._exit: tuple[int, str] | None = None
        self._wake_heartbeat = threading.Event()
        self._wake_logs = threading.Event()
        self._wake_claimer = threading.Event()
        self.agent = Agent(
            settings, self.spool, cache, policy.offered(settings, disk, self.state),
            partial(make_runners, settings, self.state, isolation, self.coordinator.download),
            clock=time.monotonic, lease_clock=leases.clock,
            say=console.say, run_slow=self.pool.submit, on_room=self._wake_for_work, on_results=self._note_results,
            on_assigned=console.assigned, on_gate=self._wake_heartbeat.set, gpus=[name for name, _ in host.gpus()],
            secret_files=SecretFiles(isolation.secrets), repositories=self.repositories,
        )  # fmt: skip
        self.gauges = Gauges(self.state)
        self.heartbeats = HeartbeatLoop(self.agent, self.link, self.gauges.read)
        self.claims = Claims(self.agent, self.spool)
        self.outbox = Outbox(self.agent, self.spool, self.link, self.heartbeats, self.claims, self.results)
        self.logs = LogPump(self.agent, self.link, self.heartbeats, self._report_now)
        self.checkpoints = CheckpointUploads(self.agent, self.link, self.heartbeats)
        self.observer = Observer(self.agent)
        self.disk_use = DiskUse(self.agent, time.monotonic)
        self.owner = Owner(settings, self.agent, self.spool, self.contact, policy.PauseFile(self.state, disk))

    # From start to end

    def run(self) -> int:
        """Run until a signal, or until the coordinator ends this session. Returns the exit code."""
        self._catch(signal.SIGINT)
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
        self._thread("checkpoints", self.checkpoints.step, threading.Event())
        self._thread("workspaces", self._observe, threading.Event())
        self._thread("disk-use", self.disk_use.step, threading.Event())
        self._thread("check", self._check, threading.Event())
        self._thread("sensors", self.gauges.take_temperature, threading.Event())
        self._watch()
        control.close()
        return self._end()

    def _watch(self) -> None:
        shown = 0.0
        while not self._ended.wait(SIGNAL_SECONDS) and not self._signaled and self._ending is None:
            if time.monotonic() >= shown + STATUS_SECONDS:
                self.console.show(self.owner.headline())
                shown = time.monotonic()

    def _end(self) -> int:
        if self._exit is not None:  # superseded: our attempts belong to another session now
            code, message = self._exit
            self.console.say(message)
            self.agent.discard_all()
            self._close()
            return code
        how = self._ending or ending()
        if how is Ending.HAND_OVER:
            self.agent.set_ending("")
            self.console.say("handing over: running jobs continue, and the next session adopts them")
        else:
            self._drain(how)
        self._close()
        return 0

    def _drain(self, how: Ending) -> None:
        """Take no new work, give the running jobs back, at once or after they had time to finish, and deliver all
        results."""
        self.agent.set_gate("draining", STOPPING)
        self._report_closed()
        grace, kill_grace = self.settings.drain_grace, self.settings.kill_grace
        if how is Ending.AT_ONCE:
            grace, kill_grace = 0.0, min(kill_grace, STOP_KILL_SECONDS)
        end = time.monotonic() + grace
        while self._unfinished() and time.monotonic() < end and not self._hurry:
            self.console.show(self.owner.headline())
            time.sleep(0.05)
        self.agent.set_ending(STOPPING, kill_grace)
        self.agent.stop_all(StopCause.RELEASE, STOPPING)
        self._wait_until(lambda: not self._unfinished(), kill_grace + 5.0)
        if self._unfinished():  # nothing may run on; the next session reports these attempts
            self.agent.discard_all()
        self.results.wake()
        self._wait_until(lambda: self.outbox.empty, DELIVER_SECONDS if self._registered.is_set() else 0.0)
        self._wait_until(lambda: not self.agent.is_busy, REMOVE_SECONDS)
        left = len(self.spool.unsent())
        if left:
            self.console.say(f"{left} results could not be delivered; the next start will send them")

    def _report_closed(self) -> None:
        """Tell the coordinator that this worker is closed, so that a claim that still waits there gets no job."""
        self._wake_heartbeat.set()
        if self._registered.is_set() and self.contact.lost_since is None:
            self._wait_until(lambda: not self.heartbeats.reported_open, REPORT_CLOSED_SECONDS)

    def _close(self) -> None:
        self.console.end()
        for runner in self.agent.runners.values():
            runner.close()
        self.spool.commit()

    def _unfinished(self) -> int:
        return self.agent.read_state(
            lambda machine, _: sum(not isinstance(each.stage, Done) for each in machine.attempts.values())
        )

    @staticmethod
    def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            time.sleep(0.02)

    # The threads

    def _thread(self, name: str, step: Callable[[], float], wake: threading.Event) -> None:
        needs_registration = name not in {"heartbeat", "clock", "workspaces", "disk-use", "check", "sensors"}

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
        """Register again, because the coordinator refused this session. It forgot the session, or a newer one exists.

        If there is a newer session of this worker, the coordinator refuses again, and this session ends.
        """
        leaving, held = self.agent.read_state(
            lambda machine, _: ("leaving" in machine.gate.reasons, list(machine.attempts))
        )
        if leaving:
            return AFTER_LEAVING_SECONDS
        with self._rejoining:
            try:
                self._register(recovery.Recovered(held), again=True)
            except NoAnswer as error:
                return self.contact.failed("register", error)
            except Refused as refused:
                if refused.code == Code.SUPERSEDED:
                    self._end_with(7, f"{reason}; ending this session")
                    return 0.0
                return self.heartbeats.when_refused(refused)
        return 0.5

    def _note_results(self, attempts: list[str]) -> None:
        self.console.ended(attempts)
        self.results.put(attempts)

    def _wake_for_work(self) -> None:
        """Make the claimer ask for work. If its claim already waits at the coordinator, the next finish asks."""
        self._wake_claimer.set()
        if self.claims.waiting_amount is not None:
            self.results.woken.set()

    def _wake_all(self) -> None:
        """Let all threads retry now, because the coordinator answers again."""
        self.logs.retry()
        self.results.wake()
        self._wake_heartbeat.set()
        self._wake_for_work()

    def _register_or_beat(self, recovered: recovery.Recovered) -> float:
        if self._registered.is_set():
            return self.heartbeats.step()
        try:
            self._register(recovered)
        except NoAnswer as error:
            return self.contact.failed("register", error)
        except Refused as refused:
            if refused.status in {401, 403}:
                raise CannotRun(4, f"the coordinator does not accept this worker: {refused.message}") from None
            told = "; ".join(filter(None, [refused.message, refused.hint]))
            raise CannotRun(1, f"the coordinator refused this worker: {told}") from None
        return 0.0

    def _register(self, recovered: recovery.Recovered, again: bool = False) -> None:
        labels: dict[str, Any] = {
            **host.labels(),
            "network": self.settings.network,
            "network.internet": self.settings.network == "internet",
            **sharing.labels(self.settings.shared, holds_read_only()),
            **repositories.labels(self.repositories, self.settings),
            **{label: False for each in RunAs for label in (each.label, each.old_label)},
        }
        for runner in self.agent.runners.values():
            labels |= runner.describe().labels
        labels |= self.settings.labels
        held = [name for name in recovered.held if name in self.spool.entries]
        images = self.heartbeats.reported_images = self.agent.images()
        offered = self.agent.read_state(lambda machine, _: machine.ledger.offered)
        answer = self.coordinator.register(
            Register(
                session=self.session, version=__version__, hostname=socket.gethostname(), labels=labels,
                capacity=offered.message(), holding=held, gone=recovered.gone,
                metrics=self.gauges.read(), images=images,
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
        if self.agent.has_unreported_program(REPORT_PROGRAM_SECONDS):
            self._report_now()
        return TICK_SECONDS if self.agent.read_state(lambda machine, _: bool(machine.attempts)) else IDLE_TICK_SECONDS

    def _report_now(self) -> None:
        """Send a heartbeat now: a program has begun, or its progress has changed, and somebody may be watching."""
        if self._registered.is_set() and self.contact.lost_since is None:
            self._wake_heartbeat.set()

    def _send_logs(self) -> float:
        self.logs.step()
        return LOG_SECONDS

    def _observe(self) -> float:
        self.observer.step()
        return OBSERVE_SECONDS

    def _check(self) -> float:
        """Close or open the gate for the free disk and the state of the runners."""
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

    def _catch(self, *signals: signal.Signals) -> None:
        for each in signals:
            if signal.getsignal(each) != signal.SIG_IGN:  # `nohup` lets a worker outlive its terminal
                signal.signal(each, self._signal)

    def _signal(self, number: int, _frame: object) -> None:
        # A second signal ends the wait for jobs, but a terminal that is closed may send several HUPs.
        self._hurry |= bool(self._signaled) and number != signal.SIGHUP
        self._signaled.append(number)
        if hasattr(self, "agent"):
            self.agent.set_ending(STOPPING)

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
            case "stop":
                jobs = self._unfinished()
                self.agent.set_ending(STOPPING)
                self._ending = Ending.HAND_OVER if ask.get("keep_jobs") else Ending.AT_ONCE
                return {"jobs": jobs, "seconds": STOP_SECONDS}
        raise ValueError(f"unknown command {ask.get('command')!r}")

    def _leave(self) -> str:
        """Give all jobs back, leave the pool, and end."""
        self.agent.set_gate("leaving", "leaving the pool")
        self._report_closed()
        self.agent.stop_all(StopCause.RELEASE, "the worker is leaving")
        self._wait_until(lambda: not self._unfinished(), self.settings.kill_grace + 5.0)
        self._wait_until(lambda: self.outbox.empty, DELIVER_SECONDS)
        try:
            self.coordinator.leave(self.session)
            said = f"{self.settings.name} has left the pool"
        except (NoAnswer, Refused) as error:
            said = f"stopped, but the coordinator was not told ({error}); the jobs are free when their leases end"
        said += f"; {farewell(self.agent.runners.values(), self.state, self.settings.token_file)}"
        threading.Timer(0.2, setattr, (self, "_ending", Ending.AT_ONCE)).start()
        return said
