"""Recognise the accent from a sequence of pitch features."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class PitchDataset(Dataset):
    def __init__(self, size=480, length=24):
        self.labels = torch.randint(0, 4, (size,))
        t = torch.arange(length).float()
        speed = torch.tensor([0.25, 0.4, 0.6, 0.85])[self.labels].unsqueeze(1)
        phase = 6.28 * torch.rand(size, 1)
        pitch = torch.sin(speed * t + phase) + 0.3 * torch.randn(size, length)
        energy = torch.cos(speed * t + phase) + 0.3 * torch.randn(size, length)
        self.x = torch.stack([pitch, energy], -1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        return self.x[idx], self.labels[idx]


class AccentRNN(nn.Module):
    def __init__(self, input_size, hidden_size, num_layers, num_classes):
        super().__init__()
        self.hidden_size, self.num_layers = hidden_size, num_layers
        self.lstm = nn.LSTM(input_size, hidden_size, num_layers, batch_first=True)
        self.fc = nn.Linear(hidden_size, num_classes)

    def forward(self, x):
        h0 = torch.zeros(self.num_layers, x.size(0), self.hidden_size)
        c0 = torch.zeros(self.num_layers, x.size(0), self.hidden_size)
        out, _ = self.lstm(x, (h0, c0))
        return self.fc(out.mean(1))


# Hyper-parameters
num_epochs = 10
batch_size = 32
learning_rate = 0.005

torch.manual_seed(5)
train_loader = DataLoader(PitchDataset(), batch_size=batch_size, shuffle=True)
model = AccentRNN(2, 32, 1, 4)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)

total_step = len(train_loader)
for epoch in range(num_epochs):
    running = 0.0
    for i, (features, labels) in enumerate(train_loader):
        # Forward pass
        outputs = model(features)
        loss = criterion(outputs, labels)

        # Backward and optimize
        optimizer.zero_grad
        loss.backward()
        optimizer.step()
        running += loss.item()
    print(f"Epoch [{epoch + 1}/{num_epochs}], loss: {running / total_step:.4f}")

torch.save(model.state_dict(), "model.pt")
