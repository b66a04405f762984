"""TextCNN (Kim, 2014) for product reviews with five stars."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

VOCAB, SEQ_LEN, STARS = 200, 20, 5


class TextCNN(nn.Module):
    def __init__(self, vocab_size, embed_dim, n_filters, filter_sizes, output_dim, dropout):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.convs = nn.ModuleList([nn.Conv2d(1, n_filters, (fs, embed_dim)) for fs in filter_sizes])
        self.fc = nn.Linear(len(filter_sizes) * n_filters, output_dim)
        self.dropout = nn.Dropout(dropout)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, text):
        embedded = self.embedding(text).unsqueeze(1)
        conved = [F.relu(conv(embedded)).squeeze(3) for conv in self.convs]
        pooled = [F.max_pool1d(conv, conv.shape[2]).squeeze(2) for conv in conved]
        cat = self.dropout(torch.cat(pooled, dim=1))
        return self.softmax(self.fc(cat))


def make_reviews(n):
    """Words 0..99 are neutral; every star has twenty words of its own."""
    stars = torch.randint(0, STARS, (n,))
    words = torch.randint(0, 100, (n, SEQ_LEN))
    loaded = 100 + stars.unsqueeze(1) * 20 + torch.randint(0, 20, (n, SEQ_LEN))
    stray = torch.randint(100, 200, (n, SEQ_LEN))
    pick = torch.rand(n, SEQ_LEN)
    words = torch.where(pick < 0.2, loaded, words)
    return torch.where(pick > 0.95, stray, words), stars


def binary(preds, y):
    return (preds.argmax(1) == y).float().mean().item()


def train(model, iterator, optimizer, criterion):
    epoch_loss, epoch_acc = 0, 0
    model.train()
    for text, label in iterator:
        optimizer.zero_grad()
        predictions = model(text)
        loss = criterion(predictions, label)
        acc = binary(predictions, label)
        loss.backward()
        optimizer.step()
        epoch_loss += loss.item()
        epoch_acc += acc
    return epoch_loss / len(iterator), epoch_acc / len(iterator)


torch.manual_seed(1234)
train_iterator = DataLoader(TensorDataset(*make_reviews(640)), batch_size=32, shuffle=True)
model = TextCNN(VOCAB, 32, 16, [2, 3, 4], STARS, 0.3)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
criterion = nn.CrossEntropyLoss()

for epoch in range(8):
    train_loss, train_acc = train(model, train_iterator, optimizer, criterion)
    print(f"Epoch: {epoch + 1:02} | Train Loss: {train_loss:.3f} | Train Acc: {train_acc * 100:.2f}%")
torch.save(model.state_dict(), "textcnn.pt")
