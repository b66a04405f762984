"""A small tied language model: pretrained on many sentences, kept as a half-precision checkpoint, then fine-tuned."""
import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, LENGTH = 48, 16


class DialogueLM(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.drop = nn.Dropout(0.1)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, VOCAB, bias=False)
        nn.init.normal_(self.embed.weight, std=0.1)
        # input and output embeddings are one matrix
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        h, _ = self.gru(self.drop(self.embed(tokens)))
        return self.head(self.drop(h))


def corpus(jump, noise):
    """Sequences in which each word follows from the one before."""
    def sample(n):
        seq = torch.randint(0, VOCAB, (n, 1))
        for _ in range(LENGTH):
            following = (seq[:, -1:] * jump + 7) % VOCAB
            random = torch.randint(0, VOCAB, (n, 1))
            seq = torch.cat([seq, torch.where(torch.rand(n, 1) < noise, random, following)], 1)
        return seq
    return sample


def run(model, sample, optimizer, steps, name):
    model.train()
    for step in range(steps):
        seq = sample(32)
        logits = model(seq[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), seq[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0 or step == steps - 1:
            print(f"{name} {step} loss {loss.item():.4f}")


def save_half(model, path):
    torch.save({k: v.half() for k, v in model.state_dict().items()}, path)


def load_half(path):
    state = {k: v.float() for k, v in torch.load(path).items()}
    model = DialogueLM()
    model.load_state_dict(state, assign=True)
    return model


if __name__ == "__main__":
    torch.manual_seed(8)
    model = DialogueLM()
    run(model, corpus(5, 0.1), torch.optim.AdamW(model.parameters(), lr=1e-2), 80, "pretrain")
    save_half(model, "pretrained.pt")

    model = load_half("pretrained.pt")
    run(model, corpus(11, 0.1), torch.optim.AdamW(model.parameters(), lr=5e-3), 80, "finetune")
    torch.save(model.state_dict(), "finetuned.pt")
