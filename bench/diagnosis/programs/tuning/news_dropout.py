"""Bag of words to topic."""
import torch
import torch.nn as nn
import torch.nn.functional as F

N_WORDS, N_TOPICS = 120, 6


class TopicModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(N_WORDS, 32, mode="mean")
        self.fc1 = nn.Linear(32, 48)
        self.fc2 = nn.Linear(48, N_TOPICS)

    def forward(self, words):
        h = F.dropout(self.emb(words), 0.5)
        h = F.relu(self.fc1(h))
        h = F.dropout(h, 0.5)
        return self.fc2(h)


def documents(n, length=20):
    topic = torch.randint(0, N_TOPICS, (n,))
    own = topic.unsqueeze(1) * 20 + torch.randint(0, 20, (n, length))
    other = torch.randint(0, N_WORDS, (n, length))
    return torch.where(torch.rand(n, length) < 0.35, own, other), topic


def evaluate(model):
    model.eval()
    words, topic = documents(600)
    with torch.no_grad():
        logits = model(words)
    model.train()
    return F.cross_entropy(logits, topic).item(), (logits.argmax(1) == topic).float().mean().item()


def main():
    torch.manual_seed(77)
    model = TopicModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(1, 91):
        words, topic = documents(64)
        optimizer.zero_grad()
        F.cross_entropy(model(words), topic).backward()
        optimizer.step()
        if step % 30 == 0:
            val, acc = evaluate(model)
            print(f"step {step} val loss {val:.4f} acc {acc:.3f}")
    torch.save(model.state_dict(), "topics.pt")


if __name__ == "__main__":
    main()
