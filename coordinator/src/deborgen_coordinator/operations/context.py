"""What every operation is given: the store, the blobs, the clock, the settings, and those who wait."""

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
from .catalog import Catalog
from .fleet import Fleet
from .metrics import Metrics
from .wakeups import Wakeups
from .work import Refused, Work

if TYPE_CHECKING:
    from ..blobs import BlobStore
    from ..settings import Settings

#: What was read of a token is believed for this many seconds, so that a busy caller costs one look per second. A
#: revocation in another process takes effect within them; one in this process takes effect at once.
BELIEVE_SECONDS = 1.0
MOST_TOKENS = 1000

T = TypeVar("T")


@dataclass(frozen=True)
class Context:
    settings: Settings
    store: Store
    blobs: BlobStore
    clock: Clock
    wakeups: Wakeups
    metrics: Metrics = field(default_factory=Metrics)
    catalog: Catalog = field(default_factory=Catalog)

    @cached_property
    def known_tokens(self) -> SharedCache[str, TokenRow]:
        """Tokens that were just looked up."""
        return SharedCache(TTLCache(MOST_TOKENS, BELIEVE_SECONDS, self.clock.steady))

    @cached_property
    def fleet(self) -> Fleet:
        return Fleet(self.store, self.clock)

    def work(self, actor: Actor, body: Callable[[Work], T]) -> T:
        """Run the body as one unit of work, and return its result once that is committed.

        The body may run more than once, its first run undone, so it does nothing but use its unit. A refused transition
        is undone with all of the unit, so the refusal goes into the history in a transaction of its own.
        """

        def run(tx: Tx) -> T:
            with Work(self, tx, actor) as work:
                return body(work)

        try:
            return self.store.write(run)
        except Refused as refused:
            about, old, data = refused.about, refused.state, {"event": refused.event}
            self.work(actor, lambda work: work.record("transition.refused", about, old=old, data=data))
            raise


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks: a token's role and name."""

    role: Role
    name: str
    token_id: str

    def __str__(self) -> str:
        return f"{self.role}:{self.name}"


#: The coordinator itself, where nobody asked.
COORDINATOR = Actor(Role.ADMIN, "coordinator", "")
