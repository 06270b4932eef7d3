"""Ray, for the kind of worker that needs it."""

from __future__ import annotations

from ray_session import local_ray

__all__ = ["local_ray"]
