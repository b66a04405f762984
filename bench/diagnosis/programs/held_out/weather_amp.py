"""Mixed precision training with a gradient scaler."""
import torch
import torch.nn as nn


class WeatherNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(14, 64), nn.SiLU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.SiLU(), nn.LayerNorm(64)
        )
        self.out = nn.Linear(64, 4)

    def forward(self, x):
        return self.out(self.layers(x))


torch.manual_seed(73)
basis = torch.randn(14, 4)


def observations(n):
    x = torch.randn(n, 14)
    return x, (x @ basis).argmax(1)


net = WeatherNet()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
criterion = nn.CrossEntropyLoss()
for step in range(80):
    x, y = observations(64)
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = criterion(net(x), y)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    if step % 16 == 0 or step == 79:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(net.state_dict(), "weather.pt")
