"""Windows, diffusion, larger pictures, pictures beside texts."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from bench.diff.case import Case, broken
from bench.diff.networks.weights import copied, lived_in, ported


class Shifted(nn.Module):
    """Mixes the pixels of each window of 4 x 4, after the picture was moved a little."""

    def __init__(self, width: int, shift: int) -> None:
        super().__init__()
        self.shift = shift
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, height, across, width = x.shape
        h = torch.roll(self.norm(x), (-self.shift, -self.shift), dims=(1, 2))
        h = h.view(batch, height // 4, 4, across // 4, 4, width).permute(0, 1, 3, 5, 2, 4)
        h = self.mix(h.flatten(4)).unflatten(4, (4, 4)).permute(0, 1, 4, 2, 5, 3)
        return x + torch.roll(h.reshape(x.shape), (self.shift, self.shift), dims=(1, 2))


def windows(shifted: type[nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), shifted(8, 0), shifted(8, 1), shifted(8, 0), nn.Linear(8, 2))


@broken("Swin")
def rolled_the_wrong_way() -> Case:
    """The picture is moved the other way before its windows are mixed."""

    class Astray(Shifted):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, height, across, width = x.shape
            h = torch.roll(self.norm(x), (self.shift, self.shift), dims=(1, 2))
            h = h.view(batch, height // 4, 4, across // 4, 4, width).permute(0, 1, 3, 5, 2, 4)
            h = self.mix(h.flatten(4)).unflatten(4, (4, 4)).permute(0, 1, 4, 2, 5, 3)
            return x + torch.roll(h.reshape(x.shape), (-self.shift, -self.shift), dims=(1, 2))

    a = lived_in(windows(Shifted))
    b = copied(a)
    b[2] = ported(a[2], Astray(8, 1))
    return Case(a, b, torch.randn(2, 8, 8, 3), {"2"}, {"code"})


class Times(nn.Module):
    """A step of a diffusion as sines and cosines."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("rates", torch.logspace(0, -3, width // 2))
        self.fc = nn.Linear(width, width)

    def forward(self, step: torch.Tensor) -> torch.Tensor:
        angles = step[:, None] * self.rates
        return self.fc(torch.cat([angles.sin(), angles.cos()], dim=-1))


