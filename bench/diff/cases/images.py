"""U-Net, MLP-Mixer, vision transformer."""

from __future__ import annotations

import torch
from torch import nn

from bench.diff.case import Case, broken
from bench.diff.networks import mixer, unet, vit
from bench.diff.networks.weights import copied, lived_in, ported


@broken("U-Net")
def corners_aligned() -> Case:
    """What goes up is enlarged with align_corners=True."""
    a = lived_in(unet.UNet())
    b = copied(a)
    for up in (b.up1, b.up2):
        up.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
    return Case(a, b.eval(), torch.randn(2, 2, 16, 16), {"up1.up"}, {"setting"})


@broken("U-Net")
def joined_in_another_order() -> Case:
    """What came up is joined before what came down, not behind it."""

    class Up(unet.Up):
        def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
            return self.conv(torch.cat([self.shrink(self.up(x)), skip], dim=1))

    a = lived_in(unet.UNet())
    return Case(a, ported(a, unet.UNet(Up)), torch.randn(2, 2, 16, 16), {"up1"}, {"code"})


@broken("U-Net")
def groups_of_norm() -> Case:
    """GroupNorm has 8 groups for 4, on the way down."""
    a = lived_in(unet.UNet())
    b = copied(a)
    for double in (b.down1, b.down2):
        double.norm1.num_groups = double.norm2.num_groups = 8
    return Case(a, b, torch.randn(2, 2, 16, 16), {"down1.norm1"}, {"setting"})


@broken("MLP-Mixer")
def square_kernel_transposed() -> Case:
    """A square kernel came from a framework that keeps kernels the other way round."""
    a = lived_in(mixer.Mixer())
    b = copied(a)
    b.blocks[1].tokens.fc1.weight.data = a.blocks[1].tokens.fc1.weight.data.T.contiguous()
    return Case(a, b, torch.randn(2, 3, 16, 16), {"blocks.1.tokens.fc1"}, {"transposed weight"})


@broken("MLP-Mixer")
def first_norm_twice() -> Case:
    """A block calls its first norm twice and its second one never."""

    class Block(mixer.Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.norm1(x))

    a = lived_in(mixer.Mixer())
    b = ported(a, mixer.Mixer(Block))
    sites = {"blocks.0", "blocks.0.norm1", "blocks.0.norm2"}
    return Case(a, b, torch.randn(2, 3, 16, 16), sites, {"missing call", "additional call"})


@broken("MLP-Mixer")
def never_transposed() -> Case:
    """The mixing of tokens mixes channels: nothing is transposed before or after it."""

    class Block(mixer.Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.tokens(self.norm1(x))
            return x + self.channels(self.norm2(x))

    a = lived_in(mixer.Mixer())
    return Case(a, ported(a, mixer.Mixer(Block)), torch.randn(2, 3, 16, 16), {"blocks.0"}, {"code"})


@broken("ViT")
def softmax_over_queries() -> Case:
    """The softmax runs over the queries, not over the keys."""

    class Attention(vit.Attention):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, length, width = x.shape
            qkv = self.qkv(x).reshape(batch, length, 3, self.heads, self.each)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            shares = (q @ k.mT * self.each**-0.5).softmax(dim=-2)
            return self.proj((shares @ v).transpose(1, 2).reshape(batch, length, width))

    a = lived_in(vit.ViT())
    return Case(a, ported(a, vit.ViT(Attention)), torch.randn(2, 3, 16, 16), {"blocks.0.attn"}, {"code"})


@broken("ViT")
def packed_by_head() -> Case:
    """The outputs of the common kernel are read as heads x 3, not 3 x heads."""

    class Attention(vit.Attention):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, length, width = x.shape
            qkv = self.qkv(x).reshape(batch, length, self.heads, 3, self.each)
            q, k, v = qkv.permute(3, 0, 2, 1, 4)
            shares = (q @ k.mT * self.each**-0.5).softmax(dim=-1)
            return self.proj((shares @ v).transpose(1, 2).reshape(batch, length, width))

    a = lived_in(vit.ViT())
    return Case(a, ported(a, vit.ViT(Attention)), torch.randn(2, 3, 16, 16), {"blocks.0.attn"}, {"code"})


@broken("ViT")
def scale_of_residual_forgotten() -> Case:
    """A block does not scale what its MLP adds, though it has the weights for it."""

    class Block(vit.Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.scale1 * self.attn(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    a = lived_in(vit.ViT())
    return Case(a, ported(a, vit.ViT(block=Block)), torch.randn(2, 3, 16, 16), {"blocks.0"}, {"code"})


@broken("ViT")
def token_last() -> Case:
    """The token for the class stands behind the patches; the head still reads the first."""

    class ViT(vit.ViT):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat([x, self.token.expand(len(x), -1, -1)], dim=1) + self.places
            return self.head(self.norm(self.blocks(x))[:, 0])

    a = lived_in(vit.ViT())
    return Case(a, ported(a, ViT()), torch.randn(2, 3, 16, 16), {""}, {"code"})
