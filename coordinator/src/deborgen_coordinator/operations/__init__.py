"""One verb, one module, one unit of work: load, decide, store, record."""
