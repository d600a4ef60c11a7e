"""deborgen show"""

from __future__ import annotations

import click
import msgspec

from deborgen import output
from deborgen.cli import App, json_option, verb
from deborgen.runs import Job, Run
from deborgen_shared.jobfile.template import render
from deborgen_shared.states import State

ATTEMPT_COLUMNS = ["attempt", "worker", "outcome", "exit_code", "seconds", "log", "started", "reason"]
JOB_COLUMNS = ["job", "state", "params", "worker", "exit_code", "seconds", "reason"]


@verb(name="show")
@click.argument("ref", metavar="[RUN|JOB]", default="last")
@click.option(
    "-n", "--limit", default=50, show_default=True, type=click.IntRange(1), metavar="N", help="Show at most N jobs."
)
@json_option
def command(app: App, ref: str, limit: int, as_json: bool) -> None:
    """Show one run, or one job with its attempts.

    In a pipe, it prints only the table of the run's jobs, or of the job's attempts.
    """
    named = app.client.named(ref)
    if isinstance(named, Job):
        _show_job(named, as_json)
    elif as_json:
        jobs = [job.data for job in named.jobs(limit=limit)]
        output.json("run", {**msgspec.structs.asdict(named.data), "items": jobs})
    elif named.total == 1 and output.on_terminal():
        _show_job(next(named.jobs(limit=1)), as_json)
    else:
        _show_run(named, limit)


def _show_run(run: Run, limit: int) -> None:
    if output.on_terminal():
        data, counts = run.data, run.counts
        tally = ", ".join(f"{counts[state]:,} {state}" for state in counts if counts[state])
        output.write(f"run {run.id}  {output.one_line(run.name)}  {run.state}: {tally}\n")
        output.write(f"submitted by {output.one_line(data.submitter)} {output.age(data.created_at)}")
        if data.finished_at:
            output.write(f", took {output.seconds(data.finished_at - data.created_at)}")
        output.write(f", a retry of run {data.retry_of}\n" if data.retry_of else "\n")
        if data.labels:
            output.write(f"labels: {output.one_line(output.cell(data.labels))}\n")
        for warning in data.warnings:
            output.write(f"warning: {output.one_line(warning)}\n")
        output.write("\n")
    jobs = list(run.jobs(limit=limit))
    rows = []
    for job in jobs:
        one = job.data
        took = one.finished_at - one.started_at if one.started_at and one.finished_at else None
        named = {"step": one.step, **one.params} if one.step else one.params
        rows.append([job.id, one.state, named, one.worker, one.exit_code, took, one.reason])
    output.table(JOB_COLUMNS, rows, shown={"seconds": output.seconds}, numeric=["seconds", "exit_code"])
    if run.total > len(jobs):
        output.hint(f"… and {run.total - len(jobs):,} more: deborgen show {run.id} --limit {run.total}")


def _show_job(job: Job, as_json: bool) -> None:
    detail = job.detail()
    if as_json:
        output.json("job", detail)
        return
    if output.on_terminal():
        params = output.cell(detail.params)
        output.write(f"job {detail.id}  {output.one_line(detail.name)}  {detail.state}")
        output.write(f": {output.one_line(detail.reason)}\n" if detail.reason else "\n")
        command_line = render(detail.spec, detail.params, {"job.id": detail.id, "run.id": str(detail.run)}).get("run")
        for name, value in {
            "step": detail.step,
            "parameters": params,
            "command": command_line if isinstance(command_line, str) else " ".join(map(str, command_line or [])),
            "image": detail.spec.get("image"),
            "result": output.cell(detail.result or {}),
            "submitter": detail.submitter,
        }.items():
            if value:
                output.write(f"{name:<12}{output.one_line(str(value).strip())}\n")
        for warning in detail.warnings:
            output.write(f"{'warning':<12}{output.one_line(warning)}\n")
        for artifact in detail.artifacts:
            output.write(f"{'artifact':<12}{output.one_line(artifact.path)} ({output.size(artifact.size)})\n")
        output.write("\n")
    if detail.history or not output.on_terminal():
        rows = [
            [a.number, a.worker, a.outcome or State.RUNNING, a.exit_code, a.seconds, a.log_size, a.started_at, a.reason]
            for a in detail.history
        ]
        output.table(
            ATTEMPT_COLUMNS,
            rows,
            shown={"seconds": output.seconds, "log": output.size, "started": output.age},
            numeric=["seconds", "exit_code", "log"],
        )
    else:
        output.hint(f"not started yet. Next: deborgen why {detail.id}")
