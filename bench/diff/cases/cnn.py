"""Convolutions: settings with another default elsewhere, kernels and statistics that were carried over wrongly."""

from __future__ import annotations

import torch
from torch import nn

from bench.diff.case import Case, broken
from bench.diff.networks import cnn
from bench.diff.networks.weights import copied, exchange_all, lived_in, ported
from bench.models import ResNet50


def resnets() -> tuple[cnn.ResNet, cnn.ResNet, torch.Tensor]:
    """A, a copy of it, and two images."""
    a = lived_in(cnn.ResNet())
    return a, copied(a), torch.randn(2, 3, 16, 16)


@broken("CNN")
def batchnorm_epsilon() -> Case:
    """Every BatchNorm has Keras' epsilon, 1e-3 for 1e-5."""
    a, b, x = resnets()
    for module in b.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 1e-3
    return Case(a, b, x, {"bn1"}, {"setting"})


@broken("CNN")
def kernel_transposed() -> Case:
    """One kernel of 3 x 3 has its height and width exchanged."""
    a, b, x = resnets()
    b.layer2[0].conv2.weight.data = a.layer2[0].conv2.weight.data.transpose(2, 3).contiguous()
    return Case(a, b, x, {"layer2.0.conv2"}, {"transposed weight", "weights"})


@broken("CNN")
def stale_variance() -> Case:
    """The running variance of one BatchNorm was not loaded: it is that of a new one."""
    a, b, x = resnets()
    b.layer1[1].bn1.running_var.fill_(1)
    return Case(a, b, x, {"layer1.1.bn1"}, {"buffers"})


@broken("CNN")
def padded_by_reflection() -> Case:
    """One convolution pads by reflection, not by zeros."""
    a, b, x = resnets()
    b.layer1[0].conv2 = nn.Conv2d(12, 12, 3, padding=1, padding_mode="reflect", bias=False)
    return Case(a, ported(a, b), x, {"layer1.0.conv2"}, {"setting"})


@broken("CNN")
def padding_counted() -> Case:
    """The mean over a window counts the padding, as torch does unless told otherwise."""
    a, b, x = resnets()
    b.pool = nn.AvgPool2d(3, stride=2, padding=1)
    return Case(a, b.eval(), x, {"pool"}, {"setting"})


@broken("CNN")
def dilated() -> Case:
    """A convolution is dilated, and padded so that the shape is the same."""
    a, b, x = resnets()
    b.layer2[1].conv1 = nn.Conv2d(12, 12, 3, padding=2, dilation=2, bias=False)
    return Case(a, ported(a, b), x, {"layer2.1.conv1"}, {"setting"})


@broken("CNN")
def wrong_residual() -> Case:
    """A block adds what its first convolution gave, not what came in."""

    class Block(cnn.Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(x))
            return self.relu(out + x)

    a, _, x = resnets()
    return Case(a, ported(a, cnn.ResNet(Block)), x, {"layer1.0"}, {"code"})


@broken("CNN")
def branches_exchanged() -> Case:
    """Two branches of the same shape have each other's weights."""
    a = lived_in(cnn.Inception())
    b = copied(a)
    exchange_all(b.left, b.right)
    return Case(a, b, torch.randn(2, 3, 12, 12), {"left"}, {"exchanged weights"})


@broken("CNN")
def leaky_slope() -> Case:
    """LeakyReLU has TensorFlow's slope, 0.2 for 0.01."""
    a, b, x = resnets()
    b.act = nn.LeakyReLU(0.2)
    return Case(a, b.eval(), x, {"act"}, {"setting"})


@broken("CNN")
def batchnorm_in_training() -> Case:
    """One BatchNorm was left in training mode: it uses the statistics of the batch."""
    a, b, x = resnets()
    b.layer2[0].bn1.train()
    return Case(a, b, x, {"layer2.0.bn1"}, {"mode"})


@broken("CNN")
def resnet50_epsilon() -> Case:
    """ResNet-50 at its own size, with an epsilon of 1e-3 for 1e-5 in one BatchNorm of its last block."""
    a = lived_in(ResNet50())
    b = copied(a)
    b.layer4[2].bn3.eps = 1e-3
    return Case(a, b, torch.randn(1, 3, 128, 128), {"layer4.2.bn3"}, {"setting"})


@broken("CNN")
def colours_reversed() -> Case:
    """The same model is handed images in BGR, not in RGB."""
    a, b, x = resnets()
    sites = {"", "conv1"}
    return Case(a, b, x, sites, {"inputs"}, kinds={"input", "output"}, inputs_b=x.flip(1))