class Film(nn.Module):
    """A block that the step scales and shifts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, width)
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.told = nn.Linear(12, 2 * width)

    def forward(self, x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        scale, shift = self.told(told)[:, :, None, None].chunk(2, dim=1)
        return x + self.conv(functional.silu(self.norm(x) * (1 + scale) + shift))


class Diffusion(nn.Module):
    def __init__(self, times: type[nn.Module] = Times, film: type[nn.Module] = Film) -> None:
        super().__init__()
        self.times = times(12)
        self.enter = nn.Conv2d(1, 8, 3, padding=1)
        self.body = nn.ModuleList(film(8) for _ in range(2))
        self.out = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        told, x = self.times(step), self.enter(x)
        for one in self.body:
            x = one(x, told)
        return self.out(x)


def noisy() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(2, 1, 8, 8), torch.tensor([3.0, 40.0])


@broken("diffusion")
def cosines_first() -> Case:
    """Cosines stand before sines."""

    class Turned(Times):
        def forward(self, step: torch.Tensor) -> torch.Tensor:
            angles = step[:, None] * self.rates
            return self.fc(torch.cat([angles.cos(), angles.sin()], dim=-1))

    a = lived_in(Diffusion())
    return Case(a, ported(a, Diffusion(times=Turned)), noisy(), {"times"}, {"code"})


@broken("diffusion")
def scale_without_one() -> Case:
    """What is normalised is multiplied by the scale, not by one more than it."""

    class Plain(Film):
        def forward(self, x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
            scale, shift = self.told(told)[:, :, None, None].chunk(2, dim=1)
            return x + self.conv(functional.silu(self.norm(x) * scale + shift))

    a = lived_in(Diffusion())
    return Case(a, ported(a, Diffusion(film=Plain)), noisy(), {"body.0"}, {"code"})


class Larger(nn.Module):
    """Twice as large: by channels that become pixels, then by a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 24, 3, padding=1)
        self.body = nn.Conv2d(6, 6, 3, padding=1)
        self.up = nn.ConvTranspose2d(6, 3, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.pixel_shuffle(self.conv(x), 2)
        return self.up(self.body(x).relu())


@broken("super-resolution")
def depth_to_space() -> Case:
    """Channels become pixels in TensorFlow's order: the colour is the innermost of them."""

    class Ported(Larger):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.conv(x)
            batch, _, height, across = x.shape
            x = x.view(batch, 2, 2, 6, height, across).permute(0, 3, 4, 1, 5, 2)
            return self.up(self.body(x.reshape(batch, 6, 2 * height, 2 * across)).relu())

    a = lived_in(Larger())
    return Case(a, ported(a, Ported()), torch.randn(2, 3, 6, 6), {""}, {"code"})


@broken("super-resolution")
def kernel_turned() -> Case:
    """The kernel of a transposed convolution is turned by 180 degrees."""
    a = lived_in(Larger())
    b = copied(a)
    b.up.weight.data = a.up.weight.data.flip(2, 3)
    return Case(a, b, torch.randn(2, 3, 6, 6), {"up"}, {"weights"})


@broken("CLIP")
def text_not_normalised() -> Case:
    """The vectors of texts do not have the length one."""

    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.picture = nn.Sequential(nn.Linear(20, 16), nn.GELU(), nn.Linear(16, 8))
            self.text = nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 8))
            self.scale = nn.Parameter(torch.tensor(2.6))

        def forward(self, picture: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
            one = functional.normalize(self.picture(picture), dim=-1)
            two = functional.normalize(self.text(text), dim=-1)
            return self.scale.exp() * one @ two.T

    class Ported(Pairs):
        def forward(self, picture: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
            one = functional.normalize(self.picture(picture), dim=-1)
            return self.scale.exp() * one @ self.text(text).T

    a = lived_in(Pairs())
    return Case(a, ported(a, Ported()), (torch.randn(4, 20), torch.randn(4, 12)), {""}, {"code"})


@broken("CNN")
def relu_before_norm() -> Case:
    """ReLU comes before BatchNorm."""

    class Unit(nn.Module):
        def __init__(self, inside: int, outside: int) -> None:
            super().__init__()
            self.conv = nn.Conv2d(inside, outside, 3, padding=1, bias=False)
            self.bn = nn.BatchNorm2d(outside)
            self.relu = nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.relu(self.bn(self.conv(x)))

    class Ported(Unit):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.bn(self.relu(self.conv(x)))

    a = lived_in(nn.Sequential(Unit(3, 8), Unit(8, 8), nn.Flatten(), nn.Linear(8 * 36, 3)))
    b = ported(a, nn.Sequential(Ported(3, 8), Ported(8, 8), nn.Flatten(), nn.Linear(8 * 36, 3)))
    sites = {"0", "0.bn", "0.relu"}
    return Case(a, b, torch.randn(2, 3, 6, 6), sites, {"order", "code"})


class Unit(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 2 * width)
        self.fc2 = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.fc2(self.fc1(x).relu())


@broken("MLP")
def one_block_by_autocast() -> Case:
    """One block runs in bfloat16 by autocast."""

    class Lower(Unit):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return super().forward(x)

    a = lived_in(nn.Sequential(nn.Linear(5, 16), Unit(16), Unit(16), nn.Linear(16, 2)))
    b = copied(a)
    b[2] = ported(a[2], Lower(16))
    return Case(a, b, torch.randn(4, 5), {"2", "2.fc1"}, {"dtype"})


@broken("MLP")
def gradient_of_a_root() -> Case:
    """A length is the root of a sum, whose gradient at zero is not a number; the forward is the same."""

    class Distance(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.vector_norm(x, dim=-1, keepdim=True)

    class Ported(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.square().sum(-1, keepdim=True).sqrt()

    def build(distance: nn.Module) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6, bias=False), distance, nn.Linear(1, 3))

    a = lived_in(build(Distance()))
    x = torch.randn(5, 4)
    x[2] = 0
    b = ported(a, build(Ported()))
    kinds = {"grad_input", "grad_output", "param_grad"}
    return Case(a, b, x, {"1"}, {"not finite", "code"}, kinds=kinds, loss=lambda out: out.square().mean())
