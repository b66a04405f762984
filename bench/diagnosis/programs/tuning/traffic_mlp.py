import torch
import torch.nn as nn

torch.manual_seed(13)
hours = torch.arange(0, 24 * 60, dtype=torch.float32)
flow = 1.5 * torch.sin(hours / 24 * 6.2832) + 0.7 * torch.sin(hours / 12 * 6.2832 + 1) + 0.1 * torch.randn(len(hours))
WINDOW = 24


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc_in = nn.Linear(WINDOW, 64)
        self.fc_mid = nn.Linear(64, 64)
        self.fc_out = nn.Linear(64, 1)

    def forward(self, w):
        h = torch.relu(self.fc_in(w))
        h = torch.relu(self.fc_mid(h))
        return self.fc_out(h).squeeze(1)


model = Forecaster()
opt = torch.optim.SGD(model.parameters(), lr=0.9)
for it in range(80):
    start = torch.randint(0, len(flow) - WINDOW - 1, (64,))
    x = torch.stack([flow[s:s + WINDOW] for s in start])
    y = flow[start + WINDOW]
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 10 == 0 or it == 79:
        print(f"it {it} loss {loss.item():.4g}")
torch.save(model.state_dict(), "traffic.pt")
