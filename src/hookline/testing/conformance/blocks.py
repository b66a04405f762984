"""Checks of blocks and handles: threads, the order in which they are left, and what is left of them."""

from __future__ import annotations

import gc
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import hookline
from hookline.backends.nouns import Model
from hookline.testing.conformance.adapter import Adapter, ramp
from hookline.testing.conformance.checking import check, equal

X = ramp(2, 3)
LOSS = ramp(2, 3)[::-1].copy()
ROUNDS = 12


def quiet_blocks(model: Model) -> list[Callable[[], Any]]:
    """What attaches and changes no value."""
    return [
        lambda: hookline.record(model),
        lambda: hookline.record(model, inputs=True, grads=True),
        lambda: hookline.watch(model, progress=False),
        lambda: hookline.edit(model, {"first": lambda output: output, "block:input": lambda args: args}),
        lambda: hookline.register_forward_hook(model, lambda *told: None, "**"),
        lambda: hookline.register_forward_pre_hook(model, lambda *told: None, "**", with_kwargs=True),
        lambda: hookline.register_backward_hook(model, lambda *told: None, "**"),
    ]


@contextmanager
def restless() -> Iterator[None]:
    """Threads take turns after every few operations of Python."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def in_threads(*works: Callable[[], None]) -> None:
    """Runs each in a thread of its own; raises the first exception of any."""
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    with restless(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="watching")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


@check("record", "grads", "watch", "edit", "forward", "forward_pre", "backward")
def attaching_makes_no_call_of_another_thread_fail(adapter: Adapter) -> None:
    model = adapter.build("chain")
    blocks = quiet_blocks(model)
    done = threading.Event()

    def call() -> None:
        while not done.is_set():
            equal(adapter.run(model, X), X * 30, adapter)

    def attach() -> None:
        try:
            for number in range(ROUNDS):
                with blocks[number % len(blocks)]():
                    equal(adapter.run(model, X), X * 30, adapter)
        finally:
            done.set()

    in_threads(call, attach)
    assert hookline.installed(model) == []
    equal(adapter.run(model, X), X * 30, adapter)


@check("record", "grads", "watch", "edit", "forward", "forward_pre", "backward")
def threads_attach_to_one_model_at_once(adapter: Adapter) -> None:
    model = adapter.build("chain")
    blocks = quiet_blocks(model)

    def attach(start: int) -> None:
        for number in range(start, start + ROUNDS):
            with blocks[number % len(blocks)]():
                equal(adapter.run(model, X), X * 30, adapter)

    in_threads(lambda: attach(0), lambda: attach(3), lambda: attach(5))
    assert hookline.installed(model) == []
    equal(adapter.backward(model, X, LOSS), LOSS * 30, adapter)


@check("record")
def recordings_of_two_threads_do_not_see_each_other(adapter: Adapter) -> None:
    model = adapter.build("chain")

    def record(factor: int) -> None:
        for _ in range(ROUNDS):
            with hookline.record(model, "block", inputs=True) as rec:
                adapter.run(model, X * factor)
            assert len(rec["block"].calls) == 1
            equal(rec["block"].input[0], X * factor * 2, adapter)
            equal(rec["block"].output, X * factor * 6, adapter)

    in_threads(lambda: record(1), lambda: record(2))


@check("record", "grads", "watch", "edit", "forward", "forward_pre", "backward")
def blocks_are_left_in_any_order(adapter: Adapter) -> None:
    for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0)):
        model = adapter.build("chain")
        blocks = quiet_blocks(model)
        for first in range(0, len(blocks) - 2, 2):
            opened = [block() for block in blocks[first : first + 3]]
            for block in opened:
                block.__enter__()
            for number in order:
                equal(adapter.run(model, X), X * 30, adapter)
                opened[number].__exit__(None, None, None)
        assert hookline.installed(model) == []
        equal(adapter.backward(model, X, LOSS), LOSS * 30, adapter)


@check("edit", "skip")
def edits_and_skips_are_left_in_any_order(adapter: Adapter) -> None:
    for order in ((0, 1), (1, 0)):
        model = adapter.build("chain")
        blocks = [
            hookline.edit(model, {"block": hookline.skip}),
            hookline.edit(model, {"block": hookline.skip(lambda x: x * 7), "first": lambda output: output * 10}),
        ]
        for block in blocks:
            block.__enter__()
        equal(adapter.run(model, X), X * 700, adapter)
        blocks[order[0]].__exit__(None, None, None)
        equal(adapter.run(model, X), X * (700 if order[0] == 0 else 10), adapter)
        blocks[order[1]].__exit__(None, None, None)
        assert hookline.installed(model) == []
        equal(adapter.run(model, X), X * 30, adapter)


@check("record", "watch", "edit")
def a_block_is_left_in_another_thread(adapter: Adapter) -> None:
    model = adapter.build("chain")
    blocks: list[Any] = [
        hookline.record(model),
        hookline.watch(model, progress=False),
        hookline.edit(model, {"first": lambda output: output}),
    ]
    for block in blocks:
        block.__enter__()
        adapter.run(model, X)
        in_threads(lambda block=block: block.__exit__(None, None, None))  # type: ignore[misc]
        assert hookline.installed(model) == []
    with hookline.record(model, "first") as rec:
        adapter.run(model, X)
    assert len(rec["first"].calls) == 1


@check("record", "grads", "watch", "edit", "forward", "forward_pre", "backward")
def a_model_is_freed_whatever_was_attached(adapter: Adapter) -> None:
    alone = _left_over(adapter, lambda model: None)
    for number in range(len(quiet_blocks(None))):

        def use(model: Model, number: int = number) -> None:
            with quiet_blocks(model)[number]():
                adapter.run(model, X)
                adapter.backward(model, X, LOSS)

        assert _left_over(adapter, use) <= alone, number


def _left_over(adapter: Adapter, use: Callable[[Any], None]) -> bool:
    """Whether only the collector frees a model; an AssertionError if that does not either.

    Blocks of some frameworks are cycles themselves, and some free a graph in threads of their own.
    """
    gc.collect()
    gc.disable()
    try:
        model = adapter.build("chain")
        adapter.run(model, X)
        adapter.backward(model, X, LOSS)
        reference = weakref.ref(model)
        use(model)
        del model
        waits = reference() is not None
    finally:
        gc.enable()
    end = time.monotonic() + 10
    while reference() is not None and time.monotonic() < end:
        gc.collect()
        time.sleep(0.01)
    assert reference() is None
    return waits
