"""Show the steps of a run: what each needs, how far it is, and what its jobs have in common."""

from __future__ import annotations

import msgspec

from deborgen_shared.messages import RunSteps, StepView

from ...storage import specs
from ...storage.database import DatabaseConnection
from ..context import Context
from ..lookup import find_run


def steps(ctx: Context, run: int) -> RunSteps:
    def look(reader: DatabaseConnection) -> list[StepView]:
        find_run(reader, run)
        return [
            StepView(
                id=row.name,
                needs=row.needs,
                jobs=row.jobs,
                unfinished=row.unfinished,
                waits=row.blockers > 0,
                spec=msgspec.json.decode(ctx.spec_cache.spec(reader, row.spec_id).raw),
            )
            for row in specs.steps(reader, run)
        ]

    return RunSteps(items=ctx.store.read(look), next=None)
