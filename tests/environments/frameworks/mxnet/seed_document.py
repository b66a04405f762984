"""MXNet's own document on hooks, "Examine forward results with hooks", with hookline in place of Gluon's hooks.

Run as one program: the document's numbers are those of one process from its first example to its last.
"""

import mxnet as mx
from mxnet.gluon import nn

import hookline


def heading(text):
    print(f"== {text}")


heading("pre-forward hook")
block = nn.Dense(10)
block.initialize()
print(block)


def pre_hook(block, input) -> None:
    print(block)


pre_handle = hookline.register_forward_pre_hook(block, pre_hook)
input = mx.nd.ones((3, 5))
print(block(input))

heading("detached")
pre_handle.detach()
print(block(input))

heading("post-forward hook")


def post_hook(block, input, output) -> None:
    print(block)


post_handle = hookline.register_forward_hook(block, post_hook)
print(block(input))
post_handle.detach()

heading("callback hook, monitor_all")


def mon_callback(node_name, opr_name, arr):
    assert type(node_name) is str and type(opr_name) is str and type(arr) is mx.nd.NDArray
    print(node_name)
    print(opr_name)


model = nn.HybridSequential(prefix="dense_")
with model.name_scope():
    model.add(mx.gluon.nn.Dense(2))

model.initialize()
model.hybridize()
handle = hookline.register_op_hook(model, mon_callback, monitor_all=True)
print(model(mx.nd.ones((2, 3, 4))))

heading("callback hook, outputs only")
handle.detach()
handle = hookline.register_op_hook(model, mon_callback, monitor_all=False)
print(model(mx.nd.ones((2, 3, 4))))

heading("removed")
handle.detach()
print(model(mx.nd.ones((2, 3, 4))))
