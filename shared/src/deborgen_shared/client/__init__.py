"""How worker and command talk to the coordinator: one transport, one client for blobs, one back-off."""
