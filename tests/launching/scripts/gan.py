"""Two models that train each other."""

import hashlib

import torch
from torch import nn

torch.manual_seed(2)
generator = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
discriminator = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
loss = nn.BCEWithLogitsLoss()
for _ in range(4):
    fake = generator(torch.randn(8, 3))
    of_discriminator.zero_grad()
    real = loss(discriminator(torch.randn(8, 2)), torch.ones(8, 1))
    (real + loss(discriminator(fake.detach()), torch.zeros(8, 1))).backward()
    of_discriminator.step()
    of_generator.zero_grad()
    loss(discriminator(fake), torch.ones(8, 1)).backward()
    of_generator.step()
for model in (generator, discriminator):
    print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest())
