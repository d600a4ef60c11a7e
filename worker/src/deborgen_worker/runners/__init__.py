"""How a job's program is run: in a container, as a process, or by script in tests."""
