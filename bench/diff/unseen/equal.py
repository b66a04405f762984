"""Equal within rounding."""

from __future__ import annotations

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from bench.diff.case import Case, equal
from bench.diff.networks import decoder, encoder, seq2seq
from bench.diff.networks.weights import copied, lived_in, ported
from bench.diff.unseen.sequences import Scan, spaces


def squared(out: torch.Tensor) -> torch.Tensor:
    return out.float().square().mean()


@equal("sound")
def convolution_by_fft() -> Case:
    """A long convolution by the Fourier transform."""

    class Long(nn.Conv1d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            size = x.shape[-1] + 2 * 16 + 32
            wide = nn.functional.pad(x, (16, 16))
            spectrum = torch.einsum(
                "bit,oit->bot", torch.fft.rfft(wide, size), torch.fft.rfft(self.weight, size).conj()
            )
            return torch.fft.irfft(spectrum, size)[..., : x.shape[-1]] + self.bias[:, None]

    def build(conv: type[nn.Conv1d]) -> nn.Module:
        return nn.Sequential(nn.Conv1d(2, 6, 1), conv(6, 6, 33, padding=16), nn.GELU(), nn.Conv1d(6, 2, 1))

    a = lived_in(build(nn.Conv1d))
    return Case(a, ported(a, build(Long)), torch.randn(2, 2, 200), loss=squared)


@equal("state space")
def scanned_at_once() -> Case:
    """A recurrence by sums of logarithms over all steps at once."""

    class AtOnce(Scan):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            step, given = nn.functional.softplus(self.rate(x)), self.enter(x)
            gone = (-step * self.decay).cumsum(1)
            since = gone[:, :, None] - gone[:, None]
            later = torch.ones(x.shape[1], x.shape[1]).tril().bool()[None, :, :, None]
            shares = since.masked_fill(~later, -torch.inf).exp()
            return torch.einsum("btsw,bsw->btw", shares, step * given)

    a = lived_in(spaces(Scan))
    return Case(a, ported(a, spaces(AtOnce)), torch.randn(2, 9, 6))


@equal("MLP")
def variance_in_one_pass() -> Case:
    """The variance as the mean of squares less the square of the mean."""

    class Standard(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            centred = x - x.mean(-1, keepdim=True)
            return centred / centred.square().mean(-1, keepdim=True).sqrt()

    class OnePass(Standard):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mean = x.mean(-1, keepdim=True)
            return (x - mean) / (x.square().mean(-1, keepdim=True) - mean.square()).sqrt()

    a = lived_in(nn.Sequential(nn.Linear(6, 24), Standard(), nn.Linear(24, 3)))
    with torch.no_grad():
        a[0].bias.add_(4)
    b = ported(a, nn.Sequential(nn.Linear(6, 24), OnePass(), nn.Linear(24, 3)))
    return Case(a, b, torch.randn(4, 6))


@equal("encoder")
def encoder_in_half() -> Case:
    """The whole model is in float16."""
    a = lived_in(encoder.Encoder())
    return Case(a, copied(a).half(), encoder.sentences())


@equal("encoder-decoder")
def shares_given_back() -> Case:
    """Attention gives its shares back beside the result, so that the fused operator is not used."""

    class EncoderLayer(seq2seq.EncoderLayer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.norm1(x)
            x = x + self.attn(h, h, h, need_weights=True)[0]
            return x + self.fc2(self.fc1(self.norm2(x)).relu())

    a = lived_in(nn.Sequential(seq2seq.EncoderLayer(16), seq2seq.EncoderLayer(16)))
    b = ported(a, nn.Sequential(EncoderLayer(16), EncoderLayer(16)))
    return Case(a, b, torch.randn(2, 7, 16), loss=squared)


@equal("encoder-decoder")
def by_position() -> Case:
    """The same inputs by position, not by name."""
    a = lived_in(seq2seq.Translator())
    given = seq2seq.languages()
    return Case(a, copied(a), given, inputs_b=(given["source"], given["target"]))


@equal("Llama")
def llama_fused_attention() -> Case:
    """Attention by the fused operator, with the cache and the gradients."""

    def build(attention: str) -> LlamaForCausalLM:
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 80}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
        return LlamaForCausalLM(LlamaConfig(**sizes, **heads, attn_implementation=attention)).eval()

    a = lived_in(build("eager"))
    b = ported(a, build("sdpa"))
    given = {"input_ids": torch.randint(0, 80, (2, 10))}
    return Case(a, b, given, loss=lambda out: out.logits.square().mean())


@equal("decoder")
def compiled_mlp_with_gate() -> Case:
    """A gated MLP behind its norm, compiled."""
    a = lived_in(nn.Sequential(decoder.RMSNorm(16), decoder.GatedMlp(16)))
    return Case(a, torch.compile(copied(a)), torch.randn(3, 5, 16))
