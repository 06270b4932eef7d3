"""Corpora to `.ndf` files and shards: `conversion` is what users call, `protocol` what a source of rows is."""
