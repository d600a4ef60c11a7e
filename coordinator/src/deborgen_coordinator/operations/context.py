"""What every operation is given: the store, the blobs, the clock, the settings, and those who wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from deborgen_shared.states import Role

from ..clock import Clock
from ..storage.rows import TokenRow
from ..storage.store import Store
from .catalog import Catalog
from .fleet import Fleet
from .metrics import Metrics
from .wakeups import Wakeups

if TYPE_CHECKING:
    from ..blobs import BlobStore
    from ..settings import Settings


@dataclass(frozen=True)
class Context:
    settings: Settings
    store: Store
    blobs: BlobStore
    clock: Clock
    wakeups: Wakeups
    metrics: Metrics = field(default_factory=Metrics)
    catalog: Catalog = field(default_factory=Catalog)
    #: Tokens that were just looked up, each with the moment of that look.
    known_tokens: dict[str, tuple[float, TokenRow]] = field(default_factory=dict)

    @cached_property
    def fleet(self) -> Fleet:
        return Fleet(self.store, self.clock)


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
