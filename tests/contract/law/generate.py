"""Random networks, drawn by hypothesis so that a failure comes back as the smallest one that shows it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import assume
from hypothesis import strategies as st

from tests.contract.law.networks import (
    CONSTANTS,
    Call,
    Compute,
    Keep,
    Module,
    Nest,
    Program,
    Statement,
    Write,
    is_value,
    ways,
    with_step,
)
from tests.contract.law.reference import by_hand

CALLS = 24
"""How many calls a network makes at most."""
LEVELS = 3
ONE = ("{0} * 0.5", "torch.sin({0})", "torch.tanh({0})", "{0} * 2 + {0}.sin()", "{0} * self.w")
ONE_MATRIX = ("{0}.expand(3, 3) @ self.w",)
TWO = ("{0} + {1}", "{0} * {1}", "{0} + {1} + {0}", "{0}.sin() * 0.3 + {0}.tanh() + {1}.cos() * 0.7")
VIEWS = (
    "{0}[:, :1]",
    "{0}.view_as({0})",
    "{0}.t()",
    "{0}[:1]",
    "{0}.expand(3, 3)",
    "{0}.flatten().view({0}.shape)",
    "{0}.unsqueeze(0).expand(2, -1, -1).sum(0)",
)
CUTS = ("{0}.detach()", "{0}.detach() + {0}")
WRITES = (
    "{0}.mul_(0.5)",
    "{0}.add_(1)",
    "{0}[:, :1].mul_(3)",
    "{0}[:1].add_(1)",
    "{0}.t().mul_(2)",
    "{0}.sin_()",
    "{0}.tanh_()",
    "{0}[:, :1].sin_()",
)  # each changes what it wrote before: one that does not would make networks seem sound whose writes others see
RETURNED = ("{0}", "{0}", "v0", "v0", "{0} + 1", "{0}[:, :1]", "{0}.view_as({0})", "self.w", "self.w.t()")
KINDS = ("tuple", "list", "dict", "Pair", "Box")


@dataclass(frozen=True)
class Features:
    """What networks may have."""

    writes: bool = True
    structures: bool = True
    keywords: bool = True
    kept: bool = True
    recursion: bool = True
    cuts: bool = True
    returned_weights: bool = True
    several_outputs: bool = True
    checkpoint: str = "False"
    modules: int = 8


EVERYTHING = Features()
# torch looks for tensors among the arguments of such a checkpoint alone: what comes in another way, a repeated
# forward is not cut off from, and its backward runs through the whole network. And it takes a parameter that is
# returned for a value it has computed, and repeats itself without end. All that comes out of it needs a gradient,
# also what was detached inside; and a tensor that is returned twice is one output.
REENTRANT = Features(
    writes=False,
    structures=False,
    kept=False,
    cuts=False,
    returned_weights=False,
    several_outputs=False,
    checkpoint="True",
)
PLAIN = Features(writes=False, structures=False, keywords=False, cuts=False, checkpoint="")
COMPILED = Features(checkpoint="", modules=4)


@dataclass
class _Made:
    """A module that was drawn, and what its callers need to know."""

    module: Module
    level: int
    calls: int
    callers: int = 0


class _Draft:
    """One module while it is drawn."""

    def __init__(self, draw: Any, features: Features, made: list[_Made], *, root: bool) -> None:
        self.draw, self.features, self.made = draw, features, made
        self.names: list[str] = []
        self.body: list[Statement] = []
        self.level = 0
        self.calls = 1
        self.depth = 0
        self.count = 0
        structured = features.structures
        self.arguments = tuple(
            self.parameter(structured) for _ in range(draw(st.sampled_from((1, 1, 2, 3) if not root else (1, 2))))
        )
        self.entered = set(self.names)

    def new(self) -> str:
        self.count += 1
        self.names.append(f"v{self.count - 1}")
        return self.names[-1]

    def value(self) -> str:
        """Some value; the last ones are likelier, since what nobody uses shows nothing."""
        back = self.draw(st.integers(0, len(self.names) - 1))
        return self.names[len(self.names) - 1 - back]

    def parameter(self, structured: bool) -> Nest:
        if not structured or self.draw(st.integers(0, 3)) < 3:
            return self.new()
        kind = self.draw(st.sampled_from(KINDS))
        return kind, (self.new(), self.new())

    def given(self, nest: Nest) -> Nest:
        """A nest like a parameter's, of values that the caller has."""
        return self.value() if isinstance(nest, str) else (nest[0], tuple(self.given(child) for child in nest[1]))

    def step(self) -> None:
        draw, features = self.draw, self.features
        kinds = ["one", "call", "two", "view"]
        kinds += ["call"] * 4 if self.made else []
        kinds += ["write", "write"] if features.writes else []
        kinds += ["keep"] if features.kept else []
        kinds += ["cut"] if features.cuts else []
        kinds += ["again"] if features.recursion and not self.depth and self.calls < CALLS // 3 else []
        kind = draw(st.sampled_from(kinds))
        if kind == "call" and not self.callable():
            kind = "one"
        if kind == "one":
            source = (self.value(),)
            self.body.append(Compute(self.new(), draw(st.sampled_from(ONE + ONE_MATRIX)), source))
        elif kind == "two":
            sources = self.value(), self.value()
            self.body.append(Compute(self.new(), draw(st.sampled_from(TWO)), sources))
        elif kind == "view":
            source = (self.value(),)
            self.body.append(Compute(self.new(), draw(st.sampled_from(VIEWS)), source))
        elif kind == "cut":
            source, quiet = (self.value(),), draw(st.booleans())
            template = draw(st.sampled_from(ONE if quiet else CUTS))
            self.body.append(Compute(self.new(), template, source, quiet))
        elif kind == "write":
            self.body.append(Write(self.value(), draw(st.sampled_from(WRITES)), fresh=True))
        elif kind == "keep":
            kept = self.value()
            if kept in self.entered:  # what others do with a tensor that is the caller's too is the caller's
                kept, source = self.new(), (kept,)
                self.body.append(Compute(kept, "{0} * 2", source))
            self.body.append(Keep(kept))
        elif kind == "again":
            self.depth = draw(st.integers(1, 2))
            arguments = tuple(self.given(nest) for nest in self.arguments)
            end = self.value()
            self.body.append(Call(None, arguments, 0, ((self.new(), end),), len(self.body)))
        else:
            self.call()

    def callable(self) -> list[int]:
        """The modules that may still be called."""
        return [
            number
            for number, made in enumerate(self.made)
            if made.level < LEVELS and self.calls + made.calls <= CALLS // (self.depth + 1)
        ]

    def orphans(self) -> list[int]:
        """Those of them that nobody calls yet."""
        return [number for number in self.callable() if not self.made[number].callers]

    def call(self) -> None:
        draw, features = self.draw, self.features
        orphans = self.orphans()
        number = draw(st.sampled_from(orphans if orphans and draw(st.integers(0, 3)) else self.callable()))
        made = self.made[number]
        made.callers += 1
        arguments = tuple(self.given(nest) for nest in made.module.arguments)
        keywords = draw(st.integers(0, len(arguments))) if features.keywords else 0
        quiet = features.cuts and draw(st.integers(0, 9)) == 9
        result = tuple((self.new(), way) for leaf, way in ways(made.module.result) if is_value(leaf))
        self.body.append(Call(number, arguments, keywords, result, len(self.body), quiet))
        self.level = max(self.level, made.level + 1)
        self.calls += made.calls

    def returned(self) -> Nest:
        """What comes back: one value or several, that may well depend on each other."""
        draw, features = self.draw, self.features
        count = draw(st.sampled_from((1, 1, 2, 2, 3))) if features.several_outputs else 1
        templates = [one for one in RETURNED if features.returned_weights or "self.w" not in one]
        leaves: list[Nest] = [draw(st.sampled_from(templates)).format(self.value()) for _ in range(count)]
        if count == 1 and (not features.structures or draw(st.booleans())):
            return leaves[0]
        if not features.structures:
            return "tuple", tuple(leaves)
        if draw(st.integers(0, 3)) == 3:
            leaves.append(draw(st.sampled_from(CONSTANTS)))
        if len(leaves) > 2 and draw(st.booleans()):
            leaves[:2] = [(draw(st.sampled_from(KINDS)), tuple(leaves[:2]))]
        kinds = KINDS if len(leaves) == 2 else KINDS[:3]
        return draw(st.sampled_from(kinds)), tuple(leaves)

    def finished(self) -> _Made:
        module = Module(self.arguments, tuple(self.body), self.returned(), self.depth)
        return _Made(module, self.level, self.calls * (self.depth + 1))


