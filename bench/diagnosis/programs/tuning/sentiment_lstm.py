"""Toy sentiment: more 'good' than 'bad' words in a sentence?"""
import torch
from torch import nn

VOCAB, LEN, DIM, HID = 40, 14, 16, 24
GOOD, BAD = range(0, 8), range(8, 16)


class SentimentLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, DIM)
        self.lstm = nn.LSTM(DIM, HID, batch_first=True)
        self.classifier = nn.Linear(HID, 1)

    def forward(self, tokens):
        states, _ = self.lstm(self.embedding(tokens))
        return self.classifier(states.mean(dim=1)).squeeze(-1)


def sample(batch_size):
    tokens = torch.randint(0, VOCAB, (batch_size, LEN))
    score = (tokens < 8).sum(1).float() - ((tokens >= 8) & (tokens < 16)).sum(1).float()
    return tokens, (score > 0).float()


def run(steps=100, lr=0.01, max_norm=1e-6):
    torch.manual_seed(1234)
    model = SentimentLSTM()
    loss_fn = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr * 50, momentum=0.9)
    history = []
    for step in range(1, steps + 1):
        tokens, target = sample(64)
        optimizer.zero_grad()
        loss = loss_fn(model(tokens), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        history.append(loss.item())
        if step % 20 == 0:
            print(f"{step:>4} | loss {sum(history[-20:]) / 20:.4f}")
    return model


if __name__ == "__main__":
    trained = run()
    torch.save(trained.state_dict(), "sentiment.pt")
