"""trace: the modules of a model in the order in which they ran, as a list, a tree and a drawing.

Upstream: a backend's facts of one run. Downstream: a terminal, a notebook, an SVG file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from hookline.backends import resolve
from hookline.backends.facts import CallFact, RunFacts
from hookline.backends.nouns import Model
from hookline.summaries.drawing import Node, drawn
from hookline.summaries.inputs import of_learner, prepare
from hookline.summaries.numbers import arguments, shapes
from hookline.summaries.summary import failed, run


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a module; `call` numbers those of the same module from 1, `depth` is 1 for the model's parts."""

    name: str
    type: str
    call: int
    depth: int
    input: str
    output: str

    def __str__(self) -> str:
        again = f", call {self.call}" if self.call > 1 else ""
        return f"{self.name or '(model)'} ({self.type}{again}): {self.input} -> {self.output}"


def trace(model: Model, *inputs: Any, dtype: Any = None, real: bool = False, **kwargs: Any) -> Trace:
    """The Trace of `model` on these inputs, which are given as `summary` takes them.

    >>> import torch
    >>> relu = torch.nn.ReLU()
    >>> trace(torch.nn.Sequential(torch.nn.Linear(3, 3), relu, torch.nn.Linear(3, 2), relu), (4, 3)).names
    ['0', '1', '2', '1']
    """
    if (learner := of_learner(model)) is not None:
        model, batch = learner
        inputs = inputs or batch
    backend = resolve(model)
    backend.framework.need("trace")
    given = prepare(backend, model, inputs, kwargs, dtype)
    facts = run(backend, model, given, retry=dtype is None, real=real, flow=True)
    if facts.error is not None:
        raise failed(facts) from facts.error
    return Trace(facts)


class Trace(Sequence[Step]):
    """Steps in the order in which calls returned, a part before the whole; the model itself is not among them."""

    def __init__(self, facts: RunFacts) -> None:
        self._facts = facts
        self._types = {module.name: module.type for module in facts.modules}
        self._steps = self._made()
        self.notes = facts.notes

    def _made(self) -> dict[int, Step]:
        """A step for each call, by the number of the call in order of beginning."""
        counts: dict[str, int] = {}
        depths: list[int] = []
        steps: dict[int, Step] = {}
        for number, call in enumerate(self._facts.calls):
            counts[call.module] = counts.get(call.module, 0) + 1
            depths.append(0 if call.parent is None else depths[call.parent] + 1)
            given = arguments(call.input, call.kwargs)
            steps[number] = Step(
                call.name, self._types[call.module], counts[call.module], depths[-1], given, shapes(call.output)
            )
        return steps

    @property
    def names(self) -> list[str]:
        """The names of the modules in order, with repeated calls."""
        return [step.name for step in self]

    def _order(self) -> list[Step]:
        calls = self._facts.calls
        finished = [n for n, call in enumerate(calls) if call.parent is not None and call.finished is not None]
        return [self._steps[number] for number in sorted(finished, key=lambda n: calls[n].finished or 0)]

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> list[Step]: ...
    def __getitem__(self, index: int | slice) -> Step | list[Step]:
        return self._order()[index]

    def __len__(self) -> int:
        return len(self._order())

    def __iter__(self) -> Iterator[Step]:
        return iter(self._order())

    # As a tree

    def tree(self, depth: int | None = None) -> str:
        """The calls as a tree in order of beginning, in plain characters."""
        return "\n".join(self._branches(0, "", "", depth))

    def _branches(self, number: int, first: str, rest: str, depth: int | None) -> Iterator[str]:
        yield f"{first}{self._steps[number]}"
        if depth is not None and self._steps[number].depth >= depth:
            return
        below = [n for n, call in enumerate(self._facts.calls) if call.parent == number]
        for child in below:
            last = child == below[-1]
            yield from self._branches(
                child, rest + ("`-- " if last else "|-- "), rest + ("    " if last else "|   "), depth
            )

    def __str__(self) -> str:
        return self.tree()

    def __repr__(self) -> str:
        return f"<trace of {self._types['']}, {len(self)} calls>"

    # As a drawing

    def nodes(self) -> list[Node]:
        """What is drawn: the calls that called nothing themselves, and which of them feed which."""
        calls = self._facts.calls
        callers = {call.parent for call in calls}
        return [
            Node(number, step.name or step.type, step.type, step.output, self._feeding(call))
            for number, (call, step) in enumerate(zip(calls, self._steps.values(), strict=True))
            if number not in callers
        ]

    @staticmethod
    def _feeding(call: CallFact) -> tuple[int, ...]:
        return tuple(sorted(call.fed_by))

    def svg(self) -> str:
        """The graph of data between modules, residual connections too, as an SVG.

        Drawn by graphviz where its `dot` is installed, else by hookline itself, in one column.
        """
        return drawn(self.nodes(), self._types[""])

    def save(self, path: str | Path) -> Path:
        """Writes the drawing to a file, and returns its path."""
        path = Path(path)
        path.write_text(self.svg(), encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        svg = self.svg()
        return f'<div style="max-height:80vh;overflow:auto">{svg[svg.index("<svg") :]}</div>'
