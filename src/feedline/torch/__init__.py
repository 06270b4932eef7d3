"""feedline for PyTorch: a loader that takes the place of torch's, batches on a device, and what workers know."""

from feedline.torch.collation import default_collate, default_convert

__all__ = ["default_collate", "default_convert"]
