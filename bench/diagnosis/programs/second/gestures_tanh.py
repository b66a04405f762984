"""An autoencoder of glove sensors, with the initialisation from the GAN project."""
import torch
import torch.nn as nn


def weights_init(m):
    if isinstance(m, nn.Linear):
        nn.init.normal_(m.weight)
        nn.init.zeros_(m.bias)


class GestureAE(nn.Module):
    def __init__(self, sensors=48, width=96, code=6):
        super().__init__()
        self.enc1 = nn.Linear(sensors, width)
        self.enc2 = nn.Linear(width, code)
        self.dec1 = nn.Linear(code, width)
        self.dec2 = nn.Linear(width, sensors)
        self.act = nn.Tanh()

    def forward(self, x):
        z = self.act(self.enc2(self.act(self.enc1(x))))
        return self.dec2(self.act(self.dec1(z)))


torch.manual_seed(33)
basis = torch.randn(4, 48)


def gestures(n):
    return torch.sin(torch.randn(n, 4) @ basis * 0.5)


model = GestureAE()
model.apply(weights_init)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
criterion = nn.MSELoss()
for epoch in range(6):
    total = 0.0
    for _ in range(25):
        x = gestures(64)
        optimizer.zero_grad()
        loss = criterion(model(x), x)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch + 1}/6 loss {total / 25:.4f}")
torch.save(model.state_dict(), "gestures.pt")
