"""hookline doctor: what it tells of this machine, and how it ends."""

import json
import subprocess
import sys

import hookline
from hookline import lines


def run(*command):
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)


def test_doctor_tells_which_kernel_is_in_use():
    done = run("-m", "hookline", "doctor")
    assert done.returncode == 0 and f"statistics kernel: {lines.kernel_in_use()}" in done.stdout
    assert "torch" in done.stdout and "pip install" not in done.stdout.split("torch")[1].splitlines()[0]


def test_doctor_speaks_json():
    found = json.loads(run("-m", "hookline", "doctor", "--json").stdout)
    assert found["kernel"] == lines.kernel_in_use() and found["packages"]["torch"].startswith("2.")
    assert found["wal"]["why_not"] is None and {"tensorboard", "wandb", "mlflow"} <= found["packages"].keys()


def test_doctor_tells_what_each_framework_can_do_and_imports_none():
    code = (
        "import sys; from hookline.cli.doctor import findings; found = findings()\n"
        "import json; print(json.dumps(found))\n"
        "assert not {'torch', 'mindspore', 'mxnet', 'jax', 'flax'} & set(sys.modules)\n"
    )
    done = run("-c", code)
    assert done.returncode == 0, done.stderr
    frameworks = json.loads(done.stdout)["frameworks"]
    assert "numpy" not in frameworks and next(iter(frameworks)) == "torch"
    for name, framework in hookline.capabilities().items():
        if framework.models:
            told = frameworks[name]
            assert told["features"] == {feature: framework.can(feature) for feature in framework.answers}
            assert {no["feature"] for no in told["no"]} == {f for f, yes in told["features"].items() if not yes}
    assert frameworks["torch"]["tested"] is True


def doctor_where(*installed):
    """What doctor prints where exactly these packages are installed."""
    code = (
        f"import sys; from hookline.cli import doctor; installed = {installed!r}\n"
        "doctor._version = lambda name: '9.9.9' if name in installed else None\n"
        "from hookline.cli.main import main; sys.argv = ['hookline', 'doctor']; main()"
    )
    return run("-c", code).stdout


def test_doctor_prints_the_reason_for_every_no_of_what_is_installed():
    known = [framework for framework in hookline.capabilities().values() if framework.models]
    printed = doctor_where(*(framework.package for framework in known))
    for framework in known:
        assert framework.models in printed
        assert all(no.why in printed for no in framework.answers.values() if no is not None)


def test_doctor_does_not_lecture_about_what_is_not_installed():
    printed = doctor_where("torch", "numpy")
    for name, framework in hookline.capabilities().items():
        if framework.models and name != "torch":
            assert framework.package in printed, "it is named"
            assert not any(no.why in printed for no in framework.answers.values() if no is not None)
    assert "pip install" not in printed and len(printed.splitlines()) < 12


def test_doctor_without_a_framework_says_so_with_its_exit_code():
    code = (
        "import sys; from hookline.cli import doctor; doctor._version = lambda name: None\n"
        "from hookline.cli.main import main; sys.argv = ['hookline', 'doctor']; main()"
    )
    done = run("-c", code)
    assert done.returncode == 1 and "pip install torch" in done.stdout
