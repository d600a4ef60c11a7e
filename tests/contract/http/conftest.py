"""The coordinator that the contract is checked on: a real one, in a process of its own."""

from support.coordinator import coordinator, own_coordinator

__all__ = ["coordinator", "own_coordinator"]
