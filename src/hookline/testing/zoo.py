"""The zoo: small models that hooks get wrong. Every feature runs over all of them.

Each specimen builds the same model every time, with the arguments to call it with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

Build = Callable[[], tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True)
class Specimen:
    """An awkward model: `build()` gives (model, args, kwargs).

    `silent` are the sites that never fire, with a word that the audit's reason must contain; `told` is a site
    where listening to gradients changes last digits, as the audit says;
    `trains` is False where no gradient can flow; `steady` is False where a first call changes the
    model (lazy modules).
    """

    name: str
    build: Build
    silent: dict[str, str] = field(default_factory=dict)
    trains: bool = True
    steady: bool = True
    told: str | None = None

    def seeded(self) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
        """The model and its arguments, the same at every call."""
        torch.manual_seed(0)
        return self.build()

    def __str__(self) -> str:
        return self.name


ZOO: list[Specimen] = []


def _specimen(name: str, **facts: Any) -> Callable[[Build], Build]:
    def add(build: Build) -> Build:
        ZOO.append(Specimen(name, build, **facts))
        return build

    return add


def _x(*shape: int, grad: bool = True) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=grad)


# In-place operations


@_specimen("in-place ReLU after BatchNorm")
def _() -> Any:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Flatten())
    return model, (_x(2, 2, 5, 5),), {}


@_specimen("in-place ReLU after Linear, input without gradient")
def _() -> Any:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)), (_x(5, 3, grad=False),), {}


class InPlaceInside(nn.Module):
    """Writes to its own input, and adds to its output afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.act = nn.ReLU(inplace=True)
        self.last = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> Any:
        h = self.first(x)
        h += 1
        out = self.last(self.act(h))
        out *= 2
        return out


@_specimen("written to in place before and after modules")
def _() -> Any:
    return InPlaceInside(), (_x(4, 3),), {}


class ViewOut(nn.Module):
    """Its child's output is a view, which is then written to."""

    class Slice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(3, 6)

        def forward(self, x: torch.Tensor) -> Any:
            return self.lin(x)[:, :3]

    def __init__(self) -> None:
        super().__init__()
        self.slice = self.Slice()

    def forward(self, x: torch.Tensor) -> Any:
        y = self.slice(x)
        y.mul_(2)
        return y


@_specimen("output is a view, then written to in place")
def _() -> Any:
    return ViewOut(), (_x(2, 3),), {}


@_specimen("identities around an in-place ReLU")
def _() -> Any:
    return (
        nn.Sequential(nn.Linear(3, 3), nn.Identity(), nn.ReLU(inplace=True), nn.Dropout(0.5).eval()),
        (_x(2, 3),),
        {},
    )


# Calls and sharing


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.fc(torch.tanh(self.fc(x)))


@_specimen("one module called twice")
def _() -> Any:
    return Twice(), (_x(2, 3),), {}


@_specimen("one module under two names")
def _() -> Any:
    shared = nn.Linear(3, 3)
    return nn.Sequential(shared, nn.Tanh(), shared), (_x(2, 3),), {}


