"""Fakes: one run of a model on tensors without numbers, for summaries and traces.

standins.py  fake tensors in the place of parameters, buffers and inputs
tracing.py   the run: each call and each operation noted
costs.py     what an operation costs
flow.py      from which calls the memory of a tensor came
"""
