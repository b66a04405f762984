"""What works on Flax NNX."""

from hookline.backends.capabilities.declaring import Framework, No, answers

FRAMEWORK = Framework(
    name="nnx",
    package="flax",
    roots=("flax", "jax", "jaxlib"),
    home="hookline.backends.nnx",
    models="a flax.nnx.Module",
    tested=("0.12", "0.13"),
    answers=answers(
        watch_moments=No(
            "what its optimizers keep is not read", "watch gradients and updates, which need no asking"
        ),
        always_call=No(
            "compiled code does not come back from a call that raised",
            "try and except around the call of the model",
        ),
        accumulated=No(
            "gradients are what nnx.grad returns, and no parameter holds a sum of them",
            "record(model, grads=True) and its param_grads, or work on what nnx.grad returns",
        ),
        costs=No(
            "XLA counts the cost of whole programs, and not module by module",
            "ask jax.jit(...).lower(...).cost_analysis() for the whole",
        ),
        trace=No(
            "arrays that are traced do not tell what they were made from", "use summary, or register_op_hook"
        ),
        state_hooks=No(
            "NNX has no state dict: nnx.split and nnx.state give values to plain functions",
            "change what nnx.state(model) gives before you save it",
        ),
        export=No("it is for programs of torch.export", "record or watch the model itself"),
    ),
    compiles="nnx.jit and jax.jit",
)