class Recursive(nn.Module):
    """A module that calls itself."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, depth: int = 2) -> Any:
        x = self.fc(x)
        return self(x, depth - 1) if depth else x


@_specimen("a module that calls itself")
def _() -> Any:
    return Recursive(), (_x(2, 3),), {}


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.shortcut = nn.Identity()
        self.gate = nn.Linear(3, 3)
        self.up = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> Any:
        h = self.body(x) + self.shortcut(x)
        return h + self.gate(h) * self.up(h)


@_specimen("residual connections")
def _() -> Any:
    return nn.Sequential(nn.Linear(3, 3), Residual(), Residual()), (_x(2, 3),), {}


# Structures


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@dataclass
class Answer:
    hidden: torch.Tensor
    extra: dict[str, Any]
    count: int = 3


class Checked(dict[str, torch.Tensor]):
    """Takes tensors only: nothing else can stand in its entries for a while."""

    def __setitem__(self, key: str, value: torch.Tensor) -> None:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"expected a tensor at {key!r}, got a {type(value).__name__}")
        super().__setitem__(key, value)


class Structured(nn.Module):
    """Returns its two results in whatever structure it was made with."""

    def __init__(self, pack: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.pack = pack

    def forward(self, x: torch.Tensor) -> Any:
        return self.pack(self.a(x), self.b(x))


def _tuple(a: Any, b: Any) -> Any:
    return a, b


def _list(a: Any, b: Any) -> Any:
    return [a, None, b]


def _nested(a: Any, b: Any) -> Any:
    return a, (b, {"text": "kept", "none": None})


def _dict(a: Any, b: Any) -> Any:
    return {"a": a, "b": [b, 7]}


def _answer(a: Any, b: Any) -> Any:
    return Answer(a, {"b": (b,)})


def _shape(a: Any, b: Any) -> Any:
    return a, a.shape, [b, b.size()]


def _checked(a: Any, b: Any) -> Any:
    return Checked(a=a, b=b)


def _none(a: Any, b: Any) -> Any:
    return None


def _number(a: Any, b: Any) -> Any:
    return 5


for _name, _pack in {
    "tuple": _tuple,
    "namedtuple": Pair,
    "list": _list,
    "nested tuple": _nested,
    "dict": _dict,
    "dataclass": _answer,
    "shape": _shape,
    "checked dict": _checked,
}.items():
    ZOO.append(
        Specimen(f"{_name} output", lambda pack=_pack: (Structured(pack), (_x(2, 3),), {}))  # type: ignore[misc]
    )
for _name, _pack in {"None": _none, "number": _number}.items():
    ZOO.append(
        Specimen(f"{_name} output", lambda pack=_pack: (Structured(pack), (_x(2, 3),), {}), trains=False)  # type: ignore[misc]
    )


class KeywordOnly(nn.Module):
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def forward(self, *, x: torch.Tensor, extra: dict[str, Any]) -> Any:
            return self.lin(x) + extra["bias"][0]

    def __init__(self) -> None:
        super().__init__()
        self.inner = self.Inner()

    def forward(self, *, x: torch.Tensor, bias: torch.Tensor) -> Any:
        return self.inner(x=x, extra={"bias": [bias], "mode": "plain"})


@_specimen("called with keywords only")
def _() -> Any:
    return KeywordOnly(), (), {"x": _x(2, 3), "bias": _x(2, 3)}


class TakesShape(nn.Module):
    """Hands shapes to its parts, as models with patches do."""

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor, shape: torch.Size, *, size: torch.Size) -> Any:
            return self.lin(x).reshape(shape), size

    def __init__(self) -> None:
        super().__init__()
        self.inner = self.Inner()

    def forward(self, x: torch.Tensor) -> Any:
        out, size = self.inner(x, x.shape, size=x.size())
        return out.expand(size)


@_specimen("shapes among the arguments")
def _() -> Any:
    return TakesShape(), (_x(2, 3),), {}


class ManyInputs(nn.Module):
    """Several differentiable inputs, one of them given twice, one unused."""

    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, unused: torch.Tensor) -> Any:
        return a * b + c * c


@_specimen("several inputs, one twice, one unused", told="")
def _() -> Any:
    x = _x(2, 3)
    return ManyInputs(), (x, _x(2, 3), x, _x(1)), {}


# Modules of torch with a life of their own


@_specimen("MultiheadAttention", silent={"out_proj": "out_proj.weight"}, told="")
def _() -> Any:
    x = _x(2, 5, 8)
    return nn.MultiheadAttention(8, 2, batch_first=True), (x, x, x), {}


@_specimen("TransformerEncoderLayer in eval", silent={"self_attn.out_proj": "out_proj.weight"}, told="self_attn")
def _() -> Any:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), (_x(2, 5, 8),), {}


@_specimen("LSTM")
def _() -> Any:
    return nn.LSTM(3, 4, num_layers=2, bidirectional=True), (_x(5, 2, 3),), {}


@_specimen("packed sequence through a GRU")
def _() -> Any:
    packed = nn.utils.rnn.pack_sequence([_x(4, 3, grad=False), _x(2, 3, grad=False)])
    return nn.GRU(3, 4), (packed,), {}


@_specimen("lazy modules", steady=False)
def _() -> Any:
    return nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2)), (_x(2, 3),), {}


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
        self.by_name = nn.ModuleDict({"one": nn.Linear(3, 3)})
        self.unused = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.by_name["one"](x)


@_specimen(
    "ModuleList, ModuleDict and an unused module",
    silent={"layers": "only holds modules", "by_name": "only holds modules", "unused": "never called"},
)
def _() -> Any:
    return Layers(), (_x(2, 3),), {}


class DirectForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.tied = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return F.linear(self.fc.forward(x), self.tied.weight)


@_specimen(
    ".forward called directly, weights used by hand",
    silent={"fc": "self.fc.forward directly", "tied": "self.tied.weight"},
)
def _() -> Any:
    return DirectForward(), (_x(2, 3),), {}


class Replaced(nn.Module):
    """A forward replaced on the instance, as accelerate does it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)
        old = self.fc.forward
        self.fc.forward = lambda x: old(x) * 2  # type: ignore[method-assign, assignment]

    def forward(self, x: torch.Tensor) -> Any:
        return self.fc(x)


@_specimen("forward replaced on the instance")
def _() -> Any:
    return Replaced(), (_x(2, 3),), {}


# Autograd with a life of its own


class Checkpointed(nn.Module):
    """Two segments that share a module, so that one site is recomputed in several segments."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.shared = nn.Linear(3, 3)
        self.one = nn.Sequential(self.shared, nn.Tanh(), self.shared, nn.ReLU(inplace=True))
        self.two = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), self.shared)

    def forward(self, x: torch.Tensor) -> Any:
        for part in (self.one, self.two):
            x = checkpoint(part, x, use_reentrant=self.reentrant)
        return x


@_specimen("checkpointing, reentrant")
def _() -> Any:
    return Checkpointed(reentrant=True), (_x(2, 3),), {}


@_specimen("checkpointing, not reentrant")
def _() -> Any:
    return Checkpointed(reentrant=False), (_x(2, 3),), {}


class Autocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))

    def forward(self, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return self.fc(x)


@_specimen("autocast to bfloat16")
def _() -> Any:
    return Autocast(), (_x(2, 4),), {}


class PartlyNoGrad(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.head = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> Any:
        with torch.no_grad():
            x = self.frozen(x)
        return self.head(x)


@_specimen("a part under no_grad")
def _() -> Any:
    return PartlyNoGrad(), (_x(2, 3),), {}


class Ids(nn.Module):
    """Integers in, complex numbers on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.fourier = nn.Embedding(7, 4), Fourier()

    def forward(self, ids: torch.Tensor) -> Any:
        return self.fourier(self.emb(ids)).abs()


class Fourier(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.fft.fft(x)


@_specimen("integer input, complex output")
def _() -> Any:
    return Ids(), (torch.tensor([[1, 2, 3]]),), {}


class Noise(nn.Module):
    """Uses the random generator in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 3))

    def forward(self, x: torch.Tensor) -> Any:
        return self.net(x) + torch.randn_like(x)


@_specimen("random numbers in the forward")
def _() -> Any:
    return Noise(), (_x(2, 3),), {}
