import torch, torch.nn as nn, torch.optim as optim
from torch.optim import lr_scheduler

torch.manual_seed(4)
means = torch.randn(5, 16)
means = means / means.norm(dim=1, keepdim=True) * 2.0

def get_batch(bs):
    lab = torch.randint(5, (bs,))
    return means[lab] + torch.randn(bs, 16) * 0.9, lab

class FruitNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(16, 64)
        self.l2 = nn.Linear(64, 64)
        self.l3 = nn.Linear(64, 5)
        self.act = nn.LeakyReLU(0.1)
    def forward(self, x):
        return self.l3(self.act(self.l2(self.act(self.l1(x)))))

net = FruitNet()
opt = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sched = lr_scheduler.StepLR(opt, step_size=2, gamma=0.1)
crit = nn.CrossEntropyLoss()
EPOCHS, STEPS = 6, 15
for epoch in range(EPOCHS):
    tot = 0.
    for _ in range(STEPS):
        xb, yb = get_batch(64)
        opt.zero_grad()
        loss = crit(net(xb), yb)
        loss.backward()
        opt.step()
        sched.step()
        tot += loss.item()
    print('epoch', epoch, 'loss', round(tot / STEPS, 4))
torch.save(net.state_dict(), 'fruit.pt')
