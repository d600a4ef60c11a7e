"""The words on the wire: what the coordinator, the workers and the people's tools must agree on."""

__version__ = "0.1.0"
