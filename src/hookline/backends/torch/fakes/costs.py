"""Costs: the multiply-accumulates of one ATen operation.

Formulas are those of `torch.utils.flop_counter`, and own ones where it has none: attention on CPU and
fused, vectors, recurrent layers as one kernel. By convention elementwise operations, reductions,
normalisation, pooling, lookups and moves count nothing. Whatever is neither is unknown, and told.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from hookline.trees import leaves

Formula = Callable[..., int]
aten = torch.ops.aten

_FREE_NAMES = """
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d alias allclose amax amin arange argmax argmin argsort as_strided assert_async
    assert_scalar avg_pool1d avg_pool2d avg_pool3d batch_norm batch_norm_with_update bernoulli
    binary_cross_entropy binary_cross_entropy_with_logits bincount binomial bucketize cat cauchy
    channel_shuffle clone col2im complex constant_pad_nd copy count_nonzero cudnn_batch_norm cummax
    cummin cumprod cumsum dense_dim dequantize detach diag_embed diagonal_scatter dist dropout embedding
    embedding_bag embedding_renorm empty empty_like empty_permuted empty_strided equal exponential eye
    fill flip floor_divide fractional_max_pool2d fractional_max_pool3d full full_like
    functional_assert_async fused_dropout fused_rms_norm gather geometric glu grid_sampler_2d
    grid_sampler_3d group_norm hardswish hash_tensor histc histogram histogramdd_bin_edges
    histogramdd_from_bin_cts huber_loss im2col index index_add index_copy index_fill index_put
    index_select instance_norm is_pinned is_same_size is_set_to isin item kthvalue layer_norm lift
    lift_fresh linalg_check_errors linspace local_scalar_dense log_normal log_sigmoid_forward log_softmax
    logcumsumexp logspace masked_fill masked_scatter masked_select max_pool2d_with_indices
    max_pool3d_with_indices max_unpool2d max_unpool3d median mode mse_loss multi_margin_loss
    multilabel_margin_loss_forward multinomial nanmedian native_batch_norm native_batch_norm_legit
    native_batch_norm_legit_no_training native_channel_shuffle native_dropout native_group_norm
    native_layer_norm native_norm new_empty new_empty_strided new_full new_ones new_zeros
    nll_loss2d_forward nll_loss_forward nonzero norm normal ones ones_like pack_padded_sequence pad
    pad_packed_sequence pad_sequence permute pixel_shuffle pixel_unshuffle poisson polar prelu_kernel
    rand rand_like randint randint_like randn randn_like random randperm reflection_pad1d
    reflection_pad2d reflection_pad3d repeat repeat_interleave replication_pad1d replication_pad2d
    replication_pad3d resize rms_norm roll rot90 rrelu_with_noise rsub safe_softmax scalar_tensor scatter
    scatter_add scatter_reduce searchsorted segment_reduce select_scatter set slice_scatter
    smooth_l1_loss soft_margin_loss softmax sort sparse_dim split_with_sizes_copy stack std_mean
    sym_numel sym_size sym_stride thnn_fused_gru_cell thnn_fused_lstm_cell to_copy to_dense to_mkldnn
    to_sparse to_sparse_bsc to_sparse_bsr to_sparse_csc to_sparse_csr topk tril tril_indices triu
    triu_indices unbind unfold uniform unique unique2 unique_consecutive unique_dim unsafe_chunk
    unsafe_split unsafe_view upsample_bicubic2d upsample_bicubic2d_aa upsample_bilinear2d
    upsample_bilinear2d_aa upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    upsample_nearest_exact1d upsample_nearest_exact2d upsample_nearest_exact3d upsample_trilinear3d
    vander var_mean weight_norm_interface where zero zeros zeros_like
