"""The job file: what people write, what it means, and everything that can be wrong with it.

Import from the modules directly: code that needs only `units` should not have to load the parser.
"""
