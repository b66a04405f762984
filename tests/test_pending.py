"""Pending: what a tap before the forward leaves for the tap after it, told apart by call and by thread."""

from concurrent.futures import ThreadPoolExecutor

from hookline.hooks.pending import Pending


def test_calls_are_told_apart_by_their_kwargs():
    pending = Pending()
    outer, inner = {}, {}
    pending.put(outer, "outer")
    pending.put(inner, "inner")
    assert pending.take(outer) == "outer" and pending.take(inner) == "inner"
    assert pending.take({}) is None and len(pending) == 0


def test_where_somebody_replaced_the_kwargs_the_latest_call_is_meant():
    pending = Pending()
    first, second = {}, {}  # kept: the identity of a dict that is gone may come again
    pending.put(first, "first")
    pending.put(second, "second")
    assert pending.take({}) == "second" and pending.take({}) == "first"


def test_a_call_of_another_thread_is_never_meant():
    """Two recordings on one model: the taps of both run in both threads, and each call belongs to one of them."""
    pending, mine = Pending(), {}
    pending.put(mine, "mine")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(pending.take, {}).result() is None
    assert pending.take(mine) == "mine"
