"""hookline.diff over every specimen of the zoo: two that are alike are the same, and stay what they were."""

import pytest

import hookline
from hookline.testing import untouched
from tests.support.compare import loss_of

# torch's own, of reentrant checkpoints in a forward without a graph
pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")


def sides(specimen):
    return [(model, (args, kwargs)) for model, args, kwargs in (specimen.seeded() for _ in range(2))]


def test_two_that_are_alike_are_the_same_and_stay_what_they_were(specimen):
    one, two = sides(specimen)
    if not specimen.steady:
        with pytest.raises(hookline.InvalidArgument, match="lazy modules"):
            hookline.diff(one, two)
        return
    with untouched(one[0]), untouched(two[0]):
        assert not hookline.diff(one, two)
        if specimen.trains:
            assert not hookline.diff(one, two, loss=loss_of)


def test_a_weight_that_is_another_is_found_where_it_is_used(specimen):
    one, two = sides(specimen)
    if not specimen.steady:
        return
    with hookline.record(one[0]) as rec:
        one[0](*one[1][0], **one[1][1])
    weights = {name: weight for name, weight in two[0].named_parameters() if name.rpartition(".")[0] in rec}
    for name, weight in list(weights.items())[:3]:
        before = weight.detach().clone()
        weight.data.mul_(1.5).add_(0.1)
        first = hookline.diff(one, two).first
        weight.data.copy_(before)
        owner = name.rpartition(".")[0]
        assert first is not None and first.born and (first.site == owner or owner in rec[first.site].aliases), name
