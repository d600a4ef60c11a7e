"""deborgen why"""

from __future__ import annotations

import click

from deborgen import groups, output
from deborgen.cli import App, json_option, verb
from deborgen.client import Client
from deborgen.runs import Job
from deborgen_shared.states import State
from deborgen_shared.terminal import inert

#: The states of a run's jobs, most interesting first: the explained job is in the first state that has any jobs.
STATES_BY_INTEREST = (State.QUEUED, State.FAILED, State.CANCELED, State.RUNNING, State.SUCCEEDED)


@verb(name="why")
@click.argument("ref", metavar="[RUN|JOB]", default="last")
@json_option
def command(app: App, ref: str, as_json: bool) -> None:
    """Explain why a job is waiting, or why it ended as it did.

    For a waiting job, each worker has a line that says why it cannot run the job now. For a run with several jobs, the
    first waiting job is explained or, if none is waiting, the first failed one.
    """
    why = _job(app.client, ref).why()
    if as_json:
        output.json("why", why)
    elif output.on_terminal():
        output.write(f"{why.job}: {inert(why.summary)}\n")
        width = max((len(worker.worker) for worker in why.workers), default=0)
        for worker in why.workers:
            mark = "✓" if worker.fits else "✗"
            output.write(f"  {mark} {worker.worker:<{width}}  {inert(worker.reason)}\n")
        for line in why.last_lines:
            output.write(f"  | {inert(line)}\n")
    else:
        rows = [[why.job, worker.worker, worker.fits, worker.reason] for worker in why.workers]
        output.table(["job", "worker", "fits", "reason"], [[why.job, "", "", why.summary], *rows], text=["reason"])


def _job(client: Client, ref: str) -> Job:
    run = client.named(ref)
    if isinstance(run, Job):
        return run
    while True:
        state = next(state for state in STATES_BY_INTEREST if run.counts[state])
        job = next(run.jobs(state, 1), None)
        if job is not None:  # otherwise it has just moved to another state
            break
        run.refresh()
    if run.total > 1:
        tally = f"{run.counts[state]:,} of {output.counted(run.total, 'job')} {state}"
        for line in groups.described(run.overview()):
            output.say(line)
        output.hint(f"run {run.id}: {tally}; this is the first, {job.id}")
    return job
