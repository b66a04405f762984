"""What flax does to a model that other threads may be looking at."""

import jax.numpy as jnp
from flax import nnx


def test_a_compiled_call_empties_the_model_and_fills_it_again():
    """So whoever looks at the model in another thread meanwhile may find it without its parts."""
    seen = []

    class Emptied(nnx.Module):
        def __init__(self):
            self.part = nnx.Linear(2, 2, rngs=nnx.Rngs(0))

        def __call__(self, x):
            return self.part(x)

        def _graph_node_clear(self):
            super()._graph_node_clear()
            seen.append(dict(vars(self)))

    model = Emptied()
    nnx.jit(lambda model, x: model(x))(model, jnp.ones((1, 2)))
    assert seen == [{}] and "part" in vars(model)
