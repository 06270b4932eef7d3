"""Corpora to `.ndf` files and shards: `convert` is what users call; `protocol` tells what a source of rows is."""

from __future__ import annotations

from feedline.convert.conversion import Converted, convert

__all__ = ["Converted", "convert"]
