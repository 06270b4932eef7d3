"""How objects cross to worker processes and back: pickle protocol 5, large memory apart from the stream.

On the way out, `cloudpickle` takes what plain pickle can't: lambdas, closures, and what is defined in `__main__`, in
a notebook or in modules that a worker can't import (see `by_value`). Classes that went out by value come back by a key,
so what a worker returns or raises is of the caller's own class.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from feedline.loader.execution import by_value
from feedline.loader.execution.string_lists import MIN_STRINGS, Packed, TextFile, pack_strings, unpack_strings

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["OUT_OF_BAND_BYTES", "dump_back", "dump_out", "load_out"]

#: Smaller memory stays in the stream.
OUT_OF_BAND_BYTES = 16 * 1024

BufferTaker = Callable[[pickle.PickleBuffer], bool]

# cloudpickle keeps modules that go by value in a global table.
_table = threading.RLock()


def dump_out(value: Any, take: BufferTaker | None = None, texts: TextFile | None = None) -> bytes:
    """Pickle `value` for worker processes.

    Args:
        value: anything.
        take: `take(buffer)` is true for memory that it leaves in the stream.
        texts: where long lists of strings are written to; without it they are memory for `take`.

    Raises:
        Exception: whatever the parts of `value` raise, if they can't be pickled.
    """
    return _out_pickler().dumps(value, take, texts)  # type: ignore[no-any-return]


def _out_pickler() -> Any:
    global _OutPickler
    if _OutPickler is None:
        _OutPickler = _make_out_pickler()
    return _OutPickler


_OutPickler: Any = None


def _make_out_pickler() -> Any:
    import cloudpickle

    class OutPickler(cloudpickle.Pickler):  # type: ignore[misc]
        """Sends by value what a worker can't import."""

        def __init__(self, file: Any, take: BufferTaker | None, texts: TextFile | None) -> None:
            super().__init__(file, protocol=5, buffer_callback=take)
            self._texts = texts
            #: Lists that were packed, by their address, which is theirs as long as they are in here.
            self._packed: dict[int, tuple[int, list[Any]]] = {}
            self._known: dict[str, bool] = {}
            self._registered: list[Any] = []

        @classmethod
        def dumps(cls, value: Any, take: BufferTaker | None, texts: TextFile | None) -> bytes:
            file = io.BytesIO()
            with _table:
                pickler = cls(file, take, texts)
                try:
                    pickler.dump(value)
                finally:
                    for module in pickler._registered:
                        cloudpickle.unregister_pickle_by_value(module)
            return file.getvalue()

        def reducer_override(self, obj: Any) -> Any:
            kind = type(obj)
            if isinstance(obj, type) or kind is _FUNCTION:
                self._note_module(getattr(obj, "__module__", None))
                reduced = super().reducer_override(obj)
                if isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced) == 6:
                    key = by_value.sent_class(obj, os.getpid())
                    return (by_value.register_class, (key, reduced[0], *reduced[1]), *reduced[2:])
                return reduced
            special = _reduce_memory(obj, kind)
            return super().reducer_override(obj) if special is None else special

        def persistent_id(self, obj: Any) -> Any:
            # Called for every object: only a list pays for more than this line.
            return self._pack(obj) if type(obj) is list and len(obj) >= MIN_STRINGS else None

        def _pack(self, strings: list[Any]) -> tuple[int, Any] | None:
            """Return (number, packed) of a list of strings, only the number when it is met again."""
            if id(strings) in self._packed:
                return self._packed[id(strings)][0], None
            packed = pack_strings(strings, self._texts)
            if packed is None:
                return None
            number = len(self._packed)
            self._packed[id(strings)] = number, strings
            return number, tuple(packed)

        def _note_module(self, name: Any) -> None:
            """Have a module sent by value if workers can't import it."""
            if not isinstance(name, str) or name in self._known:
                return
            self._known[name] = reachable = by_value.can_import(name)
            module = sys.modules.get(name)
            if reachable or name == "__main__" or module is None:
                return
            if name not in cloudpickle.list_registry_pickle_by_value():
                cloudpickle.register_pickle_by_value(module)
                self._registered.append(module)

    return OutPickler


