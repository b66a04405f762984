"""Compiled: taps on modules that run inside a graph of torch.compile.

A tap is arbitrary Python, which a graph can't hold. What the graph holds instead are *doors*: operators with a
number, placed where a tap would be called, that hand the tensors of the moment to the tap while the graph runs.

    classes.py   a tapped module gets a class of its own, which makes torch compile it anew, once
    traced.py    what torch.compile sees in place of a tap: the doors that the tap needs
    constants.py what of a tap is fixed in a graph, asked while it is traced
    doors.py     what a door is: whose, and in which structure its tensors stand
    places.py    how a gradient belongs to one place of a call and not to other uses of the same tensor
    hanging.py   the hooks on tensors of a graph
    custom_ops.py the operators themselves
    tickets.py   the gradients of a call that runs in a graph

Op hooks enter the same graphs: ops.py attaches, listened.py knows who listens, inductor.py gets the finished
graphs, inserting.py puts operators into them that look at values.
"""