@st.composite
def networks(draw: Any, features: Features = EVERYTHING) -> Program:
    """A network that torch runs, and in which a value is written to only where nobody else sees it."""
    made: list[_Made] = []
    total = draw(st.integers(1, features.modules))
    for number in range(total):
        root = number == total - 1
        draft = _Draft(draw, features, made, root=root)
        for _ in range(draw(st.integers(1, 6) if root else st.integers(0, 4))):
            draft.step()
        while root and draft.orphans() and draw(st.integers(0, 3)):
            draft.call()
        made.append(draft.finished())
    root_module = made[-1].module
    inputs = tuple(draw(st.lists(st.sampled_from(("leaf", "inner", "inner", "plain")), min_size=1, max_size=3)))
    names = st.integers(0, len(inputs) - 1).map("x{}".format)
    arguments = tuple(_filled(nest, lambda: draw(names)) for nest in root_module.arguments)
    outputs = [way for leaf, way in ways(root_module.result) if is_value(leaf)]
    used = tuple(way for way in outputs if draw(st.integers(0, 3)) < 3) or (outputs[0],)
    beside = tuple(f"x{number}" for number in range(len(inputs)) if draw(st.integers(0, 3)) == 3)
    keywords = draw(st.integers(0, len(arguments))) if features.keywords else 0
    program = Program(_reached(tuple(one.module for one in made)), inputs, arguments, keywords, used, beside)
    assume(_sound(program))
    return _with_risks(program, draw, features)


