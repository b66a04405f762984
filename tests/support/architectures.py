"""Well-known architectures, built on the meta device: (model, inputs, parameters, multiply-accumulates).

Where figures are published they stand as such; the others are computed by hand from the formula of
each layer, spelled out beside the model. A multiply and an add count as one; attention counts the
whole matrix, also where it is causal.
"""

import torch
from torch import nn

from tests.support.resnet import ResNet18

# torchvision's table of weights has GFLOPS (multiply-accumulates, in fact) to three digits.


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            *conv(inputs, width, 1), *conv(width, width, 3, stride), *conv(width, 4 * width, 1, act=False)
        )
        self.downsample = None
        if stride != 1 or inputs != 4 * width:
            self.downsample = nn.Sequential(*conv(inputs, 4 * width, 1, stride, act=False))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.body(x) + (x if self.downsample is None else self.downsample(x)))


def conv(inputs, outputs, size, stride=1, *, groups=1, act=True):
    layers = [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return [*layers, nn.ReLU6(inplace=True)] if act else layers


def resnet18():
    return ResNet18(), ((1, 3, 224, 224),), 11_689_512, 1_814_073_344  # torchvision: 1.814


def resnet50():
    layers, inputs = [*conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if block == 0 else 1))
            inputs = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)]
    return nn.Sequential(*layers), ((1, 3, 224, 224),), 25_557_032, 4_089_184_256  # torchvision: 4.089


def vgg16():
    layers, inputs = [], 3
    for width in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
        if width:
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = width
        else:
            layers.append(nn.MaxPool2d(2))
    head = [nn.Linear(25088, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout()]
    model = nn.Sequential(*layers, nn.Flatten(), *head, nn.Linear(4096, 1000))
    return model, ((1, 3, 224, 224),), 138_357_544, 15_470_264_320  # torchvision: 15.47


class InvertedResidual(nn.Module):
    def __init__(self, inputs, outputs, stride, expand):
        super().__init__()
        inside = inputs * expand
        layers = conv(inputs, inside, 1) if expand != 1 else []
        layers += [*conv(inside, inside, 3, stride, groups=inside), *conv(inside, outputs, 1, act=False)]
        self.body, self.residual = nn.Sequential(*layers), stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.body(x) if self.residual else self.body(x)


def mobilenet_v2():
    layers, inputs = conv(3, 32, 3, 2), 32
    for expand, outputs, count, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for number in range(count):
            layers.append(InvertedResidual(inputs, outputs, stride if number == 0 else 1, expand))
            inputs = outputs
    layers += [*conv(320, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(1280, 1000)]
    return (
        nn.Sequential(*layers),
        ((1, 3, 224, 224),),
        3_504_872,
        300_774_272,
    )  # paper: 3.4 M, 300 M; torchvision 0.301


class UNet(nn.Module):
    """Two levels, upsampling by transposed convolutions, skip connections by concatenation."""

    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.bottom = self.double(1, 8), self.double(8, 16), self.double(16, 32)
        self.pool = nn.MaxPool2d(2)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.merge2, self.merge1 = self.double(32, 16), self.double(16, 8)
        self.head = nn.Conv2d(8, 2, 1)

    @staticmethod
    def double(inputs, outputs):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.ReLU(),
        )

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(self.pool(one))
        y = self.up2(self.bottom(self.pool(two)))
        y = self.up1(self.merge2(torch.cat([two, y], 1)))
        return self.head(self.merge1(torch.cat([one, y], 1)))


def unet():
    pairs = [(1, 8), (8, 8), (8, 16), (16, 16), (16, 32), (32, 32), (32, 16), (16, 16), (16, 8), (8, 8)]
    sizes = [64, 64, 32, 32, 16, 16, 32, 32, 64, 64]
    macs = sum(9 * a * b * s * s for (a, b), s in zip(pairs, sizes, strict=True)) + 8 * 2 * 64 * 64
    macs += 4 * 32 * 16 * 16 * 16 + 4 * 16 * 8 * 32 * 32  # each pixel *before* the step spreads to 2 x 2
    params = sum(9 * a * b + b for a, b in pairs) + (8 * 2 + 2) + (4 * 32 * 16 + 16) + (4 * 16 * 8 + 8)
    return UNet(), ((3, 1, 64, 64),), params, 3 * macs


def lstm():
    width, hidden, steps, batch = 20, 32, 7, 3
    gates = [
        4 * hidden * (width + hidden),
        4 * hidden * (2 * hidden + hidden),
    ]  # the second layer sees both directions
    params = 2 * sum(gates) + 2 * 2 * (2 * 4 * hidden)
    model = nn.LSTM(width, hidden, num_layers=2, bidirectional=True)
    return model, ((steps, batch, width),), params, 2 * sum(gates) * steps * batch


def layer(tokens, width, inside):
    """A transformer layer: four projections, scores and values, two linear layers."""
    return tokens * (4 * width * width + 2 * width * inside) + 2 * tokens * tokens * width


def encoder():
    part = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    per_layer = 4 * 512 * 512 + 4 * 512 + 2 * 512 * 2048 + 2048 + 512 + 4 * 512
    model = nn.TransformerEncoder(part, 6, enable_nested_tensor=False).eval()
    return model, ((2, 50, 512),), 6 * per_layer, 2 * 6 * layer(50, 512, 2048)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    macs = 12 * layer(1024, 768, 3072) + 1024 * 768 * 50257
    return GPT2LMHeadModel(GPT2Config()), ((1, 1024),), 124_439_808, macs  # 124 M: the tied head once


def bert():
    from transformers import BertConfig, BertModel

    # 109.48 M: "110 M" of the paper. The pooler sees one token.
    return BertModel(BertConfig()), ((2, 128),), 109_482_240, 2 * (12 * layer(128, 768, 3072) + 768 * 768)


def vit_b_16():
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(num_labels=1000)
    macs = 196 * 768 * 768 + 12 * layer(197, 768, 3072) + 768 * 1000
    assert round(macs / 1e9, 3) == 17.564  # torchvision's figure
    return ViTForImageClassification(config), ((1, 3, 224, 224),), 86_567_656, macs


def llama_7b():
    from transformers import LlamaConfig, LlamaForCausalLM

    tokens, width, inside = 512, 4096, 11008
    per_layer = tokens * (4 * width * width + 3 * width * inside) + 2 * tokens * tokens * width
    macs = 32 * per_layer + tokens * width * 32000
    return LlamaForCausalLM(LlamaConfig()), ((1, tokens),), 6_738_415_616, macs


ALL = [resnet18, resnet50, vgg16, mobilenet_v2, unet, lstm, encoder, gpt2, bert, vit_b_16, llama_7b]


def on_meta(build):
    with torch.device("meta"):
        model, inputs, params, macs = build()
    return model.eval(), inputs, params, macs
