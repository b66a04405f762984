import torch
import torch.nn as nn

torch.manual_seed(41)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(18, 64)
        self.fc2 = nn.Linear(64, 64)
        self.fc3 = nn.Linear(64, 6)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = self.drop(torch.relu(self.fc2(x)))
        return self.fc3(x)


centres = torch.randn(6, 18)
model = MLP()
model.compile(backend="aot_eager")
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
loss_fn = nn.CrossEntropyLoss()
for step in range(70):
    y = torch.randint(0, 6, (64,))
    x = centres[y] + torch.randn(64, 18)
    loss = loss_fn(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 14 == 0 or step == 69:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(model.state_dict(), "mlp.pt")
