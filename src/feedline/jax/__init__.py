"""feedline for JAX: batches as global arrays, sharded over the devices of one process or of many."""

from feedline.jax.sharding import ShardedLoader, shard

__all__ = ["ShardedLoader", "shard"]
