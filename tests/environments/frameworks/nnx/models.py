"""The models of the conformance suite in NNX."""

import jax
import jax.numpy as jnp
from flax import nnx

from hookline.testing.conformance import reference


class Times(nnx.Module):
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return x * self.factor


class Block(nnx.Module):
    def __init__(self):
        self.inner = Times(3)

    def __call__(self, x):
        return self.inner(x)


class Chain(nnx.Module):
    def __init__(self):
        self.first, self.block, self.last = Times(2), Block(), Times(5)

    def __call__(self, x):
        return self.last(self.block(self.first(x)))


class Branch(nnx.Module):
    def __init__(self):
        self.part = Times(3)

    def __call__(self, x):
        return self.part(x) + x * 10


class Shared(nnx.Module):
    def __init__(self):
        self.a = self.b = Times(2)

    def __call__(self, x):
        return self.b(self.a(x))


class Identity(nnx.Module):
    def __call__(self, x):
        return x


class Same(nnx.Module):
    def __init__(self):
        self.same = Identity()

    def __call__(self, x):
        return self.same(x) * 3


class Forked(nnx.Module):
    def __call__(self, x):
        return {"double": x * 2, "more": (x * 3, None)}


class Fork(nnx.Module):
    def __init__(self):
        self.fork = Forked()

    def __call__(self, x):
        found = self.fork(x)
        return found["double"] * 5 + found["more"][0] * 7


class Joined(nnx.Module):
    def __call__(self, pair):
        return pair["a"] * 2 + pair["b"] * 3


class Join(nnx.Module):
    def __init__(self):
        self.join = Joined()

    def __call__(self, x):
        return self.join({"a": x, "b": x * 4})


class Scaled(nnx.Module):
    def __call__(self, x, factor=1.0, add=None):
        return x * factor + add


class Kwargs(nnx.Module):
    def __init__(self):
        self.scaled = Scaled()

    def __call__(self, x):
        return self.scaled(x, factor=3.0, add=x * 2)


class Attention(nnx.Module):
    def __call__(self, query, key, value):
        return query * 2 + key * 3 + value * 5


class Attend(nnx.Module):
    def __init__(self):
        self.attend = Attention()

    def __call__(self, x):
        return self.attend(x, x, value=x) + x * 7


class Outputs(nnx.Module):
    def __call__(self, x):
        h = x * 2
        return h, h + 1, h


class Several(nnx.Module):
    def __init__(self):
        self.several = Outputs()

    def __call__(self, x):
        a, b, c = self.several(x)
        return a * 3 + b * 5 + c * 7


class Handing(nnx.Module):
    def __call__(self, x):
        return x * 2, x


class Handed(nnx.Module):
    def __init__(self):
        self.handed = Handing()

    def __call__(self, x):
        a, b = self.handed(x)
        return a + a * 4 + b * 3 + x * 4


class Silent(nnx.Module):
    def __init__(self):
        self.used, self.unused = Times(2), Times(3)

    def __call__(self, x):
        return self.used(x)


class Point(nnx.Module):
    def __init__(self, hook):
        self.hook = hook

    def __call__(self, x):
        return self.hook(x * 2) * 3


class Points(Point):
    def __call__(self, x):
        a, b = self.hook(x * 2, x * 5)
        return a * 3 + b * 7


class Relu(nnx.Module):
    def __call__(self, x):
        return jax.nn.relu(x)


class Norm(nnx.Module):
    def __init__(self):
        self.norm = nnx.BatchNorm(3, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return self.norm(x)


class Mlp(nnx.Module):
    def __init__(self, sizes=(4, 3, 2), weights=reference.WEIGHTS):
        rngs = nnx.Rngs(0)
        self.fc1 = nnx.Linear(*sizes[:2], rngs=rngs)
        self.act = Relu()
        self.fc2 = nnx.Linear(*sizes[1:], rngs=rngs)
        for name in ("fc1", "fc2"):
            layer = getattr(self, name)
            layer.kernel[...] = jnp.asarray(weights[f"{name}.weight"].T)
            layer.bias[...] = jnp.asarray(weights[f"{name}.bias"])

    def __call__(self, x):
        return self.fc2(self.act(self.fc1(x)))


MODELS = {
    kind.__name__.lower(): kind
    for kind in (
        Chain,
        Branch,
        Shared,
        Same,
        Fork,
        Join,
        Kwargs,
        Attend,
        Several,
        Handed,
        Silent,
        Point,
        Points,
        Norm,
        Mlp,
    )
}
