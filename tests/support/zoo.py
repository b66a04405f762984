"""A specimen of the zoo, run forwards and backwards."""

import torch

from tests.support.compare import loss_of, tensors


def run(specimen, context=None):
    """Output, gradients of inputs and parameters, random state after one forward and backward."""
    model, args, kwargs = specimen.seeded()
    torch.manual_seed(1)
    if context is None:
        output = model(*args, **kwargs)
        backward(specimen, output)
    else:
        with context(model):
            output = model(*args, **kwargs)
            backward(specimen, output)
    grads = [t.grad for t in tensors((args, kwargs)) if t.requires_grad and t.is_leaf]
    return output, grads, [p.grad for p in model.parameters()], torch.get_rng_state()


def backward(specimen, output):
    if specimen.trains:
        loss_of(output).backward()
