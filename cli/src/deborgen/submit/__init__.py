"""Submitting a job file: `read` finds everything that is wrong with it, `send` uploads its files and submits it."""
