"""Where batches are computed; read `protocol.py` first."""
