"""Probing: does a model have the properties that it is meant to have? Found out by running it a few times more.

Never in a training: `hookline.probe(model, inputs)` runs copies of the inputs through the model and leaves the
model as it was. Each property is a file in `probes/`, with what it looks at, when, and why it can be wrong.
"""
