"""Maintenance: the lease check, the cleanup, the audit, backup and restore."""
