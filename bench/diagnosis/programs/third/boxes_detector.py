"""Single-object detector: where is the object and what is it? Mixed precision, gradient clipping."""
import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS, BATCH, SIDE = 120, 32, 20


class Detector(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        )
        self.neck = nn.Linear(32 * 25, 64)
        self.cls_head = nn.Linear(64, classes)
        self.box_head = nn.Linear(64, 4)

    def forward(self, x):
        h = F.relu(self.neck(self.backbone(x).flatten(1)))
        return self.cls_head(h), self.box_head(h).sigmoid()


def batch(n):
    x = 0.1 * torch.randn(n, 1, SIDE, SIDE)
    label = torch.randint(0, 3, (n,))
    boxes = torch.zeros(n, 4)
    for i in range(n):
        w, h = torch.randint(5, 10, (2,)).tolist()
        left, top = int(torch.randint(0, SIDE - w, (1,))), int(torch.randint(0, SIDE - h, (1,)))
        patch = torch.ones(h, w)
        if label[i] == 1:
            patch[1:-1, 1:-1] = 0
        elif label[i] == 2:
            patch[::2] = 0
        x[i, 0, top:top + h, left:left + w] += patch
        boxes[i] = torch.tensor([left + w / 2, top + h / 2, w, h]) / SIDE
    return x, label, boxes


class DetectionLoss(nn.Module):
    def __init__(self, box_weight=5.0):
        super().__init__()
        self.box_weight = box_weight

    def forward(self, logits, boxes, label, target):
        return F.cross_entropy(logits, label) + self.box_weight * F.l1_loss(boxes, target)


def main():
    torch.manual_seed(14)
    model = Detector()
    criterion = DetectionLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler("cpu")
    for step in range(STEPS):
        x, label, target = batch(BATCH)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits, boxes = model(x)
        loss = criterion(logits.float(), boxes.float(), label, target)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=2.0)
        scaler.step(optimizer)
        scaler.update()
        if step % 20 == 0 or step == STEPS - 1:
            print(f"iter {step} loss {loss.item():.4f}")
    torch.save(model.state_dict(), "detector.pt")


if __name__ == "__main__":
    main()
