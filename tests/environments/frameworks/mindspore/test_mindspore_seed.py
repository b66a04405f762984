"""Seed 001, MindSpore's "Hook Programming": its seven examples on MindSpore, written with hookline.

What they print is compared with the document to the letter.
"""

import mindspore as ms
import numpy as np
from mindspore import nn

import hookline


class AddThenReLU(nn.Cell):
    """The Net of most examples: relu(x + y)."""

    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU()

    def construct(self, x, y):
        x = x + y
        x = self.relu(x)
        return x


class ConvNormReLU(nn.Cell):
    """The Net of the two backward examples."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, kernel_size=2, stride=1, padding=0, weight_init="ones", pad_mode="valid")
        self.bn = nn.BatchNorm2d(2, momentum=0.99, eps=0.00001, gamma_init="ones")
        self.relu = nn.ReLU()

    def construct(self, x):
        x = self.conv(x)
        x = self.bn(x)
        x = self.relu(x)
        return x


def ones(*shape):
    return ms.Tensor(np.ones(shape).astype(np.float32))


def test_hook_backward_operator(capsys):
    def hook_fn(grad_out):
        print("hook_fn print grad_out:", grad_out)

    hook = hookline.HookBackward(hook_fn)

    def hook_test(x, y):
        z = x * y
        z = hook(z)
        z = z * y
        return z

    def net(x, y):
        return ms.grad(hook_test, grad_position=(0, 1))(x, y)

    output = net(ms.Tensor(1, ms.float32), ms.Tensor(2, ms.float32))
    print("output:", output)
    assert capsys.readouterr().out == (
        "hook_fn print grad_out: (Tensor(shape=[], dtype=Float32, value= 2),)\n"
        "output: (Tensor(shape=[], dtype=Float32, value= 4), Tensor(shape=[], dtype=Float32, value= 4))\n"
    )


def test_register_forward_pre_hook(capsys):
    def forward_pre_hook_fn(cell, inputs):
        print("forward inputs: ", inputs)
        input_x = inputs[0]
        return input_x

    net = AddThenReLU()
    handle = hookline.register_forward_pre_hook(net, forward_pre_hook_fn, "relu")
    grad_net = ms.grad(net, grad_position=(0, 1))
    x, y = ones(1), ones(1)
    print(net(x, y))
    print(grad_net(x, y))
    handle.remove()
    print(grad_net(x, y))
    gradient = (
        "(Tensor(shape=[1], dtype=Float32, value= [ 1.00000000e+00]), "
        "Tensor(shape=[1], dtype=Float32, value= [ 1.00000000e+00]))\n"
    )
    seen = "forward inputs:  (Tensor(shape=[1], dtype=Float32, value= [ 2.00000000e+00]),)\n"
    assert capsys.readouterr().out == f"{seen}[2.]\n{seen}{gradient}{gradient}"


def test_fresh_data_of_a_pre_hook_cuts_the_gradient(capsys):
    def forward_pre_hook_fn(cell, inputs):
        print("forward inputs: ", inputs)
        return ms.Tensor(np.ones([1]).astype(np.float32))

    net = AddThenReLU()
    hookline.register_forward_pre_hook(net, forward_pre_hook_fn, "relu")
    print(ms.grad(net, grad_position=(0, 1))(ones(1), ones(1)))
    assert capsys.readouterr().out == (
        "forward inputs:  (Tensor(shape=[1], dtype=Float32, value= [ 2.00000000e+00]),)\n"
        "(Tensor(shape=[1], dtype=Float32, value= [ 0.00000000e+00]), "
        "Tensor(shape=[1], dtype=Float32, value= [ 0.00000000e+00]))\n"
    )


def test_register_forward_hook(capsys):
    def forward_hook_fn(cell, inputs, outputs):
        print("forward inputs: ", inputs)
        print("forward outputs: ", outputs)
        outputs = outputs + outputs
        return outputs

    net = AddThenReLU()
    handle = hookline.register_forward_hook(net, forward_hook_fn, "relu")
    grad_net = ms.grad(net, grad_position=(0, 1))
    print(grad_net(ones(1), ones(1)))
    handle.remove()
    print(grad_net(ones(1), ones(1)))
    assert capsys.readouterr().out == (
        "forward inputs:  (Tensor(shape=[1], dtype=Float32, value= [ 2.00000000e+00]),)\n"
        "forward outputs:  [2.]\n"
        "(Tensor(shape=[1], dtype=Float32, value= [ 2.00000000e+00]), "
        "Tensor(shape=[1], dtype=Float32, value= [ 2.00000000e+00]))\n"
        "(Tensor(shape=[1], dtype=Float32, value= [ 1.00000000e+00]), "
        "Tensor(shape=[1], dtype=Float32, value= [ 1.00000000e+00]))\n"
    )


GRADIENT_OF_THE_INPUT = "[[[[1.99999 1.99999]\n   [1.99999 1.99999]]]]\n"
GRADIENT_OF_THE_OUTPUT = (
    "(Tensor(shape=[1, 2, 1, 1], dtype=Float32, value=\n[[[[ 1.00000000e+00]],\n  [[ 1.00000000e+00]]]]),)\n"
)


def test_register_backward_pre_hook(capsys):
    def backward_pre_hook_function(cell, grad_output):
        print(grad_output)

    net = ConvNormReLU()
    handle = hookline.register_backward_pre_hook(net, backward_pre_hook_function, "bn")
    grad_net = ms.grad(net)
    print(grad_net(ones(1, 1, 2, 2)))
    handle.remove()
    print("-------------\n", grad_net(ones(1, 1, 2, 2)))
    assert capsys.readouterr().out == (
        f"{GRADIENT_OF_THE_OUTPUT}{GRADIENT_OF_THE_INPUT}-------------\n {GRADIENT_OF_THE_INPUT}"
    )


def test_register_backward_hook(capsys):
    def backward_hook_function(cell, grad_input, grad_output):
        print(grad_input)
        print(grad_output)

    net = ConvNormReLU()
    handle = hookline.register_backward_hook(net, backward_hook_function, "bn")
    grad_net = ms.grad(net)
    print(grad_net(ones(1, 1, 2, 2)))
    handle.remove()
    print("-------------\n", grad_net(ones(1, 1, 2, 2)))
    assert capsys.readouterr().out == (
        "(Tensor(shape=[1, 2, 1, 1], dtype=Float32, value=\n[[[[ 9.99994993e-01]],\n  [[ 9.99994993e-01]]]]),)\n"
        f"{GRADIENT_OF_THE_OUTPUT}{GRADIENT_OF_THE_INPUT}-------------\n {GRADIENT_OF_THE_INPUT}"
    )


def several_hooks(original):
    """The last example: all kinds of hooks on one cell."""

    def forward_pre_hook_fn(cell, inputs):
        print("forward inputs: ", inputs)
        input_x = inputs[0]
        return input_x

    def forward_hook_fn(cell, inputs, outputs):
        print("forward inputs: ", inputs)
        print("forward outputs: ", outputs)
        outputs = outputs + outputs
        return outputs

    def backward_pre_hook_fn(cell, grad_output):
        print("grad input: ", grad_output)

    def backward_hook_fn(cell, grad_input, grad_output):
        print("grad input: ", grad_output)
        print("grad output: ", grad_input)

    net = AddThenReLU()
    hookline.register_forward_pre_hook(net, forward_pre_hook_fn, "relu")
    hookline.register_forward_hook(net, forward_hook_fn, "relu")
    hookline.register_backward_pre_hook(net, backward_pre_hook_fn, "relu")
    hookline.register_backward_hook(net, backward_hook_fn, "relu", original=original)
    print(ms.grad(net, grad_position=(0, 1))(ones(1), ones(1)))


PRINTED = """\
forward inputs:  (Tensor(shape=[1], dtype=Float32, value= [ 2.00000000e+00]),)
forward inputs:  (Tensor(shape=[1], dtype=Float32, value= [ 2.00000000e+00]),)
forward outputs:  [2.]
grad input:  (Tensor(shape=[1], dtype=Float32, value= [ 1.00000000e+00]),)
grad input:  (Tensor(shape=[1], dtype=Float32, value= [ {grad_output}]),)
grad output:  (Tensor(shape=[1], dtype=Float32, value= [ 2.00000000e+00]),)
({two}, {two})
"""
TWO = "Tensor(shape=[1], dtype=Float32, value= [ 2.00000000e+00])"


def test_several_hooks_as_the_document_prints_them(capsys):
    several_hooks(original=True)
    assert capsys.readouterr().out == PRINTED.format(grad_output="2.00000000e+00", two=TWO)


def test_several_hooks_as_mindspore_and_torch_have_them_today(capsys):
    several_hooks(original=False)
    assert capsys.readouterr().out == PRINTED.format(grad_output="1.00000000e+00", two=TWO)
