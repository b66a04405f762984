"""Encoder and decoder: what crosses between them, and what is called how often."""

from __future__ import annotations

import torch

from bench.diff.case import Case, broken
from bench.diff.networks import seq2seq
from bench.diff.networks.weights import copied, exchange, lived_in, ported


@broken("encoder-decoder")
def keys_from_decoder() -> Case:
    """Cross attention takes its keys from the decoder, its values from the encoder."""

    class DecoderLayer(seq2seq.DecoderLayer):
        def forward(self, x: torch.Tensor, memory: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
            h = self.norm1(x)
            x = x + self.self_attn(h, h, h, attn_mask=future, need_weights=False)[0]
            h = self.norm2(x)
            x = x + self.cross_attn(h, h, memory, need_weights=False)[0]
            return x + self.fc2(self.fc1(self.norm3(x)).relu())

    a = lived_in(seq2seq.Translator())
    b = ported(a, seq2seq.Translator(layer=DecoderLayer))
    return Case(a, b, seq2seq.languages(), {"decoder.layers.0"}, {"code"})


@broken("encoder-decoder")
def last_norm_missing() -> Case:
    """The norm at the end of the encoder is not called."""

    class Encoder(seq2seq.Encoder):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.embed(ids)
            for layer in self.layers:
                x = layer(x)
            return x

    a = lived_in(seq2seq.Translator())
    b = ported(a, seq2seq.Translator(Encoder))
    return Case(a, b, seq2seq.languages(), {"encoder", "encoder.norm"}, {"missing call"})


@broken("encoder-decoder")
def normed_twice() -> Case:
    """The norm at the end of the decoder is called once more before the head."""

    class Translator(seq2seq.Translator):
        def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            shifted = torch.cat([torch.full_like(target[:, :1], self.start), target[:, :-1]], dim=1)
            return self.head(self.decoder.norm(self.decoder(shifted, self.encoder(source))))

    a = lived_in(seq2seq.Translator())
    b = ported(a, Translator())
    return Case(a, b, seq2seq.languages(), {"", "decoder.norm"}, {"additional call"})


@broken("encoder-decoder")
def packed_in_another_order() -> Case:
    """The one kernel for queries, keys and values has keys first."""
    a = lived_in(seq2seq.Translator())
    b = copied(a)
    attention = b.encoder.layers[1].attn
    for value in (attention.in_proj_weight, attention.in_proj_bias):
        queries, keys, _ = value.data.chunk(3)
        exchange(queries, keys)
    return Case(a, b, seq2seq.languages(), {"encoder.layers.1.attn"}, {"weights"})


@broken("encoder-decoder")
def another_start() -> Case:
    """The target starts with token 2, the end of a sentence."""
    a = lived_in(seq2seq.Translator())
    b = ported(a, seq2seq.Translator(start=2))
    return Case(a, b, seq2seq.languages(), {""}, {"setting"})
