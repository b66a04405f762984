"""What works on MindSpore, in its dynamic (pynative) mode."""

from hookline.backends.capabilities.declaring import Framework, No, answers

FRAMEWORK = Framework(
    name="mindspore",
    package="mindspore",
    roots=("mindspore",),
    home="hookline.backends.mindspore",
    models="a mindspore.nn.Cell",
    tested=("2.10", "2.11"),
    answers=answers(
        watch_moments=No(
            "what its optimizers keep is not read", "watch gradients and updates, which need no asking"
        ),
        always_call=No(
            "MindSpore calls no hook of a cell whose construct raised",
            "try and except around the call of the model",
        ),
        accumulated=No(
            "gradients are what a function returns, and no parameter holds a sum of them",
            "record(model, grads=True) and its param_grads, or work on what value_and_grad returns",
        ),
        costs=No(
            "MindSpore has no tensors without memory to run a model on, so nothing is counted",
            "summary(model, ...) without these columns, or a PyTorch twin of the model",
        ),
        trace=No(
            "which call feeds which is lost where MindSpore copies a view behind the operators that it tells of",
            "record(model).names for the order of execution, summary(model, ...) for the tree",
        ),
        compiled=No(
            "graph mode and ms.jit compile a hook as a part of the graph and drop what it does in Python",
            "set_context(mode=PYNATIVE_MODE) and no ms.jit around these cells, MS_JIT=0 in the environment, "
            "or sites (where=) outside of what is compiled",
        ),
        export=No("it is for programs of torch.export", "record or watch the model itself"),
    ),
    compiles="graph mode and ms.jit",
)
