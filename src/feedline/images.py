"""Images: from bytes to normalised batches (needs the extra `images`).

Every step works on an image or on a tuple `(image, extras...)`, and is checked against its neighbours when a chain is
built. What a step needs of OpenCV, Pillow or simplejpeg is imported when it first runs.
"""

from __future__ import annotations

__all__: list[str] = []
