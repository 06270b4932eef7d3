"""Feedline feeds training loops: it fetches items, orders, prepares and batches them, and resumes exactly."""

import importlib
import typing

# First: from here on a Ctrl-C ends the command line without a traceback.
from feedline import early_interrupt as early_interrupt
from feedline.collate.default import default_collate
from feedline.collate.padded import padded_collate
from feedline.datasets.arrays import ArrayDataset
from feedline.datasets.combine import ConcatDataset, MapDataset, Subset
from feedline.datasets.image_folder import ImageFolderDataset
from feedline.datasets.labeled import LabeledDataset
from feedline.datasets.mixture import MixtureDataset
from feedline.datasets.ndf import NdfDataset
from feedline.datasets.protocol import AsyncDataset, Dataset, IterableDataset
from feedline.datasets.stream import shuffle_buffer
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

if typing.TYPE_CHECKING:
    from feedline.datasets.fetching.columns import Column
    from feedline.datasets.fetching.retry import Retry
    from feedline.datasets.files import FileDataset
    from feedline.datasets.http import HttpDataset
    from feedline.datasets.ndf_shards import NdfShards
    from feedline.datasets.object_store import ObjectStoreDataset
    from feedline.datasets.table import TableDataset
    from feedline.loader.headroom import Headroom, headroom

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

# What needs asyncio or HTTP is imported when it is first asked for: it would take longer than all of the rest.
_LATER = {
    "Column": "feedline.datasets.fetching.columns",
    "FileDataset": "feedline.datasets.files",
    "Headroom": "feedline.loader.headroom",
    "HttpDataset": "feedline.datasets.http",
    "NdfShards": "feedline.datasets.ndf_shards",
    "ObjectStoreDataset": "feedline.datasets.object_store",
    "Retry": "feedline.datasets.fetching.retry",
    "TableDataset": "feedline.datasets.table",
    "headroom": "feedline.loader.headroom",
}


def __getattr__(name: str) -> typing.Any:
    if name not in _LATER:
        raise AttributeError(f"module 'feedline' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LATER[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
