"""Runs the programs of jobs: in containers, or as plain processes."""
