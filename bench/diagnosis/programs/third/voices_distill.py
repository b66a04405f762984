"""Speaker embeddings: a small student learns the embeddings of a large teacher."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(31)
SPEAKERS, FRAMES, BANDS, DIM = 12, 20, 10, 16
timbre = torch.randn(SPEAKERS, 1, BANDS)


def utterances(n):
    who = torch.randint(0, SPEAKERS, (n,))
    loud = 1 + 0.3 * torch.randn(n, FRAMES, 1)
    return timbre[who] * loud + 0.8 * torch.randn(n, FRAMES, BANDS), who


class Teacher(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.frame = nn.Sequential(nn.Linear(BANDS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.embed = nn.Linear(width, DIM)
        self.classify = nn.Linear(DIM, SPEAKERS)

    def embedding(self, x):
        return self.embed(self.frame(x).mean(1))

    def forward(self, x):
        return self.classify(self.embedding(x))


class Student(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.conv1 = nn.Conv1d(BANDS, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, padding=1)
        self.proj = nn.Linear(width, DIM)

    def forward(self, x):
        h = F.relu(self.conv1(x.transpose(1, 2)))
        h = F.relu(self.conv2(h))
        return self.proj(h.mean(-1))


def cosine_loss(student_emb, teacher_emb):
    return F.cosine_similarity(student_emb, teacher_emb, dim=-1).mean()


teacher = Teacher()
opt = torch.optim.Adam(teacher.parameters(), lr=5e-3)
for step in range(60):
    x, who = utterances(48)
    ce = F.cross_entropy(teacher(x), who)
    opt.zero_grad()
    ce.backward()
    opt.step()
print(f"teacher cross entropy {ce.item():.4f}")
teacher.eval()

x, who = utterances(512)
with torch.no_grad():
    wanted = teacher.embedding(x)
loader = DataLoader(TensorDataset(x, wanted, who), batch_size=32, shuffle=True)

student = Student()
optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
for epoch in range(6):
    running, right = 0.0, 0
    for feats, emb, label in loader:
        out = student(feats)
        loss = cosine_loss(out, emb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
        with torch.no_grad():
            right += (teacher.classify(F.normalize(out) * emb.norm(dim=1, keepdim=True)).argmax(1) == label).sum().item()
    print(f"epoch {epoch} loss {running / len(loader):.4f} accuracy {right / len(x):.3f}")
torch.save(student.state_dict(), "student.pt")
