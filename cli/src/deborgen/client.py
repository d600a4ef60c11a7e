"""deborgen from Python: submit, wait, read the results.

import deborgen

run = deborgen.Client().map("python sim.py --x {x}", [{"x": 1}, {"x": 2}], files=["sim.py"])
for job in run.as_completed():
    print(job.params, job.result)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import msgspec

from deborgen import refs, stream
from deborgen.connection import Connection
from deborgen.errors import NotFound, WrongUsage
from deborgen.profile import find
from deborgen.results import Results
from deborgen.runs import Job, Run
from deborgen_shared import contract, messages
from deborgen_shared.queries import EventsQuery, ImagesQuery, RunJobsQuery, RunsQuery
from deborgen_shared.states import State

__all__ = ["Client", "Job", "Results", "Run"]


class Client:
    """A coordinator: without arguments, the one that the command uses (environment, profile or `deborgen up`)."""

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        self.target = find(url, token)
        self.url = self.target.url
        self.connection = Connection(self.target.url, self.target.token)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()

    def submit(
        self,
        job: str | os.PathLike[str] | Mapping[str, Any],
        params: Mapping[str, Any] | None = None,
        *,
        base: str | os.PathLike[str] | None = None,
        key: str | None = None,
    ) -> Run:
        """Submit a job file, given as a path or as a dict, and return its run. InvalidJob lists all problems at once.

        `params` overrides or adds axes: a list is swept over, anything else is a single value. The paths in the `files`
        of a dict are relative to `base`, by default the current folder. With a `key`, calling this again returns the
        same run, even from another process; without one, only the retries within this call are safe.
        """
        from deborgen.submit import read, send

        if isinstance(job, Mapping):
            prepared = read.prepare_data(dict(job), Path(base or "."), params or {})
        else:
            prepared = read.prepare_file(Path(job), params or {})
        return Run(self.connection, send.send(self.connection, prepared, key or str(uuid4()), pins=key is None))

    def map(self, command: str, cases: Iterable[Mapping[str, Any]], *, name: str = "map", **keys: Any) -> Run:
        """Run the command once per case. `{x}` becomes the case's `x`, quoted for the shell; `{{` is a brace.

        `keys` are further keys of the job file: `files=["sim.py"]`, `image=…`, `resources={"cpus": 2}`.
        """
        from deborgen.submit.read import braces_to_template

        rows = [dict(case) for case in cases]
        job = {"name": name, "run": braces_to_template(command), "sweep": {"cases": rows}, **keys}
        return self.submit(job)

    def named(self, name: str) -> Run | Job:
        """A run by its number or `last`, or a job by its id."""
        return self.run(name) if refs.parse(name).index is None else self.job(name)

    def run(self, run: int | str) -> Run:
        """A run by its number, or `last` for the newest run of this person."""
        ref = refs.parse(str(run))
        if ref.index is not None:
            raise WrongUsage(f"{run} is a job, and this needs a run", f"write {ref.run or 'last'}")
        if ref.run is None:
            return Run(self.connection, self._last())
        return Run(self.connection, self.connection.call(contract.GET_RUN, run=ref.run))

    def runs(
        self,
        *,
        state: str | None = None,
        submitter: str | None = None,
        label: str | None = None,
        limit: int | None = 20,
    ) -> Iterator[Run]:
        """Runs, newest first."""
        query = RunsQuery(state=State(state) if state else None, submitter=submitter, label=label)
        for found in self.connection.items(contract.LIST_RUNS, query, limit):
            yield Run(self.connection, found)

    def job(self, job: str) -> Job:
        """A job by its id, or by the number of its run if that has only one job."""
        ref = refs.parse(job)
        number = self._number(ref)
        if ref.index is None:
            # Two jobs are enough to know that there is more than one.
            first_two = list(self.connection.items(contract.LIST_RUN_JOBS, RunJobsQuery(), 2, run=number))
            if not first_two:
                raise NotFound(f"run {number} has no jobs")
            if len(first_two) > 1:
                raise NotFound(f"run {number} has more than one job", f"name one of them: {number}.1, {number}.2 …")
            return Job(self.connection, first_two[0])
        return Job(self.connection, self.connection.call(contract.GET_JOB, job=f"{number}.{ref.index}"))

    def workers(self) -> list[messages.Worker]:
        """The machines of the pool."""
        return self.connection.call(contract.LIST_WORKERS).items

    def worker(self, name: str) -> messages.Worker:
        """One machine of the pool."""
        return self.connection.call(contract.GET_WORKER, name=name)

    def images(self, *, replaced: bool = False) -> list[messages.ImageView]:
        """The images that the pool has built, newest first; with `replaced`, also those whose name is taken."""
        query = ImagesQuery(replaced=int(replaced))
        return list(self.connection.items(contract.LIST_IMAGES, query, None))

    def remove_image(self, name: str) -> None:
        """Remove an image by its name and tag. Unfinished jobs that name it can still use it."""
        self.connection.call(contract.REMOVE_IMAGE, image=name)

    def events(
        self,
        *,
        after: int | None = None,
        run: int | None = None,
        job: str | None = None,
        worker: str | None = None,
        limit: int | None = 100,
        follow: bool = False,
        on_trouble: Callable[[str], None] = lambda sentence: None,
    ) -> Iterator[messages.Event]:
        """The history: the newest events, or the events after number `after`. With `follow`, events as they happen."""
        query = EventsQuery(run=run, job=job, worker=worker)
        if follow:
            yield from stream.events(self.connection, query, after, on_trouble=on_trouble)
        elif after is None and limit is not None:
            yield from stream.latest(self.connection, query, limit)
        else:
            yield from stream.history(self.connection, msgspec.structs.replace(query, after=after or 0), limit)

    def steer(self, worker: str, order: Literal["pause", "resume", "drain"]) -> messages.Worker:
        """Pause, resume or drain a worker (admin)."""
        steer = messages.SteerWorker
        body = {"pause": steer(paused=True), "resume": steer(paused=False, drain=False), "drain": steer(drain=True)}
        return self.connection.call(contract.STEER_WORKER, body[order], name=worker)

    def me(self) -> messages.Me:
        """Whose token this is."""
        return self.connection.call(contract.ME)

    def health(self) -> messages.Health:
        return self.connection.call(contract.HEALTH)

    def _number(self, ref: refs.Ref) -> int:
        return ref.run if ref.run is not None else self._last().id

    def _last(self) -> messages.Run:
        try:
            return self.connection.call(contract.LAST_RUN)
        except NotFound as nothing:
            raise NotFound(nothing.message, "deborgen submit FILE creates a run") from None
