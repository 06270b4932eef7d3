"""feedline for PyTorch: a loader that takes the place of torch's, batches on a device, and what workers know."""

from feedline.errors import MissingExtraError

try:
    import torch as _  # noqa: F401  # what is missing is told by name, before it is told by a traceback
except ModuleNotFoundError as error:
    raise MissingExtraError.of("feedline.torch", "torch") from error

from feedline.torch.collation import default_collate, default_convert
from feedline.torch.dataloader import DataLoader
from feedline.torch.device import to_device
from feedline.torch.workers import get_worker_info

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info", "to_device"]
