"""How a loader runs; read `dataloader.py` first, then `execution/protocol.py`."""
