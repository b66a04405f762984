"""Set-up of the tests with real trainers, which run in an environment of their own: `make test-trainers`."""

import os

os.environ["KERAS_BACKEND"] = "torch"
os.environ["HF_HUB_OFFLINE"] = "1"

import torch

torch.set_num_threads(1)
