"""Orders that torch defines: samplers that are walked, and generators whose state makes their order.

Note [draws]
    torch's loader draws 64 bits from its generator when an epoch starts (the seed of the workers), and the sampler
    draws when it is first asked; `RandomSampler` draws once more when it is exhausted. All of that is done here in the
    same order, so that the generator goes through the same states. A sampler without a generator of its own draws from
    torch's global one; then, and only then, the seed of the workers is drawn from there as well, as torch does.

Note [resume]
    A state has the generators' states at the start of its epoch. To go on, they are set to these, and the sampler is
    walked up to the position. The global generator is put back afterwards: where it stands then is its user's affair.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from feedline.errors import StateError
from feedline.loader.batch import Task
from feedline.loader.failures import as_batch_error
from feedline.loader.indices import as_key
from feedline.loader.plan import IterablePlan, Plan
from feedline.loader.source import IterableSource
from feedline.torch.epochs import EpochVoice, chain_of

__all__ = ["TorchSource"]

_DRAWING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


class TorchSource(IterableSource):
    """A torch sampler, batch sampler, or any other iterable, walked as torch walks it.

    Args:
        dataset: the loader's.
        indices: the iterable.
        batch_size: items per batch; `None` if the iterable gives whole batches.
        drop_last: leave a last batch out that is not full.
        single: the iterable's values go to the dataset as they are, one at a time (`batch_size=None`).
        generator: the loader's.
    """

    def __init__(
        self,
        dataset: Any,
        indices: Iterable[Any],
        batch_size: int | None,
        drop_last: bool,
        *,
        single: bool,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__(dataset, indices, batch_size, drop_last)
        self._single = single
        self._loader_generator = generator
        self.voice = EpochVoice(indices)
        #: What torch would seed its workers with in the epoch that was started last, if it draws it from a generator.
        self.base_seed: int | None = None
        self._own, self._draws_globally = _generators_of(indices, generator)

    @property
    def generators(self) -> list[torch.Generator]:
        """The generators that the order depends on, the global one last."""
        return [*self._own, *([torch.default_generator] if self._draws_globally else [])]

    def plan(self, epoch: int, position: int, first: int, stream: Mapping[str, Any] | None = None) -> Plan:
        """Start walking the sampler; `stream` has the generators' states at the start of the epoch."""
        self.voice.tell(epoch)
        recorded = None if stream is None else _decoded(stream["state"], self.generators)
        opening = _Opening(self, recorded)
        whole = self.whole(epoch)
        return _TorchPlan(
            opening,
            epoch,
            self._batch_size,
            drop_last=self._drop_last,
            first=first,
            skip=position,
            single=self._single,
            whole=whole,
        )

    def walk(self) -> Iterator[Any]:
        """Start the sampler, and draw what torch draws: see Note [draws]."""
        walk = iter(self._indices)
        if self._loader_generator is not None or self._draws_globally:
            seed = torch.empty((), dtype=torch.int64).random_(generator=self._loader_generator)
            self.base_seed = int(seed.item())
        return walk

    def present(self) -> Mapping[str, Any] | None:
        """Return the generators' present states as JSON values, in the form of `LoaderState.stream`."""
        return _encoded([generator.get_state() for generator in self.generators])

    def check(self, stream: Mapping[str, Any] | None) -> None:
        """Raise a `StateError` if `stream` does not fit the generators."""
        if stream is None:
            if self.generators:
                raise StateError(
                    "the state has no states of generators, on which this loader's order depends"
                )
            return
        _decoded(stream["state"], self.generators)

    def describe(self) -> dict[str, Any]:
        """Return what the base does, and how many generators the order depends on."""
        described = super().describe()
        if self.generators:
            described["generators"] = len(self.generators)
        return described


def _generators_of(indices: Any, generator: torch.Generator | None) -> tuple[list[torch.Generator], bool]:
    own = [] if generator is None else [generator]
    draws_globally = False
    for sampler in chain_of(indices):
        found = getattr(sampler, "generator", None)
        if isinstance(found, torch.Generator):
            if not any(found is known for known in own):
                own.append(found)
        elif found is None and isinstance(sampler, _DRAWING):
            draws_globally = True
    return own, draws_globally


