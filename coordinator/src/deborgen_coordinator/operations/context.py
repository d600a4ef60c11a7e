"""The context of every operation: the store, the blobs, the clock, the settings, and the waiting requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from cachetools import TTLCache

from deborgen_shared.states import Role

from ..caches import SharedCache
from ..clock import Clock
from ..storage.rows import TokenRow
from ..storage.store import Store
from ..storage.transactions import Tx
from .metrics import CoordinatorMetrics
from .spec_cache import SpecCache
from .wakeups import Wakeups
from .work import RefusedTransition, Work
from .worker_fit import WorkerFit

if TYPE_CHECKING:
    from ..blobs import BlobStore
    from ..settings import Settings

#: Cache tokens for this many seconds, so that a busy caller costs one read per second. A revocation in another process
#: takes effect within this time; a revocation in this process takes effect at once.
TOKEN_CACHE_SECONDS = 1.0
MOST_TOKENS = 1000

T = TypeVar("T")


@dataclass(frozen=True)
class Context:
    settings: Settings
    store: Store
    blobs: BlobStore
    clock: Clock
    wakeups: Wakeups
    metrics: CoordinatorMetrics = field(default_factory=CoordinatorMetrics)
    spec_cache: SpecCache = field(default_factory=SpecCache)

    @cached_property
    def known_tokens(self) -> SharedCache[str, TokenRow]:
        """Recently used tokens."""
        return SharedCache(TTLCache(MOST_TOKENS, TOKEN_CACHE_SECONDS, self.clock.steady))

    @cached_property
    def worker_fit(self) -> WorkerFit:
        return WorkerFit(self.store, self.clock)

    def work(self, actor: Actor, body: Callable[[Work], T]) -> T:
        """Run the body as one unit of work, and return its result after the commit.

        The body may run more than once (an earlier run is undone), so its only effect must be on its unit. A refused
        transition undoes the whole unit, so the refusal is recorded in the history in a separate transaction.
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
    """Who makes a request: the role and the name of a token."""

    role: Role
    name: str
    token_id: str

    def __str__(self) -> str:
        return f"{self.role}:{self.name}"


#: The coordinator itself, acting on its own.
COORDINATOR = Actor(Role.ADMIN, "coordinator", "")
