"""The demo: train a small network on scikit-learn's digits, then look into it with hookline."""

import torch
from sklearn.datasets import load_digits
from torch import nn

import hookline

torch.manual_seed(0)
torch.set_num_threads(1)

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
train, test = slice(0, 1500), slice(1500, None)

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(inplace=True),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(256, 64),
    nn.ReLU(inplace=True),
    nn.Linear(64, 10),
)


def fit(epochs: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        for batch in torch.randperm(1500).split(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()


fit(epochs=5)
model.eval()
accuracy = (model(images[test]).argmax(1) == labels[test]).float().mean().item()
print(f"trained on {len(labels[train])} digits; {accuracy:.1%} of {len(labels[test])} unseen ones are right\n")

with hookline.record(model, grads=True) as rec:
    nn.functional.cross_entropy(model(images[test]), labels[test]).backward()

print("site        module        output shape        mean     share <= 0   largest gradient")
for name in rec.names:
    out, grad = rec[name].output, rec[name].grad_output
    kind = type(model.get_submodule(name)).__name__
    print(
        f"{name or '(model)':<11} {kind:<13} {tuple(out.shape)!s:<19} {out.mean():8.4f} "
        f"{(out <= 0).float().mean():10.0%} {grad.abs().max():16.2e}"
    )

weight = rec["7"].param_grads["weight"]
print(f"\ngradient of 7.weight: shape {tuple(weight.shape)}, norm {weight.norm():.4f}")

with hookline.edit(model, {"2": hookline.skip}):
    without = (model(images[test]).argmax(1) == labels[test]).float().mean().item()
print(f"without its first ReLU (edit, skip): {without:.1%} right; put back: {accuracy:.1%}\n")

print("audit:", rec.audit())
