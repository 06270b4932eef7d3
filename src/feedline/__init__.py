"""Feedline feeds training loops: it fetches items, orders, prepares and batches them, and resumes exactly."""

from feedline.collate.default import default_collate
from feedline.collate.padded import padded_collate
from feedline.datasets.arrays import ArrayDataset
from feedline.datasets.combine import ConcatDataset, MapDataset, Subset
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
    "Compose",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedBatchSampler",
    "DistributedSampler",
    "FeedlineError",
    "FetchError",
    "Identity",
    "ImageError",
    "ItemContext",
    "IterableDataset",
    "LengthBucketSampler",
    "MapDataset",
    "MaskedBatch",
    "MissingExtraError",
    "MixtureDataset",
    "NdfDataset",
    "NdfError",
    "NdfWriter",
    "OptionError",
    "RandomSampler",
    "SequentialSampler",
    "ShardSampler",
    "StateError",
    "Subset",
    "TooManyFailures",
    "Transform",
    "WeightedSampler",
    "WorkerDied",
    "WorkerError",
    "default_collate",
    "padded_collate",
    "running_job",
    "save_ndf",
    "shuffle_buffer",
]
