# %% [markdown]
# # Parking occupancy
# An MLP with embeddings on a table of sensors and hours.

# %%
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(2024)
EPOCHS = 15

# %%
n = 1024
hour = torch.randint(0, 24, (n,))
lot = torch.randint(0, 12, (n,))
weather = torch.randn(n, 4)
size = torch.rand(12)
rush = torch.exp(-((hour - 9).float() ** 2) / 8) + 0.7 * torch.exp(-((hour - 17).float() ** 2) / 10)
occupied = size[lot] * rush * 2 + 0.3 * torch.tanh(weather[:, 0] * weather[:, 1]) + 0.05 * torch.randn(n)
dataset = TensorDataset(hour, lot, weather, occupied.unsqueeze(1))
train_dl = DataLoader(dataset, batch_size=64, shuffle=True)


# %%
class ParkingModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.hour_emb = nn.Embedding(24, 6)
        self.lot_emb = nn.Embedding(12, 6)
        self.layers = nn.Sequential(
            nn.Linear(16, 64),
            nn.ReLU(),
            nn.BatchNorm1d(64),
            nn.Linear(64, 32),
            nn.ReLU(),
            nn.BatchNorm1d(32),
            nn.Linear(32, 1),
        )

    def forward(self, hour, lot, cont):
        return self.layers(torch.cat([self.hour_emb(hour), self.lot_emb(lot), cont], 1))


model = ParkingModel()
loss_fn = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)

# %%
history = []
for epoch in range(EPOCHS):
    model.train()
    epoch_loss = 0.0
    for h, l, c, target in train_dl:
        optimizer.zero_grad()
        loss = loss_fn(model(h, l, c), target)
        loss.backward()
        optimizer.step()
        scheduler.step()
        epoch_loss += loss.item()
    history.append(epoch_loss / len(train_dl))
    print(f"Epoch {epoch + 1:2d}  loss {history[-1]:.5f}")

# %%
torch.save(model.state_dict(), "parking.pt")
