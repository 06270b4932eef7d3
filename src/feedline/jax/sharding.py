"""`shard`: batches as global `jax.Array`s over the devices of a mesh, transferred ahead of the consumer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from feedline.collate.leaves import map_leaves
from feedline.errors import OptionError
from feedline.jax.rows import check_fits, padded, rows_of
from feedline.loader.ahead import AheadLoader
from feedline.loader.batch import MaskedBatch

__all__ = ["ShardedLoader", "shard"]

_TAILS = ("mask", "drop", "error")


def shard(loader: Any, sharding: Any, *, ahead: int = 2, tail: str = "mask") -> ShardedLoader:
    """Return `loader` with its batches as global arrays, laid out as `sharding` says.

    Args:
        loader: a `feedline.DataLoader`, or any iterable of batches of NumPy arrays that can be walked anew. In a job of
            several processes each has its own share of the rows: use `DistributedSampler`.
        sharding: a `jax.sharding.Sharding` for every array, or a function `(array) -> Sharding` of the process's rows.
        ahead: batches whose transfer is started before they are asked for.
        tail: what happens to a batch with fewer rows than the others have.
            `"mask"`: every batch is a `MaskedBatch(data, mask)`, padded with zeros to the full number of rows, so
            that shapes never change and a step is compiled once; `mask` is a bool array, sharded likewise, True
            for real rows.
            `"drop"`: it is left out. In a job, give every process as many batches: `DistributedSampler(tail="drop")`.
            `"error"`: it is an error that tells what to do.

    Returns:
        A loader whose batches have the same structure: arrays with an axis 0 become `jax.Array`s whose axis 0 has the
        rows of all processes, each from its own loader; numbers, text and everything else stay as they are. `len()`,
        `load_state_dict()`, `set_epoch()` and attributes are the loader's; `state_dict()` counts what *this* consumer has
        received.

    On CPU devices arrays are used where they lie, without a copy, if they are aligned as feedline's are; their memory
    is reused only when JAX lets go of it. dtypes are JAX's: without `jax_enable_x64`, 64-bit numbers become 32-bit ones.

    Raises:
        OptionError: `tail` or `ahead` is none of the above; or a `DistributedSampler(tail="exact")`, whose ranks may
            have unequal numbers of steps.
        OverflowError: an integer does not fit what JAX makes of its dtype; from the batch that has it.
        ValueError: rows can't be divided as `sharding` says; from the batch.

    Concurrency: each iterator by one thread.

    >>> import jax, numpy as np
    >>> from feedline import ArrayDataset, DataLoader
    >>> loader = DataLoader(ArrayDataset(np.arange(5, dtype=np.int32)), batch_size=4)
    >>> batches = list(shard(loader, jax.sharding.SingleDeviceSharding(jax.devices()[0])))
    >>> batches[1].data[0].tolist(), batches[1].mask.tolist()
    ([4, 0, 0, 0], [True, False, False, False])
    """
    if not isinstance(tail, str):
        raise TypeError(f"tail must be a str, not {type(tail).__name__}")
    if tail not in _TAILS:
        raise OptionError(f"tail must be one of {', '.join(_TAILS)}, not {tail!r}")
    if not isinstance(sharding, jax.sharding.Sharding) and not callable(sharding):
        raise TypeError(
            f"sharding must be a jax.sharding.Sharding or a function that returns one, not {type(sharding).__name__}"
        )
    _refuse_unequal_steps(loader)
    return ShardedLoader(loader, sharding, ahead, tail)


def _refuse_unequal_steps(loader: Any) -> None:
    options = getattr(loader, "options", None)
    for sampler in (getattr(options, "sampler", None), getattr(options, "batch_sampler", None)):
        if getattr(sampler, "tail", None) == "exact" and getattr(sampler, "world_size", 1) > 1:
            raise OptionError(
                'DistributedSampler(tail="exact") may give ranks unequal numbers of batches, and a step over all '
                'devices would wait for ever: use tail="mask", which has every item exactly once as well'
            )


class ShardedLoader(AheadLoader):
    """A loader whose batches are global arrays; see `shard`."""

    def __init__(self, loader: Any, sharding: Any, ahead: int, tail: str) -> None:
        super().__init__(loader, ahead)
        self.sharding = sharding
        self.tail = tail

    def _begin(self) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        transfer = _Transfer(self.sharding, self.tail, _batch_size_of(self.loader))
        return transfer.start, _as_it_is

    def __iter__(self) -> Any:
        """Start the loader's next epoch, or go on where a loaded state stands."""
        iterator = super().__iter__()
        return _without_short_ones(iterator) if self.tail == "drop" else iterator


