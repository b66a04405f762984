"""An autoencoder whose decoder is the encoder, transposed."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class TiedAutoencoder(nn.Module):
    def __init__(self, sizes=(40, 24, 8)):
        super().__init__()
        self.down = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.up_bias = nn.ParameterList(nn.Parameter(torch.zeros(a)) for a in sizes[:-1])

    def encode(self, x):
        for layer in self.down:
            x = torch.tanh(layer(x))
        return x

    def decode(self, z):
        for i in reversed(range(len(self.down))):
            z = F.linear(z, self.down[i].weight.t(), self.up_bias[i])
            if i:
                z = torch.tanh(z)
        return z

    def forward(self, x):
        return self.decode(self.encode(x))


torch.manual_seed(26)
mixing = torch.randn(5, 40) / 5**0.5


def knots(n):
    return torch.randn(n, 5) @ mixing + 0.05 * torch.randn(n, 40)


model = TiedAutoencoder()
optimizer = torch.optim.NAdam(model.parameters(), lr=4e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=20, T_mult=2, eta_min=0.0)
for step in range(140):
    x = knots(64)
    loss = F.mse_loss(model(x + 0.1 * torch.randn_like(x)), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 20 == 0 or step == 139:
        print(f"{step:4d} lr {optimizer.param_groups[0]['lr']:.5f} loss {loss.item():.4f}")
torch.save(model.state_dict(), "knots.pt")
