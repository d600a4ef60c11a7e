"""Pick the jobs for a claim: jobs that fit the worker, in order. Jobs that it is known to fail with come last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from deborgen_shared.messages import NextClaim

from ...blame import on_probation
from ...placement import LEAST_CHARGED_CPUS, Amounts, Head, MachineOffer, Needs, Wish, choose, lacks
from ...storage import attempts, experiences, jobs
from ...storage.rows import WorkerRow
from ..attempts.failures import subjects_of_job
from ..secrets import missing_secrets
from ..spec_cache import CachedSpec
from ..work import Work
from ..worker_fit import machine
from .assignments import Picked

#: Examine at most this many further jobs of a lane, to find one that the worker is not known to fail with.
LOOK_PAST = 50


@dataclass
class Picking:
    """One claim of one worker. What has to be read for it is added to `specs` and `needs`. `contended` says that
    another coordinator has locked jobs that might fit."""

    work: Work
    worker: WorkerRow
    body: NextClaim
    specs: dict[int, CachedSpec]
    needs: dict[int, Needs]
    contended: bool = False
    #: The needs of all jobs that were ready, before any was picked.
    seen: dict[int, Needs] = field(default_factory=dict)
    _details: dict[int, Picked] = field(default_factory=dict)

    def pick(self) -> list[Picked]:
        """The jobs for this claim. A machine gets a job whose image or workspace it failed with only if there is no
        other job for it and no other machine could take this one, and then only one such job at a time."""
        heads = self._open_heads()
        if not heads:
            return []
        avoided = experiences.avoided_by(self.work.tx, self.worker.id, self.work.clock)
        most = 1 if on_probation(self.worker.failures) else self.body.max
        found = self._choose(heads, most, avoided, lambda head, subjects: not subjects)
        if not found and avoided:
            found = self._choose(heads, 1, avoided, lambda head, subjects: not self._another_could(head, subjects))
        return found

    def _open_heads(self) -> list[Head]:
        """The first jobs of the lanes that this worker may take jobs from."""
        offer: MachineOffer = machine(self.worker)
        fits: dict[int, bool] = {}
        found = []
        for head in jobs.lane_heads(self.work.tx):
            if head.class_id not in fits:
                needs = self.seen[head.class_id] = self._needs_of(head.class_id)
                fits[head.class_id] = not lacks(offer, needs)
            avoided = head.avoid == self.worker.id and self._another_could(head, set())
            if fits[head.class_id] and not avoided and self._has_secrets(head):
                found.append(head)
        return found

    def _has_secrets(self, head: Head) -> bool:
        names = self._needs_of(head.class_id).secrets
        return not names or not missing_secrets(self.work.ctx, self.work.tx, head.submitter, names)

    def _another_could(self, head: Head, subjects: set[str]) -> bool:
        return self.work.ctx.worker_fit.another_could(self._needs_of(head.class_id), self.worker.name, subjects)

    def _needs_of(self, class_id: int) -> Needs:
        return self.work.ctx.spec_cache.needs(self.work.tx, class_id, self.needs)

    def _choose(
        self, heads: list[Head], most: int, avoided: set[str], accepts: Callable[[Head, set[str]], bool]
    ) -> list[Picked]:
        """At most this many jobs. `accepts` decides on each: it gets its lane's head, and its avoided subjects."""

        def fetch(head: Head, count: int) -> list[tuple[int, int]]:
            rows = jobs.first_of_lane(self.work.tx, head, count + (LOOK_PAST if avoided else 0))
            self.contended |= not rows
            taken = []
            for rank, job, step, spec_id, params, last in rows:
                picked = Picked(job, last + 1, step, spec_id, params)
                if not avoided or accepts(head, self._subjects(picked) & avoided):
                    self._details[job] = picked
                    taken.append((rank, job))
            return taken[:count]

        free, capacity = self.body.free, machine(self.worker).capacity
        room = Amounts(
            min(free.cpus, capacity.cpus),
            min(free.memory, capacity.memory),
            min(free.gpus, capacity.gpus),
            free.disk or None,
        )
        chosen = choose(
            heads,
            Wish(most, room, self.body.ahead and most > 1),
            needs_of=self._needs_of,
            fetch=fetch,
            used=self._usage() if self.work.ctx.settings.scheduler == "fair" else None,
            allowance=self._allowance(heads),
        )
        return [self._details[job] for job, _ in chosen]

    def _subjects(self, picked: Picked) -> set[str]:
        spec = self.work.ctx.spec_cache.spec(self.work.tx, picked.spec_id, self.specs).job
        return subjects_of_job(picked.spec_id, spec, picked.params)

    def _usage(self) -> dict[int, float]:
        used, running = attempts.usage(self.work.tx, self.work.clock)
        for submitter, class_id, seconds in running:
            cpus = max(self._needs_of(class_id).resources.cpus, LEAST_CHARGED_CPUS)
            used[submitter] = used.get(submitter, 0.0) + float(seconds) * cpus
        return used

    def _allowance(self, heads: list[Head]) -> dict[int, int]:
        """How many more jobs each submitter may have running, if the settings limit it."""
        most = self.work.ctx.settings.max_running_per_submitter
        if not most:
            return {}
        self.work.tx.connection.lock_limits()
        running = jobs.running_per_submitter(self.work.tx)
        return {head.submitter: most - running.get(head.submitter, 0) for head in heads}
