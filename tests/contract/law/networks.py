"""Networks as plain data: modules with statements, printed as a program and built from what is printed.

What a test runs is exactly the text that a failure shows. All values are matrices whose sides are 3 or 1,
so that any two of them can be added, and a column or a row is as good as the whole.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

Nest = str | tuple[str, tuple[Any, ...]]
"""An expression, or a container of some kind with nests in it: ("dict", ("v0", "None"))."""

LETTERS = "abcd"
SIDES = ("left", "right")


@dataclass(frozen=True)
class Compute:
    """`target = template`, with the sources put in; without grad if `quiet`."""

    target: str
    template: str
    sources: tuple[str, ...]
    quiet: bool = False


@dataclass(frozen=True)
class Write:
    """A write in place, to `target` as it is or, if `fresh`, to a copy that nobody else has."""

    target: str
    template: str
    fresh: bool = False


@dataclass(frozen=True)
class Call:
    """A call of an earlier module, or of itself (`child` None); `result` are the names that its tensors get."""

    child: int | None
    arguments: tuple[Nest, ...]
    keywords: int
    """How many of the arguments, from the end, are given by keyword."""
    result: tuple[tuple[str, str], ...]
    """(name, the way to it in what comes back); for a call of itself one name and what it is at the end."""
    number: int
    quiet: bool = False
    checkpoint: str = ""
    """"False" or "True", as `use_reentrant` has it; empty for a plain call."""


@dataclass(frozen=True)
class Keep:
    """`self.h = [source]`, which the loss uses."""

    source: str


Statement = Compute | Write | Call | Keep


@dataclass(frozen=True)
class Module:
    """A class with one instance; `arguments` are structures of the names that the body uses."""

    arguments: tuple[Nest, ...]
    body: tuple[Statement, ...]
    result: Nest
    depth: int = 0
    """How often it may call itself, one inside of the other."""

    @property
    def children(self) -> list[int]:
        """The modules it calls, by number, each once."""
        calls = [step.child for step in self.body if isinstance(step, Call) and step.child is not None]
        return sorted(set(calls))

    @property
    def has_weight(self) -> bool:
        return "self.w" in forward_of(self)


@dataclass(frozen=True)
class Program:
    """A network, the last of `modules`, what it gets and how the loss is made of what comes back."""

    modules: tuple[Module, ...]
    inputs: tuple[str, ...]
    """What x0, x1, ... are: "leaf", "inner" (not a leaf) or "plain" (needs no gradient)."""
    arguments: tuple[Nest, ...]
    keywords: int
    used: tuple[str, ...]
    """The ways to those outputs that the loss uses."""
    beside: tuple[str, ...] = ()
    """Inputs that the loss uses too."""
    dtype: str = "float64"

    @property
    def source(self) -> str:
        """The network as a program that can be run on its own."""
        return "\n".join(_lines(self)) + "\n"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What hypothesis prints; the source is noted apart."""
        printer.text(f"<the network of {len(self.modules)} modules below>")

    def built(self, **others: Any) -> SimpleNamespace:
        """The program's names: build, inputs, run. `others` stand in for names that the program uses."""
        source = self.source
        name = f"<network {hash(source):x}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        names: dict[str, Any] = {"__name__": __name__}
        exec(compile(source, name, "exec", dont_inherit=True), names)
        names.update(others)
        return SimpleNamespace(**names)


def written(nest: Nest) -> str:
    """A nest as an expression.

    >>> written(("dict", ("v0", ("tuple", ("v1", "None")))))
    "{'a': v0, 'b': (v1, None,)}"
    """
    if isinstance(nest, str):
        return nest
    kind, children = nest
    inner = [written(child) for child in children]
    if kind == "tuple":
        return "(" + "".join(f"{child}, " for child in inner).rstrip() + ")"
    if kind == "list":
        return "[" + ", ".join(inner) + "]"
    if kind == "dict":
        return "{" + ", ".join(f"{key!r}: {child}" for key, child in zip(LETTERS, inner, strict=False)) + "}"
    return f"{kind}(" + ", ".join(f"{side}={child}" for side, child in zip(SIDES, inner, strict=True)) + ")"


def ways(nest: Nest, start: str = "") -> Iterator[tuple[str, str]]:
    """(leaf, the way to it) for every leaf of a nest.

    >>> list(ways(("dict", ("v0", ("tuple", ("v1", "None")))), "out"))
    [('v0', "out['a']"), ('v1', "out['b'][0]"), ('None', "out['b'][1]")]
    """
    if isinstance(nest, str):
        yield nest, start
        return
    kind, children = nest
    for number, child in enumerate(children):
        if kind in ("tuple", "list"):
            step = f"[{number}]"
        elif kind == "dict":
            step = f"[{LETTERS[number]!r}]"
        else:
            step = f".{SIDES[number]}"
        yield from ways(child, start + step)


def is_value(leaf: str) -> bool:
    """Whether the leaf of a nest is a tensor, and no None, number or text."""
    return leaf not in CONSTANTS


CONSTANTS = ("None", "7", "'text'")


def with_step(program: Program, module: int, number: int, step: Statement) -> Program:
    """The program with another statement at that place."""
    body = list(program.modules[module].body)
    body[number] = step
    modules = list(program.modules)
    modules[module] = replace(modules[module], body=tuple(body))
    return replace(program, modules=tuple(modules))


_START = """\
import torch
from torch import nn

DTYPE = torch.{dtype}


def numbers(seed):
    return torch.sin(torch.arange(9, dtype=DTYPE) * 1.7 + seed).view(3, 3)


def weighed(value, seed):
    return (value * numbers(seed)).sin().sum()
"""

