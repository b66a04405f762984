import torch
import torch.nn as nn

torch.manual_seed(59)
W = torch.randn(20, 8)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 8))
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.003)
for epoch in range(5):
    for _ in range(20):
        x = torch.randn(64, 20)
        y = (x @ W > 4.0).float()
        optimizer.zero_grad()
        logits = model(x)
        loss = criterion(logits, y)
        loss.backward()
        optimizer.step()
    share = (torch.sigmoid(logits) > 0.5).float().mean().item()
    print("epoch %d loss %.4f tagged %.3f" % (epoch, loss.item(), share))
torch.save(model.state_dict(), "tags.pt")
