"""Equal within rounding: the same mathematics by other operators."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import GPT2Config, GPT2Model

from bench.diff.case import Case, equal
from bench.diff.networks import cnn, encoder, graph, unet, vit
from bench.diff.networks.weights import copied, lived_in, ported


def squared(out: torch.Tensor) -> torch.Tensor:
    return out.square().mean()


@equal("encoder")
def fused_attention() -> Case:
    """Attention by torch's fused operator, not by hand."""

    class Attention(encoder.Attention):
        def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
            q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
            mask = keep[:, None, None, :].expand(-1, 1, x.shape[1], -1)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            return self.out(mixed.transpose(1, 2).reshape(x.shape))

    a = lived_in(encoder.Encoder())
    return Case(a, ported(a, encoder.Encoder(attention=Attention)), encoder.sentences(), loss=squared)


@equal("ViT")
def by_einsum() -> Case:
    """Products of attention by einsum, with the scale on the queries."""

    class Attention(vit.Attention):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, length, width = x.shape
            q, k, v = self.qkv(x).view(batch, length, 3, self.heads, self.each).unbind(2)
            shares = torch.einsum("bqhd,bkhd->bhqk", q * self.each**-0.5, k).softmax(dim=-1)
            return self.proj(torch.einsum("bhqk,bkhd->bqhd", shares, v).reshape(batch, length, width))

    a = lived_in(vit.ViT())
    return Case(a, ported(a, vit.ViT(Attention)), torch.randn(2, 3, 16, 16), loss=squared)


@equal("CNN")
def linear_for_convolution() -> Case:
    """A convolution of 1 x 1 as a product of matrices."""

    class Conv2d(nn.Conv2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = nn.functional.linear(x.permute(0, 2, 3, 1), self.weight[:, :, 0, 0], self.bias)
            return out.permute(0, 3, 1, 2)

    a = lived_in(cnn.Inception())
    b = copied(a)
    b.join = Conv2d(24, 12, 1)
    return Case(a, ported(a, b), torch.randn(2, 3, 12, 12), loss=squared)


@equal("CNN")
def convolution_by_columns() -> Case:
    """A convolution of 3 x 3 as columns of the image times the kernel."""

    class Conv2d(nn.Conv2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            columns = nn.functional.unfold(x, 3, padding=1)
            return (self.weight.flatten(1) @ columns).view(len(x), -1, *x.shape[2:])

    a = lived_in(cnn.ResNet())
    b = copied(a)
    b.layer1[1].conv1 = Conv2d(12, 12, 3, padding=1, bias=False)
    return Case(a, ported(a, b), torch.randn(2, 3, 16, 16))


@equal("GNN")
def added_in_another_order() -> Case:
    """Messages are added up by a product with the matrix of the edges, not one by one."""

    class Convolution(graph.Convolution):
        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            matrix = torch.eye(len(x)).index_put((edges[1], edges[0]), torch.ones(()), accumulate=True)
            roots = matrix.sum(1).rsqrt()
            return (roots[:, None] * matrix * roots) @ self.linear(x) + self.bias

    a = lived_in(graph.GraphNet())
    return Case(a, ported(a, graph.GraphNet(Convolution)), graph.graph(), loss=squared)


@equal("encoder")
def layernorm_by_hand() -> Case:
    """LayerNorm by its formula."""

    class LayerNorm(nn.LayerNorm):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            centred = x - x.mean(-1, keepdim=True)
            return centred / (centred.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.weight + self.bias

    a = lived_in(encoder.Encoder())
    b = copied(a)
    for owner in (b.layers[0], b.layers[1]):
        owner.norm1, owner.norm2 = LayerNorm(32, eps=1e-12), LayerNorm(32, eps=1e-12)
    return Case(a, ported(a, b), encoder.sentences(), loss=squared)


@equal("encoder")
def softmax_by_hand() -> Case:
    """Softmax by exponentials after the largest is subtracted."""

    class Attention(encoder.Attention):
        def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
            q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
            scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-1, -2)
            scores = scores + torch.zeros(keep.shape).masked_fill(~keep, -1e9)[:, None, None, :]
            shares = (scores - scores.amax(-1, keepdim=True)).exp()
            mixed = (shares @ v) / shares.sum(-1, keepdim=True)
            return self.out(mixed.transpose(1, 2).reshape(x.shape))

    a = lived_in(encoder.Encoder())
    return Case(a, ported(a, encoder.Encoder(attention=Attention)), encoder.sentences())


@equal("RNN")
def gru_by_hand() -> Case:
    """torch's GRU step by step, with its own weights."""

    class GRU(nn.GRU):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            state, states = x.new_zeros(len(x), self.hidden_size), []
            for moment in x.unbind(1):
                given = nn.functional.linear(moment, self.weight_ih_l0, self.bias_ih_l0).chunk(3, -1)
                held = nn.functional.linear(state, self.weight_hh_l0, self.bias_hh_l0).chunk(3, -1)
                reset, update = (given[0] + held[0]).sigmoid(), (given[1] + held[1]).sigmoid()
                new = (given[2] + reset * held[2]).tanh()
                state = new + update * (state - new)
                states.append(state)
            return torch.stack(states, 1), state[None]

    class Reader(nn.Module):
        def __init__(self, gru: type[nn.GRU]) -> None:
            super().__init__()
            self.gru = gru(5, 16, batch_first=True)
            self.fc = nn.Linear(16, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(self.gru(x)[0])

    a = lived_in(Reader(nn.GRU))
    return Case(a, ported(a, Reader(GRU)), torch.randn(3, 8, 5), loss=squared)


@equal("U-Net")
def silu_by_sigmoid() -> Case:
    """SiLU as a product with a sigmoid, in place."""

    class SiLU(nn.SiLU):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sigmoid().mul_(x)

    a = lived_in(unet.UNet())
    b = copied(a)
    for module in list(b.modules()):
        if isinstance(module, unet.Double):
            module.act = SiLU()
    return Case(a, b.eval(), torch.randn(2, 2, 16, 16))


@equal("encoder")
def checkpointed() -> Case:
    """Each layer is run again in the backward, and not kept."""

    class Encoder(encoder.Encoder):
        def forward(self, ids: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
            x = self.embed(ids)
            for layer in self.layers:
                x = checkpoint(layer, x, keep, use_reentrant=False)
            return self.head(x)

    a = lived_in(encoder.Encoder())
    return Case(a, ported(a, Encoder()), encoder.sentences(), loss=squared)


@equal("GPT-2")
def gpt2_fused_attention() -> Case:
    """The attention of the package transformers by the fused operator, which gives no shares back."""

    def build(attention: str) -> GPT2Model:
        sizes = {"vocab_size": 80, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4}
        return GPT2Model(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, attn_implementation=attention)).eval()

    a = lived_in(build("eager"))
    return Case(a, ported(a, build("sdpa")), torch.randint(0, 80, (2, 10)))
