"""How the worker and the command talk to the coordinator: HTTP transport, blob transfers, DNS and back-off."""
