"""Faults to plant in the product, each a named function with its replacement, and the tests that must notice it."""
