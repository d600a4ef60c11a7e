"""Real coordinators, each in its own process."""

from support.coordinator import coordinator, own_coordinator
from support.object_store import object_store
from support.postgres import own_postgres, postgres, postgres_url

__all__ = ["coordinator", "object_store", "own_coordinator", "own_postgres", "postgres", "postgres_url"]
