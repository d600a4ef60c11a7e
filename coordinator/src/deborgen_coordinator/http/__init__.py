"""The HTTP API of the coordinator. No other package imports Flask."""
