"""Feedline feeds training loops: it fetches items, orders, prepares and batches them, and resumes exactly."""

import importlib
import typing

# First: from here on a Ctrl-C ends the command line without a traceback.
from feedline import early_interrupt as early_interrupt

if typing.TYPE_CHECKING:
    from feedline.collate.default import default_collate
    from feedline.collate.padded import padded_collate
    from feedline.datasets.arrays import ArrayDataset
    from feedline.datasets.combine import ConcatDataset, MapDataset, Subset
    from feedline.datasets.fetching.columns import Column
    from feedline.datasets.fetching.retry import Retry
    from feedline.datasets.files import FileDataset
    from feedline.datasets.http import HttpDataset
    from feedline.datasets.image_folder import ImageFolderDataset
    from feedline.datasets.labeled import LabeledDataset
    from feedline.datasets.mixture import MixtureDataset
    from feedline.datasets.ndf import NdfDataset
    from feedline.datasets.ndf_shards import NdfShards
    from feedline.datasets.object_store import ObjectStoreDataset
    from feedline.datasets.protocol import AsyncDataset, Dataset, IterableDataset
    from feedline.datasets.stream import shuffle_buffer
    from feedline.datasets.table import TableDataset
    from feedline.errors import (
        CollateError,
        FeedlineError,
        FetchError,
        ImageError,
        MissingExtraError,
        NdfError,
        OptionError,
        StateError,
        TooManyFailures,
        WorkerDied,
        WorkerError,
    )
    from feedline.loader.batch import MaskedBatch
    from feedline.loader.dataloader import DataLoader
    from feedline.loader.failures import Failure
    from feedline.loader.gathering import gather_failures
    from feedline.loader.headroom import Headroom, headroom
    from feedline.loader.stats import LoaderStats
    from feedline.ndf.save import save_ndf
    from feedline.ndf.writer import NdfWriter
    from feedline.samplers.batch import BatchSampler
    from feedline.samplers.bucket import LengthBucketSampler
    from feedline.samplers.distributed import DistributedSampler
    from feedline.samplers.distributed_batch import DistributedBatchSampler
    from feedline.samplers.job import running_job
    from feedline.samplers.random import RandomSampler
    from feedline.samplers.sequential import SequentialSampler
    from feedline.samplers.shard import ShardSampler
    from feedline.samplers.weighted import WeightedSampler
    from feedline.transforms.compose import Compose, Identity
    from feedline.transforms.protocol import ItemContext, Transform

__all__ = [
    "ArrayDataset",
    "AsyncDataset",
    "BatchSampler",
    "CollateError",
    "Column",
    "Compose",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedBatchSampler",
    "DistributedSampler",
    "Failure",
    "FeedlineError",
    "FetchError",
    "FileDataset",
    "Headroom",
    "HttpDataset",
    "Identity",
    "ImageError",
    "ImageFolderDataset",
    "ItemContext",
    "IterableDataset",
    "LabeledDataset",
    "LengthBucketSampler",
    "LoaderStats",
    "MapDataset",
    "MaskedBatch",
    "MissingExtraError",
    "MixtureDataset",
    "NdfDataset",
    "NdfError",
    "NdfShards",
    "NdfWriter",
    "ObjectStoreDataset",
    "OptionError",
    "RandomSampler",
    "Retry",
    "SequentialSampler",
    "ShardSampler",
    "StateError",
    "Subset",
    "TableDataset",
    "TooManyFailures",
    "Transform",
    "WeightedSampler",
    "WorkerDied",
    "WorkerError",
    "default_collate",
    "gather_failures",
    "headroom",
    "padded_collate",
    "running_job",
    "save_ndf",
    "shuffle_buffer",
]

# A name is imported when it is first asked for: whoever needs one part of the package (a worker process, the command line)
# does not wait for all of it.
_HOMES = {
    "ArrayDataset": "feedline.datasets.arrays",
    "AsyncDataset": "feedline.datasets.protocol",
    "BatchSampler": "feedline.samplers.batch",
    "CollateError": "feedline.errors",
    "Column": "feedline.datasets.fetching.columns",
    "Compose": "feedline.transforms.compose",
    "ConcatDataset": "feedline.datasets.combine",
    "DataLoader": "feedline.loader.dataloader",
    "Dataset": "feedline.datasets.protocol",
    "DistributedBatchSampler": "feedline.samplers.distributed_batch",
    "DistributedSampler": "feedline.samplers.distributed",
    "Failure": "feedline.loader.failures",
    "FeedlineError": "feedline.errors",
    "FetchError": "feedline.errors",
    "FileDataset": "feedline.datasets.files",
    "Headroom": "feedline.loader.headroom",
    "HttpDataset": "feedline.datasets.http",
    "Identity": "feedline.transforms.compose",
    "ImageError": "feedline.errors",
    "ImageFolderDataset": "feedline.datasets.image_folder",
    "ItemContext": "feedline.transforms.protocol",
    "IterableDataset": "feedline.datasets.protocol",
    "LabeledDataset": "feedline.datasets.labeled",
    "LengthBucketSampler": "feedline.samplers.bucket",
    "LoaderStats": "feedline.loader.stats",
    "MapDataset": "feedline.datasets.combine",
    "MaskedBatch": "feedline.loader.batch",
    "MissingExtraError": "feedline.errors",
    "MixtureDataset": "feedline.datasets.mixture",
    "NdfDataset": "feedline.datasets.ndf",
    "NdfError": "feedline.errors",
    "NdfShards": "feedline.datasets.ndf_shards",
    "NdfWriter": "feedline.ndf.writer",
    "ObjectStoreDataset": "feedline.datasets.object_store",
    "OptionError": "feedline.errors",
    "RandomSampler": "feedline.samplers.random",
    "Retry": "feedline.datasets.fetching.retry",
    "SequentialSampler": "feedline.samplers.sequential",
    "ShardSampler": "feedline.samplers.shard",
    "StateError": "feedline.errors",
    "Subset": "feedline.datasets.combine",
    "TableDataset": "feedline.datasets.table",
    "TooManyFailures": "feedline.errors",
    "Transform": "feedline.transforms.protocol",
    "WeightedSampler": "feedline.samplers.weighted",
    "WorkerDied": "feedline.errors",
    "WorkerError": "feedline.errors",
    "default_collate": "feedline.collate.default",
    "gather_failures": "feedline.loader.gathering",
    "headroom": "feedline.loader.headroom",
    "padded_collate": "feedline.collate.padded",
    "running_job": "feedline.samplers.job",
    "save_ndf": "feedline.ndf.save",
    "shuffle_buffer": "feedline.datasets.stream",
}


def __getattr__(name: str) -> typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'feedline' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
