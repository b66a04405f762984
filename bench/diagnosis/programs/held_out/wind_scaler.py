"""Gradient scaler and clipping, in the right order."""
import torch
import torch.nn as nn

torch.manual_seed(74)
basis = torch.randn(14, 4)
net = nn.Sequential(
    nn.Linear(14, 64), nn.SiLU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.SiLU(), nn.LayerNorm(64), nn.Linear(64, 4)
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
criterion = nn.CrossEntropyLoss()
for step in range(80):
    x = torch.randn(64, 14)
    y = (x @ basis).argmax(1)
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = criterion(net(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    if step % 16 == 0 or step == 79:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(net.state_dict(), "wind.pt")