_FUNCTION = type(dump_out)


class _Unpickler(pickle.Unpickler):
    """Takes what `dump_out` made."""

    def __init__(self, stream: Any, buffers: Any, texts: TextFile | None) -> None:
        super().__init__(io.BytesIO(stream), buffers=buffers)
        self._texts = texts
        self._lists: dict[int, list[Any]] = {}

    def persistent_load(self, pid: Any) -> Any:
        number, packed = pid
        if number not in self._lists:
            self._lists[number] = unpack_strings(Packed(*packed), self._texts)
        return self._lists[number]


def load_out(stream: Any, buffers: Any = (), texts: TextFile | None = None) -> Any:
    """Return what `dump_out` was given, with what it wrote to `texts`.

    Raises:
        Exception: whatever unpickling raises.
    """
    return _Unpickler(stream, buffers, texts).load()


class _BackPickler(pickle.Pickler):
    """Plain pickle, but for classes that came by value: they go back by their key."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type):
            key = by_value.key_of(obj)
            return NotImplemented if key is None else (by_value.class_of, (key,))
        special = _reduce_memory(obj, type(obj))
        return NotImplemented if special is None else special


def dump_back(value: Any, take: BufferTaker | None = None) -> bytes:
    """Pickle `value` for the process that sent the work; `take` as in `dump_out`.

    Raises:
        Exception: whatever the parts of `value` raise, if they can't be pickled.
    """
    file = io.BytesIO()
    _BackPickler(file, protocol=5, buffer_callback=take).dump(value)
    return file.getvalue()


def _reduce_memory(obj: Any, kind: type) -> tuple[Any, ...] | None:
    """Return how arrays travel whose own way would copy them into the stream; `None` for everything else."""
    if kind is np.memmap:
        return _reduce_memmap(obj)
    torch = sys.modules.get("torch")
    if torch is not None and kind is getattr(torch, "Tensor", None):
        return _reduce_tensor(obj, torch)
    return None


def _reduce_memmap(array: npt.NDArray[Any]) -> tuple[Any, ...] | None:
    """A whole map of a file is opened again by the worker: nothing is copied, and pages are shared."""
    name = getattr(array, "filename", None)
    mode = getattr(array, "mode", None)
    if name is None or mode not in ("r", "r+") or not isinstance(array.base, mmap.mmap):
        return None
    order = "C" if array.flags.c_contiguous else "F"
    offset = array.offset
    try:
        if os.path.getsize(name) < offset + array.nbytes:
            return None
    except OSError:
        return None
    return np.memmap, (os.fspath(name), array.dtype, mode, offset, array.shape, order)


def _reduce_tensor(tensor: Any, torch: Any) -> tuple[Any, ...] | None:
    """A dense tensor of the CPU travels as the memory of an array; others travel as torch has them travel."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.requires_grad:
        return None
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg() or tensor.is_quantized:
        return None
    data = tensor.detach().reshape(-1).view(torch.uint8) if tensor.numel() else None
    array = np.empty(0, np.uint8) if data is None else data.numpy()
    return _rebuild_tensor, (array, str(tensor.dtype).partition(".")[2], tuple(tensor.shape))


def _rebuild_tensor(array: npt.NDArray[np.uint8], dtype: str, shape: tuple[int, ...]) -> Any:
    import torch

    if not array.size:
        return torch.empty(shape, dtype=getattr(torch, dtype))
    if not array.flags.writeable:
        # Memory of an object store, which others see, too; and there are no tensors that refuse to be written to.
        array = array.copy()
    return torch.from_numpy(array).view(getattr(torch, dtype)).reshape(shape)
