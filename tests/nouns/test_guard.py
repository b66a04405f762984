"""The guard that stands before a trainer's method."""

import pytest

from hookline.guard import ErrorGuard


class Stop(Exception):
    """A trainer's own signal."""


class Trainer:
    def run(self, error=None):
        if error is not None:
            raise error
        return "ran"


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1)])
def test_guards_go_in_any_order(order):
    trainer, told = Trainer(), []
    guards = [ErrorGuard(trainer, "run", lambda n=n: told.append(n)) for n in range(3)]
    for number in order:
        assert trainer.run() == "ran"
        guards[number].remove()
    assert vars(trainer) == {} and told == []


def test_a_removed_guard_is_silent_and_the_others_are_told():
    trainer, told = Trainer(), []
    guards = [ErrorGuard(trainer, "run", lambda n=n: told.append(n)) for n in range(2)]
    guards[0].remove()
    with pytest.raises(KeyError):
        trainer.run(KeyError())
    assert told == [1]


def test_signals_and_a_method_of_the_instance():
    trainer, told = Trainer(), []
    own = trainer.run = lambda error: (_ for _ in ()).throw(error)
    guard = ErrorGuard(trainer, "run", lambda: told.append("error"), passing=(Stop,))
    with pytest.raises(Stop):
        trainer.run(Stop())
    assert told == []
    with pytest.raises(KeyboardInterrupt):
        trainer.run(KeyboardInterrupt())
    assert told == ["error"]
    guard.remove()
    assert trainer.run is own
