"""Models: what the rows run. Weights are random; speed does not depend on them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions; its one ReLU works in place, as torchvision's does."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inside != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet50(nn.Module):
    """ResNet-50 with torchvision's names and order of operations."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        self.layer1 = _stage(64, 64, 3, 1)
        self.layer2 = _stage(256, 128, 4, 2)
        self.layer3 = _stage(512, 256, 6, 2)
        self.layer4 = _stage(1024, 512, 3, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(2048, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))

    def stem(self, x: torch.Tensor) -> torch.Tensor:
        return self.maxpool(self.relu(self.bn1(self.conv1(x))))


def _stage(inside: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(inside, width, stride)
    return nn.Sequential(first, *(Bottleneck(4 * width, width, 1) for _ in range(blocks - 1)))


def resnet50() -> tuple[nn.Module, torch.Tensor]:
    """ResNet-50 in eval mode, and one image."""
    torch.manual_seed(0)
    return ResNet50().eval(), torch.randn(1, 3, 224, 224)


def gpt2() -> tuple[nn.Module, torch.Tensor]:
    """A transformer of GPT-2's size in eval mode, and 64 tokens. Needs the package transformers."""
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    config = GPT2Config(use_cache=False)  # a cache of keys and values is no part of what is measured
    return GPT2Model(config).eval(), torch.randint(0, config.vocab_size, (1, 64))


def tiny(count: int = 1000) -> tuple[nn.Module, torch.Tensor]:
    """`count` modules so small that nearly all time is Python's; and an input. An output is 1 KiB."""
    torch.manual_seed(0)
    pairs = [(nn.Linear(32, 32), nn.ReLU()) for _ in range(count // 2)]
    return nn.Sequential(*(module for pair in pairs for module in pair)).eval(), torch.randn(8, 32)


def chain(count: int = 400) -> tuple[nn.Module, torch.Tensor]:
    """`count` modules in a row for forward and backward, and an input that needs a gradient."""
    torch.manual_seed(0)
    pairs = [(nn.Linear(16, 16), nn.Tanh()) for _ in range(count // 2)]
    return nn.Sequential(*(module for pair in pairs for module in pair)), torch.randn(2, 16, requires_grad=True)


def leaves(model: nn.Module) -> dict[str, nn.Module]:
    """The modules without parts, by name."""
    return {name: module for name, module in model.named_modules() if not module._modules}


def is_leaf(name: str, module: Any) -> bool:
    """A `where` for hookline that selects what `leaves` lists."""
    return not module._modules


def twin(model: nn.Module) -> Any:
    """A copy with the very same weights: what a tool leaves on its own copy can't slow the others down."""
    shared = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})
