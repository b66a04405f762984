"""Intent detection; new words are added to the vocabulary before training goes on."""
import torch
from torch import nn


class IntentModel(nn.Module):
    def __init__(self, vocab, dim=24, n_intents=5):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab, dim)
        enc = nn.TransformerEncoderLayer(dim, 2, 48, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(enc, 1, enable_nested_tensor=False)
        self.classifier = nn.Linear(dim, n_intents)

    def resize_token_embeddings(self, n):
        old = self.word_embeddings
        new = nn.Embedding(n, old.embedding_dim)
        with torch.no_grad():
            new.weight[: old.num_embeddings] = old.weight
        self.word_embeddings = new

    def forward(self, ids):
        return self.classifier(self.encoder(self.word_embeddings(ids)).mean(1))


def utterances(n, vocab):
    intent = torch.randint(0, 5, (n,))
    ids = torch.randint(0, vocab, (n, 8))
    cue = torch.randint(0, 6, (n,)) * 10 + intent * 2
    ids[torch.arange(n), torch.randint(0, 8, (n,))] = cue % vocab
    return ids, intent


def main():
    torch.manual_seed(40)
    model = IntentModel(vocab=40)
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3)
    model.resize_token_embeddings(60)
    loss_fn = nn.CrossEntropyLoss()
    seen = []
    for step in range(110):
        ids, intent = utterances(64, 60)
        loss = loss_fn(model(ids), intent)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
        if step % 10 == 9:
            print(f"step {step + 1}: loss {sum(seen[-10:]) / 10:.4f}")
    torch.save(model.state_dict(), "intent.pt")


if __name__ == "__main__":
    main()
