"""What works on PyTorch."""

from hookline.backends.capabilities.declaring import Framework, answers

FRAMEWORK = Framework(
    name="torch",
    package="torch",
    roots=("torch",),
    home="hookline.backends.torch",
    models="a torch.nn.Module",
    tested=("2.6", "2.16"),
    answers=answers(),
    compiles="torch.compile",
    since={"compiled": "2.13"},  # docs/versions.md tells what happens before
)
