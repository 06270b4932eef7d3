"""Chains of steps: `Compose`, and `Identity`, the step that does nothing.

Note [planning]
    Steps that belong together can be carried out as one (decode and crop, say). A step that knows such a thing has a
    method `plan(steps, place) -> (planned, count) | None`: `steps` are all steps of the chain, itself at `place`; it
    answers with a callable `planned(item, context)` that does the work of the next `count` steps, or with `None`.
    Before that, a step with a method `follow(state) -> state` is told what it will get, and tells what it makes of it
    (`None`: not known), so that a wrong order of steps is an error when the chain is built. A step whose work depends
    on it has a method `bind(state) -> step`, too: the step that is planned and run in its place.
    `plan=False` runs the steps one by one, as they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from feedline.transforms.protocol import ItemContext, Transform, check_transform, wants_context

__all__ = ["Compose", "Identity"]


class Identity(Transform):
    """The item as it is; a loader with it runs no transform at all."""

    def __call__(self, item: Any, context: ItemContext | None = None) -> Any:
        """Return `item`."""
        return item

    def __repr__(self) -> str:
        return "Identity()"

    def __eq__(self, other: object) -> bool:
        return type(other) is Identity

    def __hash__(self) -> int:
        return hash(Identity)


class Compose(Transform):
    """Steps, one after the other.

    Args:
        steps: callables of one (`item`) or two (`item, context`) required arguments; nested chains are flattened.
        plan: let steps that know how be carried out together (see the note in the module); the result is the same,
            within the tolerance that the step documents.

    Raises:
        TypeError: a step is not callable, or needs other arguments.
        OptionError: a step can't follow the one before it, where that can be known.

    Determinism: `context.rng` of a step depends on its place among the flattened steps.

    >>> from feedline import Compose
    >>> Compose([lambda x: x + 1, lambda x: x * 10])(2)
    30
    """

    # The context is optional for who calls a chain by hand; a loader must give it, or all items draw the same numbers.
    takes_context: ClassVar[bool] = True

    def __init__(self, steps: Iterable[Callable[..., Any]], plan: bool = True) -> None:
        if isinstance(steps, (str, bytes)) or not isinstance(steps, Iterable):
            raise TypeError(f"Compose takes a list of steps, not {steps!r}")
        flat: list[Callable[..., Any]] = []
        for step in steps:
            check_transform(step)
            flat.extend(step.steps if isinstance(step, Compose) else [step])
        self.steps: tuple[Callable[..., Any], ...] = tuple(flat)
        self.plan = bool(plan)
        self._bind()

    def _bind(self) -> None:
        state: Any = None
        bound: list[Callable[..., Any]] = []
        for step in self.steps:
            bind = getattr(step, "bind", None)
            bound.append(bind(state) if callable(bind) else step)
            follow = getattr(step, "follow", None)
            state = follow(state) if follow is not None else None
        self.result = state
        # (place, callable, wants context) for what really runs.
        self._runs: list[tuple[int, Callable[..., Any], bool]] = []
        place = 0
        while place < len(self.steps):
            step = bound[place]
            planner = getattr(step, "plan", None) if self.plan else None
            planned = planner(tuple(bound), place) if callable(planner) else None
            if planned is not None:
                run, count = planned
                self._runs.append((place, run, True))
                place += count
            else:
                self._runs.append((place, step, wants_context(step)))
                place += 1

    def __call__(self, item: Any, context: ItemContext | None = None) -> Any:
        """Return what the steps make of `item`.

        Without a `context` (called by hand) steps that need one get that of seed 0, epoch 0, index 0.
        """
        if context is None:
            context = ItemContext(0, 0, 0)
        final = self._runs[-1][0] if self._runs else 0
        for place, run, with_context in self._runs:
            context.place = place
            context.last = place == final
            item = run(item, context) if with_context else run(item)
        return item

    def explain(self) -> str:
        """Return one line for each thing that is carried out: a step, or several planned together."""
        lines: list[tuple[int, Any]] = []
        for place, run, _ in self._runs:
            parts = getattr(run, "parts", None)
            lines += [(place, run)] if parts is None else parts()
        return "\n".join(f"{place}: {run!r}" for place, run in lines)

    def __getstate__(self) -> dict[str, Any]:
        # What was planned is made again where it is used: it may hold buffers, threads' memory or lambdas.
        return {"steps": self.steps, "plan": self.plan}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]
        self.plan = state["plan"]
        self._bind()

    def __repr__(self) -> str:
        inner = ", ".join(repr(step) for step in self.steps)
        return f"Compose([{inner}])" if self.plan else f"Compose([{inner}], plan=False)"
