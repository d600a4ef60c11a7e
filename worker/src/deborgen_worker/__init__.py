"""The worker: it leases jobs and runs each one in isolation, on a machine that its owner lends."""

__version__ = "0.1.0"
