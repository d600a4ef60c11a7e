"""What every operation is given: the settings, the store, the blobs, the clock, the waiting requests and caches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from deborgen_shared.states import Role

from ..caches import SharedCache
from ..clock import Clock
from ..secret_keys import SecretKeys
from ..storage.rows import SignInRow, TokenRow
from ..storage.store import Store
from ..storage.transactions import Tx
from .metrics import CoordinatorMetrics
from .renewal_waits import RenewalWaits
from .spec_cache import SpecCache
from .wakeups import Wakeups
from .work import RefusedTransition, Work
from .worker_fit import WorkerFit

if TYPE_CHECKING:
    from ..blobs import BlobStore
    from ..settings import CoordinatorSettings
    from .runs.overview import KeptOverview
    from .runs.sweep_table import SweepTable

#: Cache tokens for this many seconds, so that a busy client costs one read per second. A token that is revoked by
#: another process stops working within this time; a token that is revoked by this process stops working at once.
TOKEN_CACHE_SECONDS = 1.0
MOST_TOKENS = 1000
MOST_OVERVIEWS = 200
#: The columns of 100,000 jobs take some 20 MB.
MOST_SWEEP_TABLES = 3

T = TypeVar("T")


@dataclass(frozen=True)
class Context:
    settings: CoordinatorSettings
    store: Store
    blobs: BlobStore
    secret_keys: SecretKeys
    clock: Clock
    wakeups: Wakeups
    metrics: CoordinatorMetrics = field(default_factory=CoordinatorMetrics)
    spec_cache: SpecCache = field(default_factory=SpecCache)
    #: Recently used tokens, each with the moment on the steady clock until which it is valid.
    known_tokens: SharedCache[str, tuple[TokenRow, float]] = field(default_factory=lambda: SharedCache(MOST_TOKENS))
    #: Recently used sessions of the dashboard, in the same way.
    known_sign_ins: SharedCache[str, tuple[SignInRow, float]] = field(default_factory=lambda: SharedCache(MOST_TOKENS))
    #: Overviews of ended and of large runs, by run.
    overviews: SharedCache[int, KeptOverview] = field(default_factory=lambda: SharedCache(MOST_OVERVIEWS))
    #: The results of steps as columns, by run and step, each with the moment until which it is valid.
    sweep_tables: SharedCache[tuple[int, int], tuple[SweepTable, float | None]] = field(
        default_factory=lambda: SharedCache(MOST_SWEEP_TABLES)
    )

    @cached_property
    def renewal_waits(self) -> RenewalWaits:
        return RenewalWaits(self.clock.steady, self.settings.heartbeat_seconds)

    @cached_property
    def worker_fit(self) -> WorkerFit:
        return WorkerFit(self.store, self.clock)

    def work(self, actor: Actor, body: Callable[[Work], T]) -> T:
        """Run the body as one unit of work, and return its result after the commit.

        The body may run more than once (its earlier changes are undone), so its only effect must be on its unit. A
        refused transition undoes the whole unit, so the refusal is recorded in a separate transaction.
        """

        def run(tx: Tx) -> T:
            with Work(self, tx, actor) as work:
                return body(work)

        try:
            return self.store.write(run)
        except RefusedTransition as refused:
            about, old, data = refused.about, refused.state, {"event": refused.event}
            self.work(actor, lambda work: work.record("transition.refused", about, old=old, data=data))
            raise


@dataclass(frozen=True, slots=True)
class Actor:
    """Who makes a request: the role and the name of a token, and in a browser also the session."""

    role: Role
    name: str
    token_id: str
    #: The digest of the session of the dashboard; empty for a request that carries the token itself.
    sign_in: str = ""

    def __str__(self) -> str:
        return f"{self.role}:{self.name}"


#: The coordinator itself, acting on its own.
COORDINATOR = Actor(Role.ADMIN, "coordinator", "")
