"""The lifecycle under every order of events that hypothesis finds, with the real operations and a fake clock.

Answers get lost, messages come twice and late, workers restart and forget, the coordinator restarts. What must hold is
checked after every step. The last tests each plant a fault, and check that the machine finds it.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from msgspec import structs

from deborgen_coordinator import blame
from deborgen_coordinator.operations import rounds, steps
from deborgen_coordinator.operations.maintenance import lease_check
from deborgen_coordinator.operations.workers import claim, pick
from deborgen_coordinator.storage import attempts, jobs, lease_clock, workers
from deborgen_coordinator.storage.database import DatabaseConnection
from deborgen_shared.states import TERMINAL, Outcome, State
from support.in_process import LEASE, PAST_LEASE, InProcessCoordinator, InProcessWorker
from support.simulation_bugs import go_on_after_a_cancel

TERMINAL_NAMES = {str(state) for state in TERMINAL}
OUTCOMES = [str(outcome) for outcome in Outcome if outcome is not Outcome.LOST]
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
#: Fewer failures than in the product, so that workers are on probation often.
PROBATION_AFTER = 2


@pytest.fixture(autouse=True)
def early_probation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blame, "FAILURES_BEFORE_PROBATION", PROBATION_AFTER)


class Lifecycle(RuleBasedStateMachine):
    """Two workers, one coordinator, and everything that can go wrong between them."""

    attempts_given = Bundle("attempts_given")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=IN_MEMORY))
        self.pool = InProcessCoordinator(self.folder)
        self.machines: dict[str, InProcessWorker] = {name: self.pool.worker(name) for name in ("pc1", "pc2")}
        #: The worker that got each attempt.
        self.owner: dict[str, str] = {}
        #: Each claim: the worker, its session, the request id, and the attempts in the answer.
        self.sent_claims: list[tuple[str, str, str, frozenset[str]]] = []
        #: The state and the exit code of each job that has ended.
        self.terminal: dict[str, tuple[str, Any]] = {}
        #: How many attempts each job had when its cancel was promised.
        self.promised: dict[str, int] = {}
        #: The attempt whose result ended each job.
        self.accepted: dict[str, str] = {}
        #: The number of the newest run.
        self.acknowledged = 0
        #: How many attempts the jobs of each run may have, and how many rounds its loops.
        self.most: dict[int, int] = {}
        self.rounds: dict[int, int] = {}
        #: The last job of each loop that may start, because its cancel was requested.
        self.last_of_loop: dict[tuple[int, int], int] = {}

    def teardown(self) -> None:
        self.pool.stop()
        shutil.rmtree(self.folder)

    @rule(count=st.integers(1, 3), most=st.integers(1, 3), repeat=st.booleans())
    def submit(self, count: int, most: int, repeat: bool) -> None:
        key = f"key-{self.acknowledged}"
        keys: dict[str, Any] = {
            "sweep": {"grid": {"n": list(range(count))}},
            "max_attempts": most,
            "retry": {"backoff": "5s"},
        }
        run = self.pool.submit(key=key, **keys)
        if repeat:
            assert self.pool.submit(key=key, **keys).id == run.id, "a repeated submit made another run"
        self.acknowledged = run.id
        self.most[run.id] = most

    @rule(count=st.integers(1, 2), most=st.integers(1, 3), rounds=st.integers(1, 3))
    def submit_loops(self, count: int, most: int, rounds: int) -> None:
        run = self.pool.submit(
            sweep={"grid": {"n": list(range(count))}}, max_attempts=most, retry={"backoff": "5s", "program": True},
            repeat={"until": "true", "most": rounds},
        )  # fmt: skip
        self.acknowledged = run.id
        self.most[run.id] = most
        self.rounds[run.id] = rounds

    @rule(
        target=attempts_given,
        name=st.sampled_from(["pc1", "pc2"]),
        most=st.integers(1, 3),
        answer_lost=st.booleans(),
        confirm=st.booleans(),
    )
    def claim(self, name: str, most: int, answer_lost: bool, confirm: bool) -> Any:
        given = self.claim_checked(name, most, answer_lost)
        if confirm and given:
            self.machines[name].beat(*given)
        return given[0] if given else "9.9/9"

    @rule(name=st.sampled_from(["pc1", "pc2"]))
    def a_worker_fails_with_all_that_it_gets(self, name: str) -> None:
        """Random events alone hardly ever put a worker on probation."""
        self.submit(3, 3, False)
        for attempt in self.claim_checked(name, 3, False):
            self.finish(attempt, "error", False)

    @rule(
        name=st.sampled_from(["pc1", "pc2"]),
        answers=st.lists(st.booleans(), min_size=1, max_size=5),
        canceled=st.booleans(),
    )
    def a_worker_goes_on_with_a_loop(self, name: str, answers: list[bool], canceled: bool) -> None:
        """Random events alone hardly ever bring a loop to its second round, or cancel it between two of its jobs."""
        if not self.rounds:
            self.submit_loops(1, 1, 3)
        for answer in answers:
            for attempt in self.claim_checked(name, 1, False):
                job = self.pool.job(attempt.split("/")[0])
                is_check = job.phase == "verify"
                if canceled and job.phase:
                    self.cancel_run(job.run)
                self.finish(attempt, "succeeded" if answer or not is_check else "failed", False)

    def claim_checked(self, name: str, most: int, answer_lost: bool) -> list[str]:
        worker = self.machines[name]
        request = f"r{len(self.sent_claims)}"
        failures, pauses, live = self.pool.ctx.store.read(lambda reader: self.standing_of(reader, name))
        given = worker.claim(most, request)
        assert not (given and pauses), "a worker got a job while it had to pause"
        several = live + len(given) > max(1, live)
        assert not (several and failures >= PROBATION_AFTER), "a worker that keeps failing got several jobs"
        for attempt in given:
            assert attempt not in self.owner, f"{attempt} was given twice"
            self.owner[attempt] = name
        if answer_lost:
            again = worker.claim(most, request)
            assert again == given, f"the repeat of a claim got {again}, not {given}"
        self.sent_claims.append((name, worker.session, request, frozenset(given)))
        return given

    @staticmethod
    def standing_of(reader: DatabaseConnection, name: str) -> tuple[int, bool, int]:
        """A worker's failures in a row, whether it has to pause, and how many attempts it holds."""
        worker = workers.get(reader, name)
        assert worker is not None
        held = attempts.names_held_by(reader, worker.id)
        return worker.failures, worker.rest_clock > lease_clock.read(reader), len(held)

    @rule(data=st.data())
    def replay_an_old_claim(self, data: st.DataObject) -> None:
        if not self.sent_claims:
            return
        name, session, request, given = data.draw(st.sampled_from(self.sent_claims))
        worker = self.machines[name]
        if session != worker.session or not given:
            return
        again = set(worker.claim(3, request))
        assert again <= given, f"an old claim got more than it ever had: {again - given}"

    @rule(attempt=attempts_given, claimed_by=st.sampled_from(["owner", "pc1", "pc2"]))
    def beat(self, attempt: str, claimed_by: str) -> None:
        name = self.owner.get(attempt, "pc1") if claimed_by == "owner" else claimed_by
        answer = self.machines[name].beat(attempt)[attempt]
        if self.owner.get(attempt) != name:
            assert answer == "stop", "a worker renewed what was never its own"

    @rule(attempt=attempts_given, outcome=st.sampled_from(OUTCOMES), twice=st.booleans())
    def finish(self, attempt: str, outcome: str, twice: bool) -> None:
        name = self.owner.get(attempt)
        if name is None:
            return
        job = attempt.split("/")[0]
        answer = self.machines[name].finish(attempt, outcome)
        if answer == "accepted":
            state = self.pool.job(job).state
            if outcome == "succeeded":
                assert state == "succeeded"
            if state in TERMINAL_NAMES:
                assert job not in self.accepted, f"{job} has two winners: {self.accepted[job]} and {attempt}"
                self.accepted[job] = attempt
        if twice:
            again = self.machines[name].finish(attempt, outcome)
            assert again != "accepted", "the same result was recorded twice"

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if not self.acknowledged:
            return
        self.cancel_run(data.draw(st.integers(1, self.acknowledged)))

    def cancel_run(self, run: int) -> None:
        for name, meaning in self.pool.cancel(str(run)).items():
            job = self.pool.job(name)
            if meaning == "canceled":
                self.promised[name] = len(job.history)
            if meaning != "already_terminal" and run in self.rounds:
                self.last_of_loop.setdefault((run, job.params["n"]), job.index)

    @rule(seconds=st.sampled_from([1.0, 10.0, LEASE / 2, PAST_LEASE]))
    def time_passes(self, seconds: float) -> None:
        self.pool.sleep(seconds)

    @rule(down_for=st.sampled_from([0.0, 5.0, 1000.0]))
    def the_coordinator_restarts(self, down_for: float) -> None:
        running = {job.id for job in self.every_job() if job.state == "running"}
        self.pool.restart(down_for)
        still = {job.id for job in self.every_job() if job.state == "running"}
        assert running == still, "a restart of the coordinator lost a lease"

    @rule(name=st.sampled_from(["pc1", "pc2"]), remembers=st.booleans())
    def a_worker_restarts(self, name: str, remembers: bool) -> None:
        worker = self.machines[name]
        worker.restart(worker.holding if remembers else [])

    @rule(name=st.sampled_from(["pc1", "pc2"]))
    def a_registration_is_repeated(self, name: str) -> None:
        worker = self.machines[name]
        holding = worker.holding
        before = [job.state for job in self.every_job()]
        worker.register()
        worker.holding = holding
        assert before == [job.state for job in self.every_job()], "a repeated registration ended something"

    def every_job(self) -> list[Any]:
        found = []
        for run in range(1, self.acknowledged + 1):
            counts = self.pool.run(run).jobs
            total = sum(getattr(counts, state) for state in ("queued", "running", "succeeded", "failed", "canceled"))
            found += [self.pool.job(f"{run}.{index}") for index in range(1, total + 1)]
        return found

    def check_loop(self, key: tuple[int, int], jobs: list[Any]) -> None:
        """The rounds of a loop follow each other without a gap, and each job lets the next one come."""
        places = [(phase, number) for number in range(1, self.rounds[key[0]] + 1) for phase in ("work", "verify")]
        assert [(job.phase, job.round) for job in jobs] == places[: len(jobs)], f"the loop {key} has a gap"
        *before, last = jobs
        for job in before:
            goes_on = job.state == "succeeded" and job.verified is (None if job.phase == "work" else False)
            assert goes_on, f"the loop {key} went on after {job.id}"
        is_complete = last.phase == "verify" and last.verified is True
        assert last.state != "succeeded" or is_complete, f"the loop {key} stopped after {last.id}"
        for job in jobs:
            no_more = job.index > self.last_of_loop.get(key, job.index)
            assert not no_more or job.state == "canceled", f"{job.id} may start after the cancel of its loop"

    @invariant()
    def every_rule_holds(self) -> None:
        counted: dict[tuple[int, str], int] = {}
        loops: dict[tuple[int, int], list[Any]] = {}
        for job in self.every_job():
            if job.run in self.rounds:
                loops.setdefault((job.run, job.params["n"]), []).append(job)
            counted[job.run, job.state] = counted.get((job.run, job.state), 0) + 1
            live = [attempt.number for attempt in job.history if attempt.outcome is None]
            assert len(live) <= 1, f"{job.id} has two live attempts: {live}"
            assert (len(live) == 1) == (job.state == "running"), f"{job.id} is {job.state} with live attempts {live}"
            assert job.attempts <= self.most[job.run], f"{job.id} used {job.attempts} attempts of {self.most[job.run]}"
            assert [attempt.number for attempt in job.history] == list(range(1, len(job.history) + 1))
            if job.id in self.terminal:
                assert self.terminal[job.id] == (job.state, job.exit_code), f"{job.id} left its terminal state"
            elif job.state in TERMINAL_NAMES:
                self.terminal[job.id] = (job.state, job.exit_code)
            if job.id in self.promised:
                assert len(job.history) == self.promised[job.id], f"{job.id} started after its cancel was promised"
        for key, loop in loops.items():
            self.check_loop(key, loop)
        for run in range(1, self.acknowledged + 1):
            counts = self.pool.run(run).jobs
            for state in ("queued", "running", "succeeded", "failed", "canceled"):
                assert getattr(counts, state) == counted.get((run, state), 0), f"run {run} miscounts {state} jobs"