def _filled(nest: Nest, value: Any) -> Nest:
    return value() if isinstance(nest, str) else (nest[0], tuple(_filled(child, value) for child in nest[1]))


def _reached(modules: tuple[Module, ...]) -> tuple[Module, ...]:
    """Only the modules that the last one calls, by itself or through others, numbered anew."""
    wanted, waiting = set(), [len(modules) - 1]
    while waiting:
        number = waiting.pop()
        if number not in wanted:
            wanted.add(number)
            waiting += modules[number].children
    order = {old: new for new, old in enumerate(sorted(wanted))}

    def renumbered(step: Statement) -> Statement:
        return (
            replace(step, child=order[step.child]) if isinstance(step, Call) and step.child is not None else step
        )

    return tuple(replace(modules[old], body=tuple(map(renumbered, modules[old].body))) for old in sorted(wanted))


def _with_risks(program: Program, draw: Any, features: Features) -> Program:
    """The program with values written to where they are, and calls checkpointed, wherever this can be.

    A write that others see, or that torch refuses, and a checkpoint of what can't be repeated make
    another network of it, for which the reference is none.
    """
    for module, number, risky in list(_risks(program, features)):
        # Reentrant checkpoints in each other: a limit that the README of backends/torch names.
        nested = features.checkpoint == "True" and "checkpoint(" in program.source.partition("class M0")[2]
        if draw(st.integers(0, 3)) and not nested:
            bold = with_step(program, module, number, risky)
            program = bold if _sound(bold) else program
    return program


def _risks(program: Program, features: Features) -> Iterator[tuple[int, int, Statement]]:
    quiet = _called_quietly(program)
    for module, one in enumerate(program.modules):
        for number, step in enumerate(one.body):
            # What is written without autograd leaves no trace of where: see the README of backends/torch.
            if isinstance(step, Write) and module not in quiet:
                yield module, number, replace(step, fresh=False)
            elif isinstance(step, Call) and step.child is not None and features.checkpoint:
                keywords = 0 if features.checkpoint == "True" else step.keywords
                yield module, number, replace(step, checkpoint=features.checkpoint, keywords=keywords)


def _called_quietly(program: Program) -> set[int]:
    """The modules that run without grad, in a call of their own or of one that calls them."""
    found: set[int] = set()
    waiting = [
        step.child
        for module in program.modules
        for step in module.body
        if isinstance(step, Call) and step.quiet and step.child is not None
    ]
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            waiting += program.modules[number].children
    return found


def _sound(program: Program) -> bool:
    """Whether torch runs it, and the reference computes the same loss and gradients."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            built = program.built()
            model, leaves = built.build(), built.inputs()
            _, loss = built.run(model, model, leaves)
            if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
                return False
            loss.backward()
            expected = by_hand(program)
        except (RuntimeError, UserWarning):
            return False
    got = [loss.detach(), *(p.grad for p in model.parameters()), *(leaf.grad for leaf in leaves)]
    wanted = [expected.loss, *expected.parameters.values(), *expected.inputs]
    return all(_same(a, b) for a, b in zip(got, wanted, strict=True))


def _same(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    if a is None or b is None:
        return a is b or not bool((a if b is None else b).any())
    return bool(torch.isfinite(a).all()) and torch.allclose(a, b, rtol=1e-9, atol=1e-12)
