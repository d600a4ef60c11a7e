"""The wire format and the job file: everything that the coordinator, the workers and the command must agree on."""

__version__ = "0.1.0"