class _Opening:
    """Starts the walk of one epoch, and starts it again from the same states after a Ctrl-C."""

    def __init__(self, source: TorchSource, recorded: list[torch.Tensor] | None) -> None:
        self._source = source
        self._restores = recorded is not None
        self.states = recorded or [generator.get_state() for generator in source.generators]

    def __iter__(self) -> Iterator[Any]:
        if not self._restores:
            self._restores = True
            return self._source.walk()
        is_global = [generator is torch.default_generator for generator in self._source.generators]
        present = torch.default_generator.get_state()
        for generator, state in zip(self._source.generators, self.states, strict=True):
            generator.set_state(state)
        if not any(is_global) or torch.equal(present, torch.default_generator.get_state()):
            return self._source.walk()
        try:
            return iter(list(self._source.walk()))
        finally:
            torch.default_generator.set_state(present)


class _TorchPlan(IterablePlan):
    """Tasks of a walk; keys that need no look go through quickly."""

    def __init__(
        self, opening: _Opening, *parts: Any, single: bool, whole: int | None, skip: int, **options: Any
    ) -> None:
        super().__init__(opening, *parts, skip=skip, **options)
        self._opening = opening
        self._single = single
        self._whole = whole
        self._spare: list[Any] = []

    def stream_state(self, number: int) -> Mapping[str, Any] | None:
        """Return the generators' states at the start of the epoch."""
        return _encoded(self._opening.states)

    def _draw(self) -> None:
        if self._spare:
            self._values.extend(self._spare)
            self._spare = []
        super()._draw()
        walk = self._walk
        # What is needed for one batch more.
        least = self._size if self._drop_last and self._size is not None else 1
        if walk is not None and self._whole is not None and self._whole - walk.drawn < least:
            # Exhaust it with the last batch: what it draws then must not depend on whether anybody asks again.
            walk.draw(self._spare, least)
            if len(self._spare) < least:
                self._spare = []
                self._total = self._units + len(self._values)
                self._walk = None

    def _task(self, values: Any, start: int) -> Task:
        if self._single:
            try:
                return Task(self._following, self._epoch, [_as_given(values[0], start)])
            except Exception as error:
                return Task(self._following, self._epoch, (), error=as_batch_error(error, None))
        if type(values) is list and set(map(type, values)) == {int} and min(values) >= 0:
            return Task(self._following, self._epoch, values)
        return super()._task(values, start)


def _as_given(value: Any, position: int) -> Any:
    """Return a value for `dataset[value]`: ints and keys as everywhere; lists of indices and slices as they are."""
    if isinstance(value, (list, tuple, slice)) or (
        isinstance(value, (np.ndarray, torch.Tensor)) and value.ndim
    ):
        return value
    return as_key(value, position)


def _encoded(states: list[torch.Tensor]) -> Mapping[str, Any] | None:
    if not states:
        return None
    texts = [base64.b64encode(state.numpy().tobytes()).decode("ascii") for state in states]
    return {"read": 0, "state": {"generators": texts}}


def _decoded(state: Any, generators: list[torch.Generator]) -> list[torch.Tensor]:
    texts = state.get("generators") if isinstance(state, Mapping) else None
    if not isinstance(texts, list) or len(texts) != len(generators):
        found = "none" if not isinstance(texts, list) else len(texts)
        raise StateError(
            f"the state does not fit this loader:\n  generators: the state has {found}, the loader has "
            f"{len(generators)}"
        )
    states = []
    for text, generator in zip(texts, generators):
        try:
            tensor = torch.frombuffer(bytearray(base64.b64decode(text, validate=True)), dtype=torch.uint8)
            # Tried out on a generator of its own.
            torch.Generator(device=generator.device).set_state(tensor)
        except (TypeError, ValueError, RuntimeError, binascii.Error) as error:
            raise StateError(f"the state of a generator can't be read: {error}") from None
        states.append(tensor)
    return states
