"""What a loader's position is as a small JSON document, and whether a document fits a loader.

```text
version      1
epoch        the epoch that goes on
position     units of the *global* order that are received (items; batches, with a batch sampler): all ranks together
batch        batches of this rank that are received, which only numbers the following ones
ahead        numbers of batches received beyond the first gap (only with in_order=False, and only if there are any)
world_size   how many ranks shared the order
stream       how a stream with a state of its own is set to the position (only then)
entropy      what stood in for seed=None (only then)
failures     items that failed: index, location, epoch, batch, error, error_type
fingerprint  what must be equal for the position to mean the same
```
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from feedline.errors import StateError
from feedline.loader.failures import Failure

__all__ = ["VERSION", "LoaderState", "differences"]

VERSION = 1


@dataclass(frozen=True, slots=True)
class LoaderState:
    """A position, see the module."""

    epoch: int
    position: int
    batch: int
    fingerprint: Mapping[str, Any]
    world_size: int = 1
    ahead: tuple[int, ...] = ()
    entropy: int | None = None
    failures: tuple[Failure, ...] = field(default=())
    stream: Mapping[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        state: dict[str, Any] = {
            "version": VERSION,
            "epoch": self.epoch,
            "position": self.position,
            "batch": self.batch,
            "world_size": self.world_size,
            "failures": [failure.as_dict() for failure in self.failures],
            "fingerprint": dict(self.fingerprint),
        }
        if self.ahead:
            state["ahead"] = list(self.ahead)
        if self.entropy is not None:
            state["entropy"] = self.entropy
        if self.stream is not None:
            state["stream"] = dict(self.stream)
        return state

    @classmethod
    def from_dict(cls, state: Any) -> LoaderState:
        """Read what `as_dict` gave.

        Raises:
            StateError: it is no state, of a version from the future, or something in it is missing or of another kind.
        """
        if not isinstance(state, Mapping):
            raise StateError(f"a state is a dict, as state_dict() gives it, not {type(state).__name__}")
        version = state.get("version")
        if version is None:
            found = f"it has no version, only {_keys(state)}" if state else "it is empty"
            raise StateError(f"this is no state of a feedline loader: {found}")
        if type(version) is not int or version < 1:
            raise StateError(f"the state's version is {version!r}; versions are ints from 1 on")
        if version > VERSION:
            raise StateError(
                f"the state is of version {version}, this feedline reads up to {VERSION}: update feedline"
            )
        ahead = _list(state, "ahead") if "ahead" in state else []
        batch = _count(state, "batch")
        if not all(type(number) is int and number > batch for number in ahead):
            raise StateError(
                f"the state's ahead must be a list of batch numbers beyond {batch}, not {ahead!r}"
            )
        return cls(
            epoch=_count(state, "epoch"),
            position=_count(state, "position"),
            batch=batch,
            world_size=_count(state, "world_size"),
            ahead=tuple(ahead),
            entropy=_count(state, "entropy") if "entropy" in state else None,
            failures=tuple(Failure.from_dict(values) for values in _list(state, "failures")),
            fingerprint=_mapping(state, "fingerprint"),
            stream=_stream(state) if "stream" in state else None,
        )


def _keys(state: Mapping[Any, Any]) -> str:
    return ", ".join(sorted(map(repr, state)))


def _present(state: Mapping[Any, Any], name: str) -> Any:
    if name not in state:
        raise StateError(f"the state has no {name!r}: it is cut short, or another library's")
    return state[name]


def _count(state: Mapping[Any, Any], name: str) -> int:
    value = _present(state, name)
    if type(value) is not int or value < 0:
        raise StateError(f"the state's {name} must be a non-negative int, not {value!r}")
    return value


def _list(state: Mapping[Any, Any], name: str) -> list[Any]:
    value = _present(state, name)
    if not isinstance(value, (list, tuple)):
        raise StateError(f"the state's {name} must be a list, not {value!r}")
    return list(value)


def _mapping(state: Mapping[Any, Any], name: str) -> Mapping[str, Any]:
    value = _present(state, name)
    if not isinstance(value, Mapping):
        raise StateError(f"the state's {name} must be a dict, not {value!r}")
    return value


def _stream(state: Mapping[Any, Any]) -> Mapping[str, Any]:
    stream = _mapping(state, "stream")
    _count(stream, "read")
    _present(stream, "state")
    return stream


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key in value:
            yield from _leaves(value[key], f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def differences(saved: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """Return one line for each value in which two fingerprints differ."""
    if saved == present:
        return []
    missing = object()
    old, new = dict(_leaves(saved, "")), dict(_leaves(present, ""))

    def shown(value: Any) -> str:
        return "nothing" if value is missing else repr(value)

    return [
        f"{path}: the state has {shown(old.get(path, missing))}, the loader has {shown(new.get(path, missing))}"
        for path in dict.fromkeys([*old, *new])
        if old.get(path, missing) != new.get(path, missing)
    ]
