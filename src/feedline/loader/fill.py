"""`next_into`: batches gathered into the caller's own arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.errors import OptionError

__all__ = ["FillSource", "check_targets", "fill_from"]


class FillSource:
    """What a loader can fill arrays from: a dataset of arrays, or the reason why it can't."""

    def __init__(self, dataset: Any, batch_size: int | None, reason: str | None) -> None:
        self.take_into = getattr(dataset, "take_into", None)
        self.row_specs = getattr(dataset, "row_specs", None)
        self.batch_size = batch_size
        self.reason = reason
        if reason is None and (not callable(self.take_into) or self.row_specs is None):
            self.reason = f"{type(dataset).__name__} is no dataset of arrays (it has no take_into)"


def check_targets(source: FillSource, targets: Sequence[Any], with_indices: bool) -> None:
    """Raise if a batch of `source` can't be written into `targets`.

    Raises:
        TypeError: there is no batch of arrays to write.
        OptionError: the number, shape, dtype or layout of the targets is wrong.
    """
    reason = "the iterator was made by iter_with_indices()" if with_indices else source.reason
    if reason is not None:
        raise TypeError(f"next_into gathers rows of arrays as they are; here {reason}")
    specs = source.row_specs
    assert specs is not None
    if len(targets) != len(specs):
        raise OptionError(
            f"next_into needs {len(specs)} arrays, one for each of the dataset's; got {len(targets)}"
        )
    for place, (target, spec) in enumerate(zip(targets, specs, strict=True)):
        _check_target(place, target, spec, source.batch_size)


def _check_target(place: int, target: Any, spec: Any, batch_size: int | None) -> None:
    shape = (batch_size, *spec.shape)
    wanted = f"target {place} must be a writable, C-contiguous array of shape {shape} and dtype {spec.dtype}"
    if not isinstance(target, np.ndarray):
        raise TypeError(f"{wanted}; it is a {type(target).__name__}")
    if target.dtype != spec.dtype:
        raise OptionError(f"{wanted}; its dtype is {target.dtype}")
    if (
        target.ndim != len(shape)
        or target.shape[1:] != spec.shape
        or (batch_size and len(target) != batch_size)
    ):
        raise OptionError(f"{wanted}; its shape is {target.shape}")
    if not target.flags.c_contiguous or not target.flags.writeable:
        raise OptionError(f"{wanted}; it is {'not contiguous' if target.flags.writeable else 'read-only'}")


def fill_from(source: FillSource, indices: Any, targets: Sequence[npt.NDArray[Any]]) -> int | None:
    """Gather the rows `indices` into the first rows of `targets`; `None` if that fails.

    What failed, and where, is found when the batch is then loaded the usual way.
    """
    rows = len(indices)
    take_into = source.take_into
    assert take_into is not None
    try:
        take_into(indices, [target[:rows] for target in targets])
    except Exception:
        return None
    return rows
