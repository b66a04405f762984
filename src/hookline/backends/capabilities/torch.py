"""What works on PyTorch."""

from hookline.backends.capabilities.declaring import Framework, No, answers

FRAMEWORK = Framework(
    name="torch",
    package="torch",
    roots=("torch",),
    home="hookline.backends.torch",
    models="a torch.nn.Module",
    tested=("2.13", "2.14"),
    answers=answers(
        compiled=No(
            "compiled code passes by hooks that come later",
            "attach to the model before it is compiled, and run it eagerly",
        ),
    ),
    compiles="torch.compile",
)
