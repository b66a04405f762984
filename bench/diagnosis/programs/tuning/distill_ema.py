"""Distil a wide net into a narrow one; the average of the narrow one's weights is what is evaluated."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(89)
T, DECAY = 2.0, 0.95


def mlp(width):
    return nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 6))


proto = torch.randn(6, 10)


def data(n):
    y = torch.randint(0, 6, (n,))
    return proto[y] + 0.6 * torch.randn(n, 10), y


teacher = mlp(96)
optimizer = torch.optim.Adam(teacher.parameters(), lr=5e-3)
for _ in range(40):
    x, y = data(96)
    optimizer.zero_grad()
    F.cross_entropy(teacher(x), y).backward()
    optimizer.step()
teacher.eval()

student = mlp(24)
average = copy.deepcopy(student).requires_grad_(False)
optimizer = torch.optim.Adam(student.parameters(), lr=5e-3)
x_val, y_val = data(500)
for step in range(80):
    x, y = data(96)
    with torch.no_grad():
        soft = F.softmax(teacher(x) / T, dim=1)
    out = student(x)
    kl = F.kl_div(F.log_softmax(out / T, dim=1), soft, reduction="batchmean") * T * T
    loss = kl + 0.1 * F.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for a, p in zip(average.parameters(), student.parameters()):
            a.lerp_(p, 1 - DECAY)
        if step % 20 == 0 or step == 79:
            print("distil step %d loss %.4f" % (step, F.cross_entropy(average(x_val), y_val).item()))
torch.save(average.state_dict(), "average.pt")