"""
# torch 2.6 has no tag for these.
_REDUCTIONS = "all any aminmax linalg__powsum linalg_vector_norm logsumexp max mean min nansum prod std sum var"
_FREE = frozenset([*_FREE_NAMES.split(), *_REDUCTIONS.split()])
"""Names of ATen operations, without underscores at either end, that hold no matrix product."""


_FREE_TAGS = {torch.Tag.pointwise, torch.Tag.inplace_view, torch.Tag.view_copy}
if hasattr(torch.Tag, "reduction"):
    _FREE_TAGS.add(torch.Tag.reduction)


def macs(op: Any, args: Any, kwargs: Any, out: Any) -> int | None:
    """The multiply-accumulates of a call of `op`; None where nobody knows."""
    formula = _formula(op)
    if formula is None or formula is _nothing:
        return None if formula is None else 0
    if any(tensor.layout is not torch.strided or tensor.is_nested for tensor in leaves(args, torch.Tensor)):
        return None  # formulas are about shapes, and what is not stored costs nothing
    return formula(args, kwargs, out)


@lru_cache(maxsize=4096)
def is_known(op: Any) -> bool:
    """Whether `macs` will have an answer for calls of `op`."""
    return _formula(op) is not None


@lru_cache(maxsize=4096)
def _formula(op: Any) -> Formula | None:
    packet = getattr(op, "overloadpacket", op)
    if packet in _OWN:
        return _OWN[packet]
    if packet in flop_registry:
        registered = flop_registry[packet]
        # torch counts a multiplication and an addition as two.
        return lambda args, kwargs, out: registered(*args, **kwargs, out_val=out) // 2
    return _nothing if _is_free(op) else None


def _is_free(op: Any) -> bool:
    tags = getattr(op, "tags", ())
    if getattr(op, "is_view", False) or not _FREE_TAGS.isdisjoint(tags):
        return True
    namespace, _, name = str(getattr(op, "overloadpacket", op)).partition(".")
    if namespace != "aten":
        return namespace in {"prim", "prims", "profiler"}
    return name.strip("_") in _FREE or (name.endswith("_") and _is_tagged_free(name.rstrip("_")))


def _is_tagged_free(name: str) -> bool:
    """Whether torch tags an operation as free. One that writes in place often lacks the tag of its twin."""
    packet = getattr(aten, name, None)
    found = [] if packet is None else [getattr(packet, overload) for overload in packet.overloads()]
    return any(not _FREE_TAGS.isdisjoint(one.tags) for one in found)


def _nothing(args: Any, kwargs: Any, out: Any) -> int:
    return 0


def _attention(args: Any, kwargs: Any, out: Any) -> int:
    # torch's formula asserts as many heads for keys as for queries, which grouped queries don't have.
    query, key, value = (tensor.shape for tensor in args[:3])
    return int(prod(query[:-1]) * key[-2] * (query[-1] + value[-1]))


def _vector(args: Any, kwargs: Any, out: Any) -> int:
    """Products of a matrix and a vector, or of two vectors: the first operand is read once."""
    return int(args[0].numel())


def _second(args: Any, kwargs: Any, out: Any) -> int:
    return int(args[1].numel())


def _batches_summed(args: Any, kwargs: Any, out: Any) -> int:
    return int(args[1].numel() * args[2].shape[-1])


def _product(args: Any, kwargs: Any, out: Any) -> int:
    return int(args[0].numel() * args[1].shape[-1])


def _grouped_product(args: Any, kwargs: Any, out: Any) -> int:
    # Rows, columns or what is summed over fall into groups. Of a batch against columns, each has some of these.
    left, right = args[:2]
    return int(left.shape[-2] * right.numel() if left.dim() > right.dim() else left.numel() * right.shape[-1])


def _product_added(args: Any, kwargs: Any, out: Any) -> int:
    return int(args[1].numel() * args[2].shape[-1])


def _linear(args: Any, kwargs: Any, out: Any) -> int:
    return int(args[0].numel() * args[1].shape[0])


def _trilinear(args: Any, kwargs: Any, out: Any) -> int:
    # nn.Bilinear: for each row, x1 with each slice of the weight, and the result with x2.
    x1, weight, x2 = args[:3]
    return int(x1.numel() // x1.shape[-1] * weight.shape[0] * (weight.shape[1] * weight.shape[2] + x2.shape[-1]))


def _distances(args: Any, kwargs: Any, out: Any) -> int:
    result = out[0] if isinstance(out, tuple) else out
    return int(result.numel() * args[0].shape[-1])


def _recurrent_layer(args: Any, kwargs: Any, out: Any) -> int:
    # One layer in one direction: each step multiplies by both of its weights.
    steps = args[0].numel() // args[0].shape[-1]
    return int(steps * (args[1].numel() + args[2].numel()))


def _recurrent_stack(args: Any, kwargs: Any, out: Any) -> int:
    # cuDNN takes all layers and directions at once; biases are vectors.
    steps = args[0].numel() // args[0].shape[-1]
    return int(steps * sum(weight.numel() for weight in args[1] if weight.dim() > 1))


def _fused_attention_module(args: Any, kwargs: Any, out: Any) -> int:
    return _self_attention(args[0].shape, args[1].shape, args[5], args[7])


def _self_attention(query: Any, key: Any, qkv: torch.Tensor, projection: torch.Tensor) -> int:
    batch, tokens, width = query
    others = key[1]
    in_projection = batch * width * width * (tokens + 2 * others)
    return int(in_projection + 2 * batch * tokens * others * width + batch * tokens * projection.numel())


def _fused_encoder_layer(args: Any, kwargs: Any, out: Any) -> int:
    source = args[0].shape
    feed_forward = prod(source[:-1]) * (args[14].numel() + args[16].numel())
    return int(_self_attention(source, source, args[3], args[5]) + feed_forward)


def _packets(*names: str) -> list[Any]:
    # A release may lack one of these; its operation then can't occur either.
    return [packet for name in names if (packet := getattr(aten, name, None)) is not None]


_OWN: dict[Any, Formula] = {
    packet: formula
    for formula, packets in (
        (
            _attention,
            _packets(
                "_scaled_dot_product_flash_attention_for_cpu",
                "_scaled_dot_product_flash_attention",
                "_scaled_dot_product_efficient_attention",
                "_scaled_dot_product_cudnn_attention",
                "_scaled_dot_product_fused_attention_overrideable",
                "_scaled_dot_product_attention_math_for_mps",
            ),
        ),
        (_vector, _packets("dot", "vdot", "mv")),
        (_second, _packets("addmv", "addmv_")),
        (_batches_summed, _packets("addbmm", "addbmm_", "baddbmm_")),
        (_product, _packets("_int_mm")),
        (_grouped_product, _packets("_grouped_mm")),
        (_product_added, _packets("_addmm_activation", "addmm_")),
        (_linear, _packets("mkldnn_linear", "linear")),
        (_trilinear, _packets("_trilinear")),
        (_distances, _packets("_cdist_forward", "_euclidean_dist")),
        (_recurrent_layer, _packets("mkldnn_rnn_layer")),
        (_recurrent_stack, _packets("_cudnn_rnn", "miopen_rnn")),
        (_fused_attention_module, _packets("_native_multi_head_attention")),
        (_fused_encoder_layer, _packets("_transformer_encoder_layer_fwd")),
    )
    for packet in packets
}
