"""Every warning is an error here."""

import warnings

warnings.simplefilter("error")
import torch  # noqa: E402
from torch import nn  # noqa: E402

model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
print("fine")
