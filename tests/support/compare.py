"""Small helpers over structures of tensors: their leaves, a loss of all of them, whether two are the same."""

import torch

from hookline.trees import leaves


def tensors(tree):
    return list(leaves(tree, torch.Tensor))


def loss_of(output):
    """A scalar in which every differentiable tensor of `output` has a weight of its own."""
    total = torch.zeros(())
    for number, tensor in enumerate(tensors(output)):
        if tensor.requires_grad:
            weight = torch.linspace(0.5, 1.5 + number, tensor.numel()).reshape(tensor.shape)
            real = tensor.abs() if tensor.is_complex() else tensor
            total = total + (real.float() * weight).sum()
    return total


def same_bits(a, b):
    """Whether two structures hold the same tensors to the last bit."""
    a, b = tensors(a), tensors(b)
    return len(a) == len(b) and all(
        x.dtype == y.dtype and x.shape == y.shape and torch.equal(_bytes(x), _bytes(y))
        for x, y in zip(a, b, strict=True)
    )


def _bytes(tensor):
    tensor = tensor.detach().clone(memory_format=torch.contiguous_format).flatten()
    return tensor.view(torch.uint8) if tensor.numel() else tensor
