"""Next note of a melody with a plain recurrent net written by hand."""
import torch
import torch.nn as nn
import torch.nn.functional as F

NOTES, HID = 16, 48


class ElmanRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Embedding(NOTES, HID)
        self.rec = nn.Linear(HID, HID)
        self.out = nn.Linear(HID, NOTES)
        nn.init.normal_(self.rec.weight, std=0.6)

    def forward(self, notes):
        h = torch.zeros(notes.size(0), HID)
        logits = []
        for t in range(notes.size(1)):
            h = F.relu(self.inp(notes[:, t]) + self.rec(h))
            logits.append(self.out(h))
        return torch.stack(logits, 1)


def melodies(n, t=14):
    jump = torch.tensor([2, 3, 5])[torch.randint(0, 3, (n, 1))]
    return (torch.randint(0, NOTES, (n, 1)) + jump * torch.arange(t + 1)) % NOTES


torch.manual_seed(440)
net = ElmanRNN()
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(60):
    m = melodies(32)
    loss = F.cross_entropy(net(m[:, :-1]).flatten(0, 1), m[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0 or step == 59:
        print("step %d loss %.4f" % (step, loss.item()))
torch.save(net.state_dict(), "melody.pt")
