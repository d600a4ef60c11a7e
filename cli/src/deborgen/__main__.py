"""`python -m deborgen` is the command `deborgen`."""

from deborgen.cli import main

if __name__ == "__main__":
    main()
