"""What an item is and where it comes from; read `protocol.py` first."""
