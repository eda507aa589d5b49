"""``python -m blackout`` is the command ``blackout``."""

from blackout.cli.main import entry

if __name__ == "__main__":
    entry()