def _as_it_is(batch: Any) -> Any:
    return batch


def _batch_size_of(loader: Any) -> int | None:
    size = getattr(getattr(loader, "options", loader), "batch_size", None)
    if getattr(getattr(loader, "options", None), "batch_sampler", None) is not None:
        return None
    return size if isinstance(size, int) else None


class _Transfer:
    """Makes global arrays of this process's rows; the first batch tells how many rows there are, if nobody else does."""

    def __init__(self, sharding: Any, tail: str, rows: int | None) -> None:
        self._sharding = sharding
        self._tail = tail
        self._rows = rows
        self._is_alone = jax.process_count() == 1

    def start(self, batch: Any) -> Any:
        """Begin to transfer a batch."""
        mask = None
        if type(batch) is MaskedBatch:
            batch, mask = batch
        rows = rows_of(batch)
        if self._rows is None or rows > self._rows:
            self._rows = rows
        if rows < self._rows and self._tail == "drop":
            return SHORT
        if rows < self._rows and self._tail == "error":
            raise ValueError(
                f"the batch has {rows} rows, the others {self._rows}: use drop_last=True, or tail='mask' to pad it"
            )
        data = map_leaves(lambda leaf: self._put(leaf, rows), batch)
        if self._tail == "mask" or mask is not None:
            return MaskedBatch(data, self._put(_mask(mask, rows), rows))
        return data

    def _put(self, leaf: Any, rows: int) -> Any:
        array = _as_array(leaf)
        if array is None:
            return leaf
        assert self._rows is not None
        array = padded(array, self._rows)
        check_fits(array, jax.dtypes.canonicalize_dtype(array.dtype))
        sharding = self._sharding
        if not isinstance(sharding, jax.sharding.Sharding):
            sharding = sharding(array)
        try:
            if self._is_alone:
                return jax.device_put(array, sharding)
            return jax.make_array_from_process_local_data(sharding, array)
        except ValueError as error:
            raise ValueError(
                f"{len(array)} rows of this process can't be laid out as {sharding}: choose a batch_size that the "
                f"devices divide evenly ({error})"
            ) from error


def _mask(mask: Any, rows: int) -> npt.NDArray[np.bool_]:
    return np.ones(rows, np.bool_) if mask is None else np.asarray(mask)


def _as_array(leaf: Any) -> npt.NDArray[Any] | None:
    """Return an array with an axis 0 as NumPy sees it, without a copy where it is on the CPU; `None` for anything else."""
    if isinstance(leaf, np.ndarray):
        return leaf if leaf.ndim and leaf.dtype.kind not in "OSUMm" and leaf.dtype.names is None else None
    if isinstance(leaf, (np.generic, str, bytes)) or not hasattr(leaf, "__array__"):
        return None
    return _as_array(np.asarray(leaf))


#: Stands for a batch that is left out.
SHORT = object()


def _without_short_ones(iterator: Any) -> Any:
    return _Dropping(iterator)


class _Dropping:
    """An iterator without its short batches."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def __iter__(self) -> _Dropping:
        """Return itself."""
        return self

    def __next__(self) -> Any:
        """Return the next full batch."""
        while (batch := next(self._iterator)) is SHORT:
            pass
        return batch

    def __len__(self) -> int:
        """Return how many batches are left, a short one included."""
        return len(self._iterator)

    def __getattr__(self, name: str) -> Any:
        """Return the iterator's attribute."""
        return getattr(self._iterator, name)
