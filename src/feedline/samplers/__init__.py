"""In which order items are visited; read `protocol.py` first."""
