"""Programs that connect a pool with other systems. They speak only the HTTP contract, and may run anywhere."""
