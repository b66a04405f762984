"""Rules: what may be wrong with a training. Each file has one rule, or a small family of them.

A rule is a function under `@rule`: it takes a Training and yields what it `found`. Its thresholds are at the top
of its file; its docstring says what it finds, when, and why it can be wrong. Those under `wiring=True` have no
thresholds to speak of: they read how the training hangs together. Every file of this folder is loaded when rules
are first asked for.
"""
