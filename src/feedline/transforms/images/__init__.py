"""Image steps: read `image_type.py` first; the public names are gathered in `feedline.images`."""
