"""Models of the package transformers, tiny, ported with a configuration or a kernel that is not quite the same."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5Model,
)

from bench.diff.case import Case, broken
from bench.diff.networks.weights import copied, lived_in, ported


def gpt2(**options: Any) -> GPT2Model:
    sizes = {"vocab_size": 80, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4}
    return GPT2Model(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, **options)).eval()


@broken("GPT-2")
def gpt2_kernel_transposed() -> Case:
    """A square kernel was transposed, as those of a Linear would have to be; GPT-2's are the other way round."""
    a = lived_in(gpt2())
    b = copied(a)
    b.h[0].attn.c_proj.weight.data = a.h[0].attn.c_proj.weight.data.T.contiguous()
    return Case(a, b, torch.randint(0, 80, (2, 10)), {"h.0.attn.c_proj"}, {"transposed weight"})


@broken("GPT-2")
def gpt2_exact_gelu() -> Case:
    """The exact GELU, not GPT-2's approximation."""
    a = lived_in(gpt2())
    b = ported(a, gpt2(activation_function="gelu"))
    return Case(a, b, torch.randint(0, 80, (2, 10)), {"h.0.mlp.act"}, {"type"})


@broken("GPT-2")
def gpt2_scaled_by_layer() -> Case:
    """Scores are divided by the number of the layer too: no difference in the first."""
    a = lived_in(gpt2())
    b = ported(a, gpt2(scale_attn_by_inverse_layer_idx=True))
    return Case(a, b, torch.randint(0, 80, (2, 10)), {"h.1.attn"}, {"setting"})


@broken("Llama")
def llama_rotary_base() -> Case:
    """The base of the rotary positions is 500,000, that of a later version."""

    def build(base: float) -> LlamaForCausalLM:
        rope = {"rope_type": "default", "rope_theta": base}
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 80}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
        return LlamaForCausalLM(LlamaConfig(**sizes, **heads, rope_parameters=rope)).eval()

    a = lived_in(build(10_000.0))
    b = ported(a, build(500_000.0))
    return Case(a, b, {"input_ids": torch.randint(0, 80, (2, 10))}, {"model.rotary_emb"}, {"buffers"})


@broken("BERT")
def bert_epsilon() -> Case:
    """Norms have torch's epsilon, 1e-5 for 1e-12."""

    def build(epsilon: float) -> BertModel:
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 80}
        return BertModel(BertConfig(**sizes, num_attention_heads=4, layer_norm_eps=epsilon)).eval()

    a = lived_in(build(1e-12))
    b = ported(a, build(1e-5))
    given = {"input_ids": torch.randint(0, 80, (2, 10)), "attention_mask": torch.ones(2, 10, dtype=torch.long)}
    given["attention_mask"][1, 7:] = 0
    return Case(a, b, given, {"embeddings.LayerNorm"}, {"setting"})


@broken("T5")
def t5_distance() -> Case:
    """Positions beyond 16 share a bucket, not beyond 128."""

    def build(distance: int) -> T5Model:
        sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 80}
        return T5Model(T5Config(**sizes, relative_attention_max_distance=distance)).eval()

    a = lived_in(build(128))
    b = ported(a, build(16))
    given = {"input_ids": torch.randint(2, 80, (2, 24)), "decoder_input_ids": torch.randint(2, 80, (2, 6))}
    return Case(a, b, given, {"encoder.block.0.layer.0.SelfAttention"}, {"setting"})
