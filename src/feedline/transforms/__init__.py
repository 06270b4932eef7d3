"""Per-item CPU work; read `protocol.py` first."""
