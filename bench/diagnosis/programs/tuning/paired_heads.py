"""Age and gender from one face embedding: one encoder, two heads, an optimizer for each task."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class FaceNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 24), nn.ReLU())
        self.age = nn.Linear(24, 1)
        self.gender = nn.Linear(24, 2)

    def forward(self, x):
        z = self.encoder(x)
        return self.age(z).squeeze(1), self.gender(z)


torch.manual_seed(64)
mix = torch.randn(24, 6) / 4


def faces(n):
    x = torch.randn(n, 24)
    f = torch.tanh(x @ mix)
    return x, f[:, 0] * 2 + f[:, 1], (f[:, 2] * f[:, 3] > 0).long()


model = FaceNet()
opt_age = torch.optim.Adam([*model.encoder.parameters(), *model.age.parameters()], lr=0.005)
opt_gender = torch.optim.Adam([*model.encoder.parameters(), *model.gender.parameters()], lr=0.005)
for step in range(100):
    x, age, gender = faces(96)
    pred_age, pred_gender = model(x)
    loss = F.mse_loss(pred_age, age) + F.cross_entropy(pred_gender, gender)
    opt_age.zero_grad()
    opt_gender.zero_grad()
    loss.backward()
    opt_age.step()
    opt_gender.step()
    if step % 20 == 0 or step == 99:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(model.state_dict(), "faces.pt")
