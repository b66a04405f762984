"""Grads: gradients of what enters and leaves a call, heard and replaced while the graph stays as it is.

passages.py  one call's way through a module, from which its ports are known
leaves.py    the tensors of a call, and views of those that are known by several names
ports.py     a place in autograd's graph: an edge, and the nodes that the call made
simple.py    calls that need no more than hooks on two nodes; _simple.c, what is done for each of them
unheard.py   the same where no C was compiled: all calls are looked up
backward.py  one run of autograd's engine: who is told what, and when
finding.py   the passages that a backward has to look up
ledgers.py   for each edge, who sends what
graph.py     the nodes that one backward may run
births.py    which node's backward made a node
marks.py     what is kept in the metadata of nodes
threads.py   what each thread knows of its calls; thread_facts.py, the same where no C was compiled
"""
