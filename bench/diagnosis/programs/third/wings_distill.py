"""Knowledge distillation: the teacher is trained first, then only read; hard and soft targets."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def net(widths, dropout):
    layers = []
    for a, b in zip(widths[:-2], widths[1:-1]):
        layers += [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))


def wings(n, centres):
    y = torch.randint(0, len(centres), (n,))
    return centres[y] + 0.9 * torch.randn(n, centres.shape[1]), y


def distillation_loss(student_logits, teacher_logits, labels, T, alpha):
    soft = F.kl_div(F.log_softmax(student_logits / T, 1), F.softmax(teacher_logits / T, 1), reduction="batchmean")
    hard = F.cross_entropy(student_logits, labels)
    return alpha * soft * T * T + (1 - alpha) * hard


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--temperature", type=float, default=4.0)
    parser.add_argument("--alpha", type=float, default=0.7)
    args = parser.parse_args()
    torch.manual_seed(61)
    centres = torch.randn(8, 12)

    teacher = net([12, 96, 96, 8], 0.5)
    opt = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    for _ in range(120):
        x, y = wings(64, centres)
        loss = F.cross_entropy(teacher(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()

    teacher.eval()
    for p in teacher.parameters():
        p.requires_grad = False
    student = net([12, 16, 8], 0.0)
    opt = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.05, total_steps=150)
    for step in range(150):
        x, y = wings(64, centres)
        with torch.no_grad():
            wanted = teacher(x)
        loss = distillation_loss(student(x), wanted, y, args.temperature, args.alpha)
        opt.zero_grad()
        loss.backward()
        opt.step()
        scheduler.step()
        if step % 25 == 0 or step == 149:
            print(f"student step {step} loss {loss.item():.4f}")
    torch.save(student.state_dict(), "student.pt")


if __name__ == "__main__":
    main()
