"""WGAN-GP: four steps of the critic for each of the generator."""
import torch
import torch.nn as nn


def net(i, o):
    act = nn.LeakyReLU(0.2)
    return nn.Sequential(nn.Linear(i, 48), act, nn.Linear(48, 48), act, nn.Linear(48, o))


def real(n):
    centre = torch.tensor([[2.0, 2.0], [2.0, 3.5], [3.5, 2.0]])
    return centre[torch.randint(0, 3, (n,))] + 0.15 * torch.randn(n, 2)


def penalty(critic, x, y):
    mix = torch.rand(len(x), 1)
    between = (mix * x + (1 - mix) * y).requires_grad_(True)
    grad, = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return ((grad.norm(dim=1) - 1) ** 2).mean()


def distance(generator):
    with torch.no_grad():
        fake, data = generator(torch.randn(600, 4)), real(600)
    return ((fake.mean(0) - data.mean(0)).norm() + (fake.std(0) - data.std(0)).norm()).item()


torch.manual_seed(36)
generator, critic = net(4, 2), net(2, 1)
opt_g = torch.optim.Adam(generator.parameters(), lr=4e-3, betas=(0.0, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=4e-3, betas=(0.0, 0.9))
print(f"start distance {distance(generator):.4f}")
for step in range(40):
    for _ in range(4):
        x = real(64)
        with torch.no_grad():
            y = generator(torch.randn(64, 4))
        loss_c = critic(y).mean() - critic(x).mean() + 5 * penalty(critic, x, y)
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()
    critic.requires_grad_(False)
    loss_g = -critic(generator(torch.randn(64, 4))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    critic.requires_grad_(True)
    if step % 8 == 7:
        print(f"step {step + 1} critic {loss_c.item():.3f} distance {distance(generator):.4f}")
torch.save({"generator": generator.state_dict(), "critic": critic.state_dict()}, "wgan.pt")
