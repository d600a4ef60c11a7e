"""One verb, one function, one transaction: load, decide, store, record."""
