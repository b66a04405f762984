"""Equal within rounding: the same code on another layout, dtype, number of threads, or in another wrapping."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import nn

from bench.diff.case import Case, equal
from bench.diff.networks import cnn, decoder, encoder, mixer, seq2seq, unet, vae
from bench.diff.networks.weights import copied, lived_in, ported


def squared(out: torch.Tensor) -> torch.Tensor:
    return out.float().square().mean()


@equal("CNN")
def channels_last() -> Case:
    """Images and kernels have their channels last in memory."""
    a, x = lived_in(cnn.ResNet()), torch.randn(2, 3, 16, 16)
    b = copied(a).to(memory_format=torch.channels_last)
    return Case(a, b, x, inputs_b=x.to(memory_format=torch.channels_last), loss=squared)


@equal("MLP")
def two_threads() -> Case:
    """On two threads, not on one."""

    class Threaded(nn.Sequential):
        threads = 1

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            before = torch.get_num_threads()
            torch.set_num_threads(self.threads)
            try:
                return super().forward(x)
            finally:
                torch.set_num_threads(before)

    a = Threaded(nn.Linear(600, 300), nn.LayerNorm(300), nn.ReLU(), nn.Linear(300, 40)).eval()
    b = copied(a)
    b.threads = 2
    return Case(a, b, torch.randn(400, 600))


@equal("MLP-Mixer")
def strided_images() -> Case:
    """The images are every second column of larger ones, not contiguous."""
    wide = torch.randn(2, 3, 16, 32)
    a = lived_in(mixer.Mixer())
    return Case(a, copied(a), wide[..., ::2].contiguous(), inputs_b=wide[..., ::2])


@equal("decoder")
def in_double() -> Case:
    """The reference is in float64, the port in float32."""
    b = lived_in(decoder.Decoder())
    return Case(copied(b).double(), b, torch.randint(0, 60, (2, 9)), loss=squared)


@equal("U-Net")
def unet_in_bf16() -> Case:
    """The whole model is in bfloat16."""
    a, x = lived_in(unet.UNet()), torch.randn(2, 2, 16, 16)
    return Case(a, copied(a).bfloat16(), x, inputs_b=x.bfloat16())


@equal("decoder")
def decoder_in_bf16() -> Case:
    """The whole model is in bfloat16; its cache too."""
    a = lived_in(decoder.Decoder(stepwise=True))
    return Case(a, copied(a).bfloat16(), torch.randint(0, 60, (2, 6)))


@equal("CNN")
def wrapped() -> Case:
    """The model is inside another, as DataParallel has it: every name begins with "module."."""

    class Wrapper(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return self.module(*args, **kwargs)

    a = lived_in(cnn.ResNet())
    return Case(a, Wrapper(copied(a)).eval(), torch.randn(2, 3, 16, 16), loss=squared)


@equal("MLP")
def renamed() -> Case:
    """Layers have other names, which a map tells."""

    def build(*names: str) -> nn.Module:
        layers = [nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 3)]
        return nn.Sequential(OrderedDict(zip(names, layers, strict=True)))

    a = lived_in(build("fc1", "act1", "fc2", "act2", "head"))
    b = build("dense_in", "nonlinear_in", "dense", "nonlinear", "out").eval()
    b.load_state_dict(dict(zip(b.state_dict(), a.state_dict().values(), strict=True)))
    names = dict(zip(("fc1", "act1", "fc2", "act2", "head"), b._modules, strict=True))
    return Case(a, b, torch.randn(4, 6), renamed=names, loss=squared)


@equal("encoder")
def renamed_by_globs() -> Case:
    """A stack has other names, which two lines of a map tell."""

    class Stack(nn.Module):
        def __init__(self, source: encoder.Encoder) -> None:
            super().__init__()
            self.embeddings = source.embed
            self.blocks = source.layers
            self.classifier = source.head

        def forward(self, ids: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
            x = self.embeddings(ids)
            for block in self.blocks:
                x = block(x, keep)
            return self.classifier(x)

    a = lived_in(encoder.Encoder())
    names = {"embed": "embeddings", "embed.**": "embeddings.**", "layers.**": "blocks.**", "head": "classifier"}
    return Case(a, Stack(copied(a)).eval(), encoder.sentences(), renamed=names)


@equal("encoder-decoder")
def loaded() -> Case:
    """Built anew, with the weights loaded."""
    a = lived_in(seq2seq.Translator())
    return Case(a, ported(a, seq2seq.Translator()), seq2seq.languages(), loss=squared)


@equal("encoder")
def in_training() -> Case:
    """A copy; both are in training mode, so that their dropout draws the same random numbers."""
    a = lived_in(encoder.Encoder()).train()
    return Case(a, copied(a), encoder.sentences(), loss=squared)


@equal("VAE")
def with_noise() -> Case:
    """A copy of a model that draws noise in its forward."""
    a = lived_in(vae.Vae())
    return Case(a, copied(a), vae.digits(), loss=lambda out: sum(one.square().mean() for one in out))


@equal("CNN")
def statistics_move() -> Case:
    """A copy; both are in training mode, so that each forward moves the running statistics."""
    a = lived_in(cnn.ResNet()).train()
    return Case(a, copied(a), torch.randn(4, 3, 16, 16), loss=squared)


@equal("RNN")
def scale_moves() -> Case:
    """A copy of a model that divides by a running scale, which each forward moves."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.ones(()))
            self.rnn = nn.RNN(4, 8, batch_first=True)
            self.fc = nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.scale.lerp_(3 * x.abs().mean(), 0.1)
            return self.fc(self.rnn(x / self.scale)[0][:, -1])

    a = lived_in(Scaled())
    return Case(a, copied(a), torch.randn(3, 7, 4))
