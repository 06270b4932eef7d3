"""feedline for JAX: batches as global arrays, sharded over the devices of one process or of many."""

from feedline.errors import MissingExtraError

try:
    import jax as _  # noqa: F401  # what is missing is told by name, before it is told by a traceback
except ModuleNotFoundError as error:
    raise MissingExtraError.of("feedline.jax", "jax") from error

from feedline.jax.sharding import ShardedLoader, shard

__all__ = ["ShardedLoader", "shard"]