QUICK = settings(
    max_examples=120,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def test_the_lifecycle_holds_in_every_order_of_events() -> None:
    run_state_machine_as_test(Lifecycle, settings=QUICK)


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """Results are accepted for any attempt of the worker, current or not, and written unconditionally."""
    real = attempts.get

    def current_by_decree(tx: Any, job: int, number: int) -> Any:
        held = real(tx, job, number)
        return held and structs.replace(
            held, outcome=None, digest=None, job_last_attempt=number, job_state=State.RUNNING
        )

    def end_regardless(tx: Any, job: int, number: int, outcome: Outcome, *, now: float, **_: Any) -> int:
        sql = "UPDATE attempt SET outcome = ?, finished_at = ?, lease_clock = NULL WHERE job_id = ? AND number = ?"
        return tx.run(sql, (outcome.value, now, job, number))  # type: ignore[no-any-return]

    def finish_regardless(tx: Any, job: int, number: int, state: State, *, exit_code: Any, now: float, **_: Any) -> int:
        sql = (
            "UPDATE job SET state = ?, exit_code = ?, finished_at = ?, ready = 0, wait_clock = NULL, avoid_clock = NULL"
        )
        return tx.run(sql + " WHERE id = ?", (state.value, exit_code, now, job))  # type: ignore[no-any-return]

    patch.setattr(attempts, "get", current_by_decree)
    patch.setattr(attempts, "end", end_regardless)
    patch.setattr(jobs, "finish", finish_regardless)


def no_idempotent_claim(patch: pytest.MonkeyPatch) -> None:
    """A repeated claim is answered as if it were new."""
    numbers = iter(range(10**6))
    patch.setattr(attempts, "claim_of", lambda *args: None)
    real = attempts.new_claim
    patch.setattr(attempts, "new_claim", lambda tx, w, r, now: real(tx, w, f"{r}-{next(numbers)}", now))


def check_then_write(patch: pytest.MonkeyPatch) -> None:
    """Jobs are looked up first and claimed later, without checking that they are still ready."""
    real = jobs.first_of_lane

    def late(tx: Any, head: Any, most: int) -> Any:
        before, now = getattr(tx.connection, "seen", []), real(tx, head, most)
        tx.connection.seen = now
        return before or now

    def regardless(tx: Any, picked: Any, worker_id: int, now: float) -> int:
        statement = (
            "UPDATE job SET state = 'running', ready = 0, attempts = attempts + 1, last_attempt = last_attempt + 1,"
            " worker_id = ?, started_at = ?, finished_at = NULL WHERE id = ?"
        )
        return sum(tx.run(statement, (worker_id, now, job)) for job in picked)

    patch.setattr(jobs, "first_of_lane", late)
    patch.setattr(jobs, "start", regardless)


def lease_counted_while_down(patch: pytest.MonkeyPatch) -> None:
    """A restart does not extend live leases, and the lease clock moves while no coordinator runs."""
    patch.setattr(lease_check, "clock_move", lambda elapsed, lease, late_checks: _ClockMove(elapsed or 2 * LEASE))


@dataclasses.dataclass(frozen=True)
class _ClockMove:
    advance: float
    regrant: bool = False


def registration_without_memory(patch: pytest.MonkeyPatch) -> None:
    """A repeated registration is treated as a new one."""
    patch.setattr(workers, "lost_by_session", lambda *args: None)
    patch.setattr(workers, "add_session", lambda *args: None)


def no_probation(patch: pytest.MonkeyPatch) -> None:
    """A worker gets all that it asks for, however often it has failed."""
    patch.setattr(claim, "_retry_after", lambda *_: None)
    patch.setattr(pick, "on_probation", lambda *_: False)


def no_next_round(patch: pytest.MonkeyPatch) -> None:
    """A loop ends with its first job."""
    patch.setattr(steps, "add_jobs", lambda *_: None)


def rounds_after_a_cancel(patch: pytest.MonkeyPatch) -> None:
    """A loop goes on although its cancel was requested."""
    patch.setattr(steps, "add_jobs", go_on_after_a_cancel(rounds.add_jobs))


@pytest.mark.parametrize(
    ("plant", "finding"),
    [
        (no_next_round, "stopped after"),
        (rounds_after_a_cancel, "may start after the cancel of its loop"),
        (
            no_fence,
            "(CHECK|UNIQUE) constraint|two winners|left its terminal state|miscounts|live attempts|recorded twice",
        ),
        (no_idempotent_claim, "the repeat of a claim got|an old claim got more"),
        (check_then_write, "constraint failed|was given twice|two live attempts"),
        (lease_counted_while_down, "a restart of the coordinator lost a lease"),
        (no_probation, "a worker that keeps failing got several jobs|while it had to pause"),
        (registration_without_memory, "a repeated registration ended something"),
    ],
)
def test_the_machine_finds_a_planted_fault(plant: Any, finding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault may break several rules. Which one is seen first depends on the random draws, and so on the source of
    this machine."""
    plant(monkeypatch)
    hunt = settings(QUICK, max_examples=300, phases=[Phase.generate], report_multiple_bugs=False, print_blob=False)
    with pytest.raises(Exception, match=finding):
        run_state_machine_as_test(Lifecycle, settings=hunt)
