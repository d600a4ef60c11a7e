"""deborgen show"""

from __future__ import annotations

import click
import msgspec

from deborgen import groups, output
from deborgen.cli import App, json_option, verb
from deborgen.runs import Job, Run
from deborgen_shared.jobfile.template import render
from deborgen_shared.messages import JobDetail
from deborgen_shared.states import Outcome, Phase, State
from deborgen_shared.terminal import inert

ATTEMPT_COLUMNS = ["attempt", "worker", "outcome", "exit_code", "seconds", "log", "started", "reason"]
JOB_COLUMNS = ["job", "state", "params", "worker", "exit_code", "seconds", "reason"]


@verb(name="show")
@click.argument("ref", metavar="[RUN|JOB]", default="last")
@click.option(
    "-n", "--limit", default=50, show_default=True, type=click.IntRange(1), metavar="N", help="Show at most N jobs."
)
@click.option("--state", type=click.Choice([str(each) for each in State]), help="Show only the jobs in this state.")
@json_option
def command(app: App, ref: str, limit: int, state: str | None, as_json: bool) -> None:
    """Show one run, or one job with its attempts.

    In a pipe, it prints only the table of the run's jobs, or of the job's attempts.
    """
    named = app.client.named(ref)
    if isinstance(named, Job):
        if state:
            raise click.UsageError("--state needs a run: a single job has only one state.")
        _show_job(app, named, as_json)
    elif as_json:
        jobs = [job.data for job in named.jobs(state, limit)]
        output.json("run", {**msgspec.to_builtins(named.data), "items": jobs})
    elif named.total == 1 and not state and output.on_terminal():
        _show_job(app, next(named.jobs(limit=1)), as_json)
    else:
        _show_run(named, limit, state)


def _show_run(run: Run, limit: int, state: str | None) -> None:
    overview = run.overview()
    if output.on_terminal():
        about = run.data
        tally = ", ".join(f"{count:,} {shown}" for shown, count in run.tally(overview).items())
        output.write(f"run {run.id}  {inert(run.name)}  {run.state}: {tally}\n")
        output.write(f"submitted by {inert(about.submitter)} {output.age(about.created_at)}")
        if about.finished_at:
            output.write(f", took {output.seconds(about.finished_at - about.created_at)}")
        output.write(f", a retry of run {about.retry_of}\n" if about.retry_of else "\n")
        if run.source():
            output.write(f"workspace: {inert(run.source())}\n")
        if about.labels:
            output.write(f"labels: {inert(output.cell(about.labels))}\n")
        for warning in about.warnings:
            output.write(f"warning: {inert(warning)}\n")
        output.write("\n")
    jobs = list(run.jobs(state, limit))
    rows = []
    for job in jobs:
        data = job.data
        took = data.finished_at - data.started_at if data.started_at and data.finished_at else None
        shown_state = job.shown_state if output.on_terminal() else data.state
        rows.append([job.id, shown_state, job.place, data.worker, data.exit_code, took, job.shown_reason])
    output.table(
        JOB_COLUMNS,
        rows,
        shown={"seconds": output.seconds},
        numeric=["seconds", "exit_code"],
        text=["params", "reason"],
        spare=["seconds", "worker", "exit_code"],
    )
    for line in groups.described(overview):
        output.say(line)
    total = run.counts[state] if state else run.total
    if total > len(jobs):
        only = f" --state {state}" if state else ""
        output.hint(f"… and {total - len(jobs):,} more: deborgen show {run.id}{only} --limit {total}")


def _in_loop(detail: JobDetail) -> str:
    """Where a job stands in its loop, and what its check has answered."""
    if not detail.phase or not detail.round:
        return ""
    answer = {None: "", True: ": verified", False: ": not verified"}[detail.verified]
    return f"{detail.phase} of round {detail.round}{answer}"


def _show_job(app: App, job: Job, as_json: bool) -> None:
    detail = job.detail()
    if as_json:
        output.json("job", detail)
        return
    if output.on_terminal():
        params = output.cell(detail.params)
        output.write(f"job {detail.id}  {inert(detail.name)}  {detail.state}")
        output.write(f": {inert(detail.reason)}\n" if detail.reason else "\n")
        spec = render(detail.spec, detail.params, {"job.id": detail.id, "run.id": str(detail.run)})
        command_line = spec["repeat"]["until"] if detail.phase == Phase.VERIFY else spec.get("run")
        for name, value in {
            "step": detail.step,
            "loop": _in_loop(detail),
            "parameters": params,
            "command": command_line if isinstance(command_line, str) else " ".join(map(str, command_line or [])),
            "image": detail.spec.get("image"),
            "workspace": app.client.run(detail.run).source() if detail.spec.get("workspace") else "",
            "result": output.cell(detail.result or {}),
            "submitter": detail.submitter,
            "why": job.why().summary if detail.state == State.QUEUED and detail.history else "",
        }.items():
            for line in str(value or "").strip().splitlines():
                output.write(f"{name:<12}{inert(line)}\n")
                name = ""
        if detail.history and detail.history[-1].outcome == Outcome.STALLED:
            output.write("the last lines of its log:\n")
            for line in job.why().last_lines:
                output.write(f"  | {inert(line)}\n")
        for warning in detail.warnings:
            output.write(f"{'warning':<12}{inert(warning)}\n")
        for attempt in detail.history:
            if (start := attempt.went_on_from) is not None:
                words = f"{attempt.number} went on from checkpoint {start.number} of attempt {start.attempt}"
                output.write(f"{'attempt':<12}{words}\n")
        if (saved := detail.checkpoint) is not None:
            words = f"{saved.number} of attempt {saved.attempt}, {output.counted(saved.files, 'file')}"
            output.write(f"{'checkpoint':<12}{words}, {output.size(saved.size)}, {output.age(saved.saved_at)}\n")
        for artifact in detail.artifacts:
            output.write(f"{'artifact':<12}{inert(artifact.path)} ({output.size(artifact.size)})\n")
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
            text=["reason"],
            spare=["log", "started", "seconds"],
        )
    else:
        output.hint(f"not started yet. Next: deborgen why {detail.id}")
