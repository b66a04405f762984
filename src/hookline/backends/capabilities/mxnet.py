"""What works on MXNet Gluon."""

from hookline.backends.capabilities.declaring import Framework, No, answers

FRAMEWORK = Framework(
    name="mxnet",
    package="mxnet",
    roots=("mxnet",),
    home="hookline.backends.mxnet",
    models="a mxnet.gluon.Block",
    tested=("1.9.1", "1.10"),
    answers=answers(
        watch_moments=No(
            "what its optimizers keep is not read", "watch gradients and updates, which need no asking"
        ),
        always_call=No(
            "what a Block raises may come later than its call, where a result is waited for",
            "try and except around the call of the model and around what waits for its result",
        ),
        accumulated=No(
            "MXNet writes the gradients of all parameters in one call, and tells nobody when one is done",
            "read parameter.grad() after backward(), or record(model, grads=True) and its param_grads",
        ),
        costs=No(
            "an array of MXNet can't stand in for one without being computed, so no run counts operations",
            "read names, types, shapes and parameters; for costs write the model in torch",
        ),
        trace=No(
            "which call feeds which is not told by MXNet while a Block runs",
            "hybridize the net and look at its symbol, net(mx.sym.var('data')).get_internals()",
        ),
        state_hooks=No(
            "a Block writes its parameters in C++, without a state dict",
            "change what net._collect_params_with_prefix() gives, then call net.save_parameters",
        ),
        export=No("it is for programs of torch.export", "record or watch the model itself"),
    ),
    compiles="hybridize()",
)
