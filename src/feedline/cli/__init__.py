"""The command `feedline`: one file per command."""
