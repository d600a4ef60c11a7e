"""Jobs in containers, with any engine: what an engine promises is in `engine.py`, and each engine has a package."""
