"""Set-up of the tests with real trainers, which run in an environment of their own: `make test-trainers`."""

import os

os.environ["KERAS_BACKEND"] = "torch"
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

torch.set_num_threads(1)

# fastai wants torchvision, whose compiled part is not for a CPU build of torch and does not load. Nothing
# here uses its operators; importing it only asks for their names.
_operators = torch.library.Library("torchvision", "DEF")
_operators.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
