"""Repositories of strangers, on the owner's machine: fetched into mirrors, and checked out without executing anything.

`Mirrors` is all that the rest of the worker uses: `resolve` a ref, then `checkout` a commit, then `make_links`.
"""
