"""What keeps the coordinator in order: the sweep, tidying up, the audit, backup and restore."""
