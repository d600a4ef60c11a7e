"""The worker: it takes jobs from the coordinator and runs them on a machine that its owner lends."""

__version__ = "0.1.0"
