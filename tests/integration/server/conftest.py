"""Real coordinators, in processes of their own."""

from support.coordinator import coordinator, own_coordinator
from support.postgres import postgres, postgres_url

__all__ = ["coordinator", "own_coordinator", "postgres", "postgres_url"]
