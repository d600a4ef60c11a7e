"""The job file: what people write by hand, what it means, and everything that can be wrong with it.

There is nothing to import from here. Who needs a duration imports `units`, and does not pay for the parser.
"""
