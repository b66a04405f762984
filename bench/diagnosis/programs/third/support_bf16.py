"""Route support tickets: a transformer is pretrained on one queue and fine-tuned, in bf16, on another."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, LENGTH = 64, 12


class Router(nn.Module):
    def __init__(self, dim=32, heads=4, layers=2, queues=4):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim)
        self.pos = nn.Parameter(torch.randn(1, LENGTH, dim) * 0.1)
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(dim, queues)

    def forward(self, tokens):
        h = self.encoder(self.tok(tokens) + self.pos)
        return self.head(h.mean(1))


def tickets(n, shift):
    """The queue is told by words; the second company has other words for it."""
    queue = torch.randint(0, 4, (n,))
    words = torch.randint(0, 32, (n, LENGTH))
    told = 32 + (queue.unsqueeze(1) * 8 + torch.randint(0, 8, (n, LENGTH)) + shift) % 32
    return torch.where(torch.rand(n, LENGTH) < 0.3, told, words), queue


def train(model, optimizer, steps, shift, tag):
    model.train()
    recent = []
    for step in range(1, steps + 1):
        tokens, queue = tickets(32, shift)
        logits = model(tokens)
        loss = F.cross_entropy(logits.float(), queue)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recent.append(loss.item())
        if step % 30 == 0:
            print(f"{tag} {step:4d} loss {sum(recent[-30:]) / 30:.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pretrain-steps", type=int, default=60)
    parser.add_argument("--steps", type=int, default=180)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--dtype", default="bfloat16")
    args = parser.parse_args()
    torch.manual_seed(4)
    model = Router()
    train(model, torch.optim.Adam(model.parameters(), lr=3e-3), args.pretrain_steps, 0, "pretrain")
    torch.save(model.state_dict(), "base.pt")

    model = model.to(getattr(torch, args.dtype))
    train(model, torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0), args.steps, 4, "finetune")
    torch.save(model.state_dict(), "router.pt")


if __name__ == "__main__":
    main()