_WHERE_NEEDED = {
    "checkpoint(": "from torch.utils.checkpoint import checkpoint\n",
    "Pair(": """\
from typing import NamedTuple


class Pair(NamedTuple):
    left: object
    right: object
""",
    "Box(": """\
from dataclasses import dataclass


@dataclass
class Box:
    left: object
    right: object
""",
    "first(": """\

def first(tree):
    while not isinstance(tree, torch.Tensor):
        tree = tree[0] if isinstance(tree, (tuple, list)) else tree["a"] if isinstance(tree, dict) else tree.left
    return tree
""",
}

_KEPT = """\
    for number, part in enumerate(model.modules()):
        if hasattr(part, "h"):
            loss = loss + weighed(part.h[0], 70 + number)"""

_END = """\
    return out, loss


if __name__ == "__main__":
    model, leaves = build(), inputs()
    out, loss = run(model, model, leaves)
    loss.backward()
    print(loss.item(), *[p.grad for p in [*model.parameters(), *leaves]], sep="\\n")"""


def _lines(program: Program) -> Iterator[str]:
    yield _START.format(dtype=program.dtype)
    texts = [*map(forward_of, program.modules), ", ".join(map(written, program.arguments))]
    yield from (text for word, text in _WHERE_NEEDED.items() if any(word in line for line in texts))
    for number, module in enumerate(program.modules):
        yield f"\nclass M{number}(nn.Module):"
        children = module.children
        if children or module.has_weight:
            yield f"    def __init__(self{''.join(f', m{child}' for child in children)}):"
            yield "        super().__init__()"
            yield from (f"        self.m{child} = m{child}" for child in children)
            if module.has_weight:
                yield f"        self.w = nn.Parameter(numbers({number}))"
            yield ""
        yield forward_of(module)
    yield "\ndef build():"
    for number, module in enumerate(program.modules):
        yield f"    m{number} = M{number}({', '.join(f'm{child}' for child in module.children)})"
    yield f"    return m{len(program.modules) - 1}"
    yield from _run(program)


def _run(program: Program) -> Iterator[str]:
    yield "\n\ndef inputs():"
    names = [f"x{number}" for number in range(len(program.inputs))]
    kinds = list(zip(names, program.inputs, strict=True))
    values = [
        # The first is a view, which a leaf may be as well.
        f"numbers({20 + number})"
        + (".clone()" if number else "")
        + ("" if kind == "plain" else ".requires_grad_()")
        for number, (_, kind) in enumerate(kinds)
    ]
    yield f"    return [{', '.join(values)}]"
    yield "\n\ndef run(model, call, leaves):"
    yield f"    [{', '.join(names)}] = leaves"
    yield from (f"    {x} = {x} * 1" for x, kind in kinds if kind == "inner")
    yield f"    out = call({_arguments(program.arguments, program.keywords)})"
    terms = [f"weighed(out{way}, {40 + n})" for n, way in enumerate(program.used)]
    terms += [f"weighed({x}, {60 + n})" for n, x in enumerate(program.beside)]
    yield f"    loss = {' + '.join(terms)}"
    if any(isinstance(step, Keep) for module in program.modules for step in module.body):
        yield _KEPT
    yield _END


def forward_of(module: Module) -> str:
    """The text of a module's forward."""
    names = [f"p{number}" for number in range(len(module.arguments))]
    depth = [f"depth={module.depth}"] if module.depth else []
    lines = [f"    def forward({', '.join(['self', *names, *depth])}):"]
    for name, nest in zip(names, module.arguments, strict=True):
        lines += [f"        {leaf} = {way}" for leaf, way in ways(nest, name) if is_value(leaf)]
    for step in module.body:
        indent = "        "
        if getattr(step, "quiet", False):
            lines.append("        with torch.no_grad():")
            indent += "    "
        lines += [indent + line for line in _statement(step)]
    lines += [f"        return {written(module.result)}", ""]
    return "\n".join(lines)


def _statement(step: Statement) -> list[str]:
    if isinstance(step, Compute):
        return [f"{step.target} = {step.template.format(*step.sources)}"]
    if isinstance(step, Write):
        copy = [f"{step.target} = {step.target}.clone()"] if step.fresh else []
        return [*copy, step.template.format(step.target)]
    if isinstance(step, Keep):
        # In a list: a module makes parameters of its own of what is one. Without autograd, what a part hands on
        # is the caller's own tensor, and what is done with that is the caller's.
        return [f"self.h = [{step.source} if torch.is_grad_enabled() else {step.source}.detach()]"]
    given = _arguments(step.arguments, step.keywords)
    if step.child is None:
        ((name, end),) = step.result
        return [f"{name} = first(self({given}, depth=depth - 1)) if depth else {end}"]
    call = f"self.m{step.child}({given})"
    if step.checkpoint:
        call = f"checkpoint(self.m{step.child}, {given}, use_reentrant={step.checkpoint})"
    # torch takes a view that was made without grad for a leaf that needs one.
    cut = ".detach()" if step.quiet else ""
    return [f"r{step.number} = {call}", *(f"{name} = r{step.number}{way}{cut}" for name, way in step.result)]


def _arguments(nests: tuple[Nest, ...], keywords: int) -> str:
    texts = [written(nest) for nest in nests]
    start = len(texts) - keywords
    return ", ".join(text if number < start else f"p{number}={text}" for number, text in enumerate(texts))
