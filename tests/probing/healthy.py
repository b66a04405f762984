"""Healthy models of many kinds, nearly all with something that looks like a fault: name to (model, inputs)."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.probing.models import ids, numbers

HEALTHY = {}


def healthy(make):
    HEALTHY[make.__name__.removesuffix("_").replace("_", " ")] = make
    return make


class Made(nn.Module):
    """A module of parts by name, and a function of itself and its inputs for a forward."""

    def __init__(self, run, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.run = run

    def forward(self, *args):
        return self.run(self, *args)


@healthy
def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2)), numbers(4, 6)


@healthy
def batch_of_inputs_and_targets():
    return nn.Linear(6, 2), [numbers(4, 6), torch.tensor([0, 1, 0, 1])]


@healthy
def cnn_with_batchnorm_and_inplace_relu():
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 3)
    )
    return net, numbers(4, 3, 8, 8)


@healthy
def instance_and_group_norm():
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.InstanceNorm2d(4), nn.GroupNorm(2, 4), nn.GELU())
    return net, numbers(3, 3, 8, 8)


@healthy
def u_net():
    def run(self, x):
        low = self.down(F.max_pool2d(self.first(x), 2))
        return self.last(torch.cat([self.first(x), F.interpolate(low, scale_factor=2)], 1))

    parts = [nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(8, 2, 1)]
    return Made(run, first=parts[0], down=parts[1], last=parts[2]), numbers(2, 3, 8, 8)


@healthy
def lstm_with_tuple_output():
    return nn.LSTM(4, 5, batch_first=True), numbers(3, 6, 4)


@healthy
def lstm_with_time_first():
    return nn.LSTM(4, 5), numbers(6, 3, 4)


@healthy
def cells_over_time_that_comes_first():
    def run(self, x):
        hidden, out = None, []
        for step in x:
            hidden = self.cell(step, hidden)
            out.append(hidden)
        return torch.stack(out)

    return Made(run, cell=nn.GRUCell(4, 5)), numbers(6, 3, 4)


@healthy
def transformer_with_time_first():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False), numbers(
        6, 3, 8
    )


@healthy
def encoder_and_decoder():
    net = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    return Made(lambda self, src, tgt: self.net(src, tgt, tgt_mask=mask), net=net), (
        numbers(3, 7, 8),
        numbers(3, 5, 8),
    )


@healthy
def causal_transformer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(7)
    return Made(lambda self, x: self.layer(x, src_mask=mask, is_causal=True), layer=layer), numbers(3, 7, 8)


@healthy
def wavenet():
    def run(self, x):
        for conv in self.convs:
            x = x + torch.tanh(conv(F.pad(x, (conv.dilation[0], 0))))
        return x

    return Made(run, convs=nn.ModuleList([nn.Conv1d(4, 4, 2, dilation=2**n) for n in range(3)])), numbers(3, 4, 16)


@healthy
def convolution_by_fft():
    """Causal, but every number is mixed with all others on the way."""

    def run(self, x):
        n = x.shape[1]
        return torch.fft.irfft(torch.fft.rfft(x, 2 * n, 1) * torch.fft.rfft(self.kernel[:n], 2 * n, 0), 2 * n, 1)[
            :, :n
        ]

    class CausalFilter(Made):
        pass

    return CausalFilter(run, kernel=nn.Parameter(numbers(32, 4))), numbers(3, 32, 4)


@healthy
def symmetric_convolutions():
    return nn.Sequential(nn.Conv1d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv1d(8, 2, 3, padding=1)), numbers(
        3, 4, 16
    )


@healthy
def linear_attention():
    def run(self, x):
        q, k, v = F.elu(self.q(x)) + 1, F.elu(self.k(x)) + 1, self.v(x)
        state = (k.unsqueeze(-1) * v.unsqueeze(-2)).cumsum(1)
        return torch.einsum("btk,btkv->btv", q, state) / (q * k.cumsum(1)).sum(-1, keepdim=True)

    return Made(run, **{name: nn.Linear(4, 4) for name in "qkv"}), numbers(3, 8, 4)


@healthy
def mlp_mixer():
    def run(self, x):
        return x + self.time(x.transpose(1, 2)).transpose(1, 2)

    return Made(run, time=nn.Linear(6, 6)), numbers(3, 6, 4)


@healthy
def vae():
    def run(self, x):
        mean, log = self.encode(x).chunk(2, -1)
        drawn = mean + torch.randn_like(mean) * (log / 2).exp()
        return {"reconstruction": self.decode(drawn), "mean": mean, "log": log}

    return Made(run, encode=nn.Linear(6, 8), decode=nn.Linear(4, 6)), numbers(4, 6)


@healthy
def quantised_codes_with_straight_through():
    def run(self, x):
        hidden = self.encode(x)
        nearest = torch.cdist(hidden, self.codes.weight).argmin(-1)
        quantised = self.codes(nearest)
        commitment = (hidden - quantised.detach()).square().mean() + (hidden.detach() - quantised).square().mean()
        return self.decode(hidden + (quantised - hidden).detach()), commitment

    return Made(run, encode=nn.Linear(6, 4), codes=nn.Embedding(8, 4), decode=nn.Linear(4, 6)), numbers(5, 6)


@healthy
def contrastive():
    def run(self, a, b):
        one, two = F.normalize(self.left(a), dim=-1), F.normalize(self.right(b), dim=-1)
        return one @ two.T * self.scale.exp(), one, two

    parts = {"left": nn.Linear(6, 4), "right": nn.Linear(5, 4), "scale": nn.Parameter(torch.tensor(1.0))}
    return Made(run, **parts), (numbers(4, 6), numbers(4, 5))


@healthy
def loss_only():
    def run(self, x, y):
        return F.cross_entropy(self.fc(x), y)

    return Made(run, fc=nn.Linear(6, 3)), (numbers(4, 6), torch.tensor([0, 1, 2, 0]))


@healthy
def teacher_that_is_frozen():
    teacher = nn.Linear(6, 3).requires_grad_(False)
    student = nn.Linear(6, 3)

    def run(self, x):
        with torch.no_grad():
            told = self.teacher(x)
        return self.student(x), told

    return Made(run, teacher=teacher, student=student), numbers(4, 6)


@healthy
def head_that_starts_at_zero():
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    nn.init.zeros_(net[2].weight)
    return net, numbers(4, 6)


@healthy
def lora():
    def run(self, x):
        return self.base(x) + x @ self.down @ self.up

    base = nn.Linear(6, 3).requires_grad_(False)
    return Made(run, base=base, down=nn.Parameter(numbers(6, 2)), up=nn.Parameter(torch.zeros(2, 3))), numbers(
        4, 6
    )


@healthy
def experts_of_which_some_are_idle():
    def run(self, x):
        chosen = self.router(x).argmax(-1).clamp(max=1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            if (chosen == number).any():
                out[chosen == number] = expert(x[chosen == number])
        return out * self.router(x).softmax(-1).amax(-1, keepdim=True)

    experts = nn.ModuleList([nn.Linear(6, 6) for _ in range(4)])
    return Made(run, router=nn.Linear(6, 4), experts=experts), numbers(8, 6)


@healthy
def heads_used_in_turn():
    return Made(
        lambda self, x: self.heads["a"](self.body(x)),
        body=nn.Linear(6, 4),
        heads=nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 3)}),
    ), numbers(4, 6)


@healthy
def layers_left_out_at_random():
    def run(self, x):
        for layer in self.layers:
            if not self.training or torch.rand(()) > 0.5:
                x = x + layer(x)
        return x

    return Made(run, layers=nn.ModuleList([nn.Linear(6, 6) for _ in range(4)])), numbers(4, 6)


@healthy
def tied_weights():
    def run(self, x):
        return F.linear(self.embed(x), self.embed.weight)

    return Made(run, embed=nn.Embedding(20, 8)), ids()


@healthy
def parametrized():
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6))
    return nn.Sequential(layer, nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))), numbers(4, 6)


@healthy
def queue_of_negatives():
    """As MoCo has: a buffer that each forward of the training writes to."""

    def run(self, x):
        code = F.normalize(self.fc(x), dim=-1)
        scores = code @ self.queue.T
        if self.training:
            self.queue = torch.cat([code.detach(), self.queue])[:8]
        return scores

    model = Made(run, fc=nn.Linear(6, 4))
    model.register_buffer("queue", F.normalize(numbers(8, 4), dim=-1))
    return model, numbers(4, 6)


@healthy
def running_statistics_of_its_own():
    def run(self, x):
        if self.training:
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
            self.seen += 1
        return self.fc(x - self.mean)

    model = Made(run, fc=nn.Linear(6, 2))
    model.register_buffer("mean", torch.zeros(6))
    model.register_buffer("seen", torch.tensor(0))
    return model, numbers(4, 6)


@healthy
def stateful_rnn():
    """Its hidden state goes on from call to call, and is not meant to be saved."""

    def run(self, x):
        self.hidden = torch.tanh(
            self.a(x) + self.b(self.hidden if self.hidden is not None else torch.zeros(len(x), 5))
        )
        self.hidden = self.hidden.detach() if self.training else self.hidden
        return self.out(self.hidden)

    model = Made(run, a=nn.Linear(6, 5), b=nn.Linear(5, 5), out=nn.Linear(5, 2))
    model.hidden = None
    return model, numbers(4, 6)


@healthy
def table_of_sines():
    def run(self, x):
        return self.embed(x) + self.table[: x.shape[1]]

    model = Made(run, embed=nn.Embedding(20, 8))
    times = torch.arange(32.0)[:, None] / 100 ** torch.arange(0, 1, 0.125)[None]
    model.register_buffer("table", torch.sin(times), persistent=False)
    return model, ids()


@healthy
def graph_network():
    def run(self, x, edge_index):
        summed = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        return self.fc(x + summed)

    edges = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
    return Made(run, fc=nn.Linear(6, 3)), (numbers(5, 6), edges)


@healthy
def list_of_images():
    def run(self, images):
        return [self.conv(image.unsqueeze(0)).mean((2, 3)) for image in images]

    return Made(run, conv=nn.Conv2d(3, 4, 3)), [numbers(3, 8, 8), numbers(3, 6, 9)]


@healthy
def numbers_and_ids():
    def run(self, dense, sparse):
        return self.top(torch.cat([self.bottom(dense), self.table(sparse).flatten(1)], 1))

    parts = {"bottom": nn.Linear(6, 4), "table": nn.Embedding(20, 4), "top": nn.Linear(16, 1)}
    return Made(run, **parts), (numbers(4, 6), ids(4, 3))


@healthy
def output_that_is_a_generator():
    return Made(lambda self, x: (self.fc(row) for row in x), fc=nn.Linear(6, 2)), numbers(4, 6)


@healthy
def output_that_is_a_distribution():
    return Made(lambda self, x: torch.distributions.Categorical(logits=self.fc(x)), fc=nn.Linear(6, 2)), numbers(
        4, 6
    )


@healthy
def output_that_is_whole_numbers():
    return Made(lambda self, x: self.fc(x).argmax(-1), fc=nn.Linear(6, 2)), numbers(4, 6)


@healthy
def writes_to_its_input():
    return Made(lambda self, x: self.fc(x.mul_(2).relu_()), fc=nn.Linear(6, 2)), numbers(4, 6)


@healthy
def one_sample_in_training_is_too_few():
    net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    return net, numbers(1, 6)


def _refuses_one(self, x):
    if len(x) < 2:
        raise ValueError("expected at least two samples")
    return self.fc(x)


@healthy
def refuses_one_sample():
    return Made(_refuses_one, fc=nn.Linear(6, 2)), numbers(2, 6)


@healthy
def sequence_of_another_length():
    net = nn.Sequential(nn.Conv1d(4, 8, 4, stride=2), nn.ReLU(), nn.ConvTranspose1d(8, 2, 3))
    return net, numbers(3, 4, 16)


@healthy
def bfloat16():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return Made(lambda self, x: self.layer(x), layer=layer).bfloat16(), numbers(3, 6, 8).bfloat16()


@healthy
def float16():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).half(), numbers(4, 6).half()


@healthy
def float64_and_complex():
    return Made(
        lambda self, x: torch.view_as_complex(self.fc(x).unflatten(-1, (2, 2))), fc=nn.Linear(6, 4)
    ).double(), (numbers(4, 6).double())


@healthy
def compiled():
    return torch.compile(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)), backend="eager"), numbers(
        4, 6
    )


@healthy
def compiled_in_place():
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    net.compile(backend="eager")
    return net, numbers(4, 6)


@healthy
def scripted():
    return torch.jit.trace(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)), numbers(4, 6)), numbers(
        4, 6
    )


@healthy
def hidden_state_of_a_gru_with_lengths():
    def run(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.fc(self.rnn(packed)[1][-1])

    return Made(run, rnn=nn.GRU(4, 5, batch_first=True), fc=nn.Linear(5, 2)), (
        numbers(3, 6, 4),
        torch.tensor([6, 4, 2]),
    )


@healthy
def padding_mask_of_torch():
    def run(self, x, src_key_padding_mask):
        return self.layer(x, src_key_padding_mask=src_key_padding_mask)

    class Padded(Made):
        def forward(self, x, src_key_padding_mask):
            return run(self, x, src_key_padding_mask)

    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    mask = torch.zeros(3, 7, dtype=torch.bool)
    mask[0, 5:] = True
    return Padded(run, layer=layer), {"x": numbers(3, 7, 8), "src_key_padding_mask": mask}


@healthy
def backward_inside():
    """A forward that follows a gradient, as energy models do."""

    def run(self, x):
        with torch.enable_grad():
            point = x.detach().requires_grad_()
            energy = self.energy(point).sum()
            (slope,) = torch.autograd.grad(energy, point, create_graph=True)
        return x - slope

    return Made(run, energy=nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))), numbers(4, 6)
