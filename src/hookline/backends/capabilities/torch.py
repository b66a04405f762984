"""What works on PyTorch."""

from hookline.backends.capabilities.declaring import Framework, answers

FRAMEWORK = Framework(
    name="torch",
    package="torch",
    roots=("torch",),
    home="hookline.backends.torch",
    models="a torch.nn.Module",
    tested=("2.13", "2.14"),
    answers=answers(),
    compiles="torch.compile",
)
