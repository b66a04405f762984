"""`hookline run` is `python`: scripts without a framework, which see and leave the same world."""

import pytest

from tests.support.launched import both, launched, same


@pytest.mark.parametrize("flags", [[], ["-O", "-u", "-X", "utf8", "-W", "ignore"], ["-P"]], ids=str)
def test_a_script_sees_the_same_world(tmp_path, flags):
    plain, other = both(tmp_path, "./world.py", "--to", "-m", "x", stdin="from outside\n", flags=flags)
    same(plain, other)
    assert "from outside" in plain.out and plain.code == 0
    assert other.told == ["nothing was watched: the script did not import torch."]
    assert not (other.folder / "runs").exists()


HOW = ["text", "nothing", "zero", "object", "1", "3", "256", "interrupt", "group", "context", "hook", "os._exit"]


@pytest.mark.parametrize("how", [*HOW, "fork"])
def test_a_script_ends_the_same_way(tmp_path, how):
    plain, other = both(tmp_path, "ends.py", how)
    same(plain, other)
    assert len(other.told) == 1


def test_ctrl_c_ends_it_by_the_signal(tmp_path):
    _, other = both(tmp_path, "ends.py", "interrupt")
    assert other.code == -2


@pytest.mark.parametrize("words", [["-h"], ["-m", "a", "--to", "b", "--every", "2", "--", "-x"], ["--every", "c"]])
def test_options_after_the_script_are_the_script_s(tmp_path, words):
    same(*both(tmp_path, "options.py", *words))


def test_two_dashes_may_come_before_the_script(tmp_path):
    plain, other = both(tmp_path, "options.py", "-m", "a", options=["--every", "3", "--"])
    same(plain, other)


@pytest.mark.parametrize("words", [["package"], ["package", "fail"], ["package.part", "-m"], ["no.such.module"]])
def test_modules_run_as_with_python(tmp_path, words):
    same(*both(tmp_path, "-m", *words))


def test_a_folder_with_a_main_runs(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text("import sys; print(__name__, sys.argv, sys.path[0])\n")
    same(*both(tmp_path, str(tmp_path / "app"), "x"))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_find_the_functions_of_the_script(tmp_path, method):
    plain, other = both(tmp_path, "pools.py", method)
    same(plain, other)
    assert "(4, " in plain.out and len(other.told) == 1


def test_a_mistake_in_the_syntax_is_told_as_by_python(tmp_path):
    plain, other = both(tmp_path, "wrong_syntax.txt")
    same(plain, other)
    assert "SyntaxError" in plain.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no_such.py"], "there is no script 'no_such.py'"),
        (["package.part"], "there is no script 'package.part'"),
        ([".."], "expected a file, or a folder with __main__.py"),
        (["--to", "world.py", "mlp.py"], "is a file: expected a folder"),
        (["--every", "0", "mlp.py"], "--every"),
        (["--budget", "much", "mlp.py"], "budget='much': expected a share of the time"),
        ([], "Missing argument"),
    ],
)
def test_bad_input_is_told_before_anything_runs(tmp_path, words, said):
    ended = launched(tmp_path, *words)
    assert ended.code == 2 and said in ended.err and not ended.out
    assert not (ended.folder / "runs").exists()


def test_a_script_that_can_not_be_read(tmp_path, monkeypatch):
    from hookline.errors import InvalidArgument
    from hookline.launching.program import Program

    script = tmp_path / "secret.py"
    script.write_text("")

    def refused(self, *args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(script), "open", refused)
    with pytest.raises(InvalidArgument, match="can't be read: Permission denied"):
        Program(str(script))
