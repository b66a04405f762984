"""The demo: what a small network is, what flows while it learns scikit-learn's digits, and a look inside."""

import shutil
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

import hookline

RUN = Path("runs") / "digits"

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
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for batch in torch.randperm(1500).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()


def accuracy() -> float:
    with torch.no_grad():
        return (model(images[test]).argmax(1) == labels[test]).float().mean().item()


print("1. What it is: hookline.summary(model, (1, 1, 8, 8))\n")
print(hookline.summary(model, (1, 1, 8, 8)))

print("\n2. What flows while it learns: with hookline.watch(model, every=10): train()\n")
shutil.rmtree(RUN, ignore_errors=True)
with hookline.watch(model, "*", every=10, to=RUN) as w:
    fit(epochs=6)
print("site  module        std of output         std of its gradient    zeros at the end")
print("                    first -> last step    first -> last step")
for name, module in model.named_children():
    out, grad = w.rows(name, kind="output"), w.rows(name, kind="grad_output")
    print(
        f"{name:<5} {type(module).__name__:<13} {out[0]['std']:8.3f} -> {out[-1]['std']:<8.3f} "
        f"{grad[0]['std']:11.2e} -> {grad[-1]['std']:<8.2e} {out[-1]['zeros'] / out[-1]['count']:12.0%}"
    )
w.plot().savefig(RUN / "overview.png", dpi=80)
with hookline.open_run(RUN) as run:
    print(f"\n{len(run.rows()):,} rows of {len(run.steps)} steps are kept in {RUN}, with a picture, overview.png")

model.eval()
right = accuracy()
print(f"trained on {len(labels[train])} digits; {right:.1%} of {len(labels[test])} unseen ones are right")

print("\n3. A look inside: with hookline.record(model, grads=True) as rec: model(x)\n")
with hookline.record(model, grads=True) as rec:
    nn.functional.cross_entropy(model(images[test]), labels[test]).backward()
print("names in order of execution:", rec.names)
print(f"1: output {tuple(rec['1'].output.shape)}, {(rec['1'].output < 0).float().mean():.0%} of it below zero")
print("   (as it was before the ReLU behind it overwrote it in place)")
weight = rec["7"].param_grads["weight"]
print(f"7: gradient of its weight {tuple(weight.shape)}, norm {weight.norm():.4f}")
print(f"audit: {rec.audit()}")

print("\n4. What if: with hookline.edit(model, {'6': hookline.skip})\n")
with hookline.edit(model, {"6": hookline.skip}):
    print(f"without its second ReLU {accuracy():.1%} are right; put back, {right:.1%}")
