"""A GPT whose vocabulary grows when the second corpus comes."""
import torch
import torch.nn as nn
import torch.nn.functional as F

T, D = 12, 32


class SlangGPT(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.wte = nn.Embedding(vocab, D)
        self.wpe = nn.Embedding(T, D)
        nn.init.normal_(self.wte.weight, std=0.05)
        layer = nn.TransformerEncoderLayer(D, 2, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.h = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.ln_f = nn.LayerNorm(D)
        self.lm_head = nn.Linear(D, vocab, bias=False)
        self.lm_head.weight = self.wte.weight
        self.register_buffer("causal", torch.full((T, T), float("-inf")).triu(1), persistent=False)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        return self.lm_head(self.ln_f(self.h(x, mask=self.causal)))

    def resize_vocab(self, n):
        old = self.wte.weight.data
        grown = torch.cat([old, old.mean(0, keepdim=True).repeat(n - len(old), 1)])
        self.wte = nn.Embedding.from_pretrained(grown.clone(), freeze=False)
        self.lm_head = nn.Linear(D, n, bias=False)
        self.lm_head.weight.data.copy_(grown)


def corpus(n, vocab):
    start = torch.randint(0, vocab, (n, 1))
    stride = torch.randint(1, 3, (n, 1))
    return (start + stride * torch.arange(T + 1)) % vocab


def train(model, vocab, steps, lr):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    for step in range(steps):
        seq = corpus(32, vocab)
        loss = F.cross_entropy(model(seq[:, :-1]).flatten(0, 1), seq[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 15 == 0 or step == steps - 1:
            print(f"vocab {vocab} step {step} loss {loss.item():.4f}")


torch.manual_seed(44)
model = SlangGPT(20)
train(model, 20, 40, 6e-3)
model.resize_vocab(28)
train(model, 28, 60, 6e-3)
torch.save(model.state_dict(), "slang.pt")
