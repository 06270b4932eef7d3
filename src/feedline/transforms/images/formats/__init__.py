"""One module a format: what its header says, and its pixels. `raster.py` is what they have in common."""
