"""Jobs in containers, with any engine. `engine.py` is the interface of an engine; each engine has its own package."""
