"""Show and tell in miniature: a CNN reads the picture, an LSTM says what is on it."""
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, Dataset

WORDS = ["<pad>", "<start>", "<end>", "a", "red", "green", "blue", "square", "cross", "ring", "left", "right", "up"]
ID = {w: i for i, w in enumerate(WORDS)}


class Scenes(Dataset):
    def __init__(self, n, side=16, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.images, self.captions = [], []
        for _ in range(n):
            colour, shape, place = torch.randint(3, (3,), generator=g).tolist()
            img = 0.4 * torch.randn(3, side, side, generator=g)
            r, c = [(8, 1), (8, 9), (1, 5)][place]
            r += int(torch.randint(0, 2, (1,), generator=g))
            patch = torch.zeros(6, 6)
            if shape == 0:
                patch[:] = 1
            elif shape == 1:
                patch[2:4, :] = 1
                patch[:, 2:4] = 1
            else:
                patch[0], patch[-1], patch[:, 0], patch[:, -1] = 1, 1, 1, 1
            img[colour, r:r + 6, c:c + 6] += 1.5 * patch
            words = ["<start>", "a", WORDS[4 + colour], WORDS[7 + shape], WORDS[10 + place], "<end>"]
            if place == 2:
                words.remove("a")
            self.images.append(img)
            self.captions.append(torch.tensor([ID[w] for w in words]))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.captions[i]


def collate(batch):
    batch.sort(key=lambda b: len(b[1]), reverse=True)
    images, captions = zip(*batch)
    lengths = [len(c) for c in captions]
    targets = torch.zeros(len(captions), max(lengths)).long()
    for i, c in enumerate(captions):
        targets[i, :len(c)] = c
    return torch.stack(images), targets, lengths


class EncoderCNN(nn.Module):
    def __init__(self, embed_size):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(2),
        )
        self.linear = nn.Linear(96, embed_size)
        self.bn = nn.BatchNorm1d(embed_size)

    def forward(self, images):
        """Extract feature vectors from input images."""
        with torch.no_grad():
            features = self.cnn(images)
        features = features.reshape(features.size(0), -1)
        return self.bn(self.linear(features))


class DecoderRNN(nn.Module):
    def __init__(self, embed_size, hidden_size, vocab_size):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, embed_size)
        self.lstm = nn.LSTM(embed_size, hidden_size, batch_first=True)
        self.linear = nn.Linear(hidden_size, vocab_size)

    def forward(self, features, captions, lengths):
        embeddings = torch.cat((features.unsqueeze(1), self.embed(captions)), 1)
        packed = pack_padded_sequence(embeddings, lengths, batch_first=True)
        hiddens, _ = self.lstm(packed)
        return self.linear(hiddens[0])


def main():
    torch.manual_seed(0)
    loader = DataLoader(Scenes(480), batch_size=32, shuffle=True, collate_fn=collate)
    val_loader = DataLoader(Scenes(128, seed=1), batch_size=128, collate_fn=collate)
    encoder = EncoderCNN(24)
    decoder = DecoderRNN(24, 32, len(WORDS))
    criterion = nn.CrossEntropyLoss()
    params = list(decoder.parameters()) + list(encoder.parameters())
    optimizer = torch.optim.Adam(params, lr=1e-2)

    for epoch in range(24):
        encoder.train()
        decoder.train()
        total = 0.0
        for images, captions, lengths in loader:
            targets = pack_padded_sequence(captions, lengths, batch_first=True)[0]
            features = encoder(images)
            outputs = decoder(features, captions, lengths)
            loss = criterion(outputs, targets)
            decoder.zero_grad()
            encoder.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        encoder.eval()
        decoder.eval()
        with torch.no_grad():
            images, captions, lengths = next(iter(val_loader))
            targets = pack_padded_sequence(captions, lengths, batch_first=True)[0]
            val = criterion(decoder(encoder(images), captions, lengths), targets)
        print(f"Epoch [{epoch + 1}/24], loss: {total / len(loader):.4f}, val: {val.item():.4f}")
    torch.save(encoder.state_dict(), "encoder.pt")
    torch.save(decoder.state_dict(), "decoder.pt")


if __name__ == "__main__":
    main()
