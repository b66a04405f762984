"""Star rating of reviews with a transformer encoder."""
import torch
import torch.nn as nn

torch.manual_seed(9)
VOCAB = 50


class Rater(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d)
        self.drop = nn.Dropout(0.2)
        layer = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.2, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.fc = nn.Linear(d, 5)

    def forward(self, ids):
        return self.fc(self.enc(self.drop(self.emb(ids))).mean(1))


def reviews(n):
    ids = torch.randint(0, VOCAB, (n, 10))
    stars = ((ids < 15).sum(1) - (ids > 34).sum(1)).clamp(-2, 2) + 2
    return ids, stars


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.loss_fn = nn.CrossEntropyLoss()

    def fit(self, epochs, steps):
        self.model.train()
        for epoch in range(epochs):
            for _ in range(steps):
                self.training_step(reviews(48))
            print(f"epoch {epoch}: val loss {self.evaluate():.4f}")

    def training_step(self, batch):
        ids, stars = batch
        self.opt.zero_grad()
        loss = self.loss_fn(self.model(ids), stars)
        loss.backward()
        self.opt.step()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        ids, stars = reviews(200)
        return self.loss_fn(self.model(ids), stars).item()


trainer = Trainer(Rater(), lr=2e-3)
trainer.fit(epochs=4, steps=15)
torch.save(trainer.model.state_dict(), "rater.pt")
