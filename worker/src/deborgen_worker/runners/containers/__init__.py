"""Jobs in containers, with any engine. `engine.py` says what an engine promises, and each engine has a package."""
