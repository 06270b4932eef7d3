"""The command `feedline`: `main.py` runs it, `commands.py` lists what it can do, one file per command."""
