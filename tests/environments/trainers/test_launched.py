"""`hookline run` on scripts with trainers: the model is found, each step once, and the weights are the same."""

import hookline
from tests.support.launched import Started

BEGIN = """
import hashlib, sys
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
x = torch.randn(32, 4)
"""
END = """
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest())
"""
LIGHTNING = """
import lightning as L
class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net
    def training_step(self, batch, index):
        return self.net(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), 8)
lit = Lit()
L.Trainer(max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
          enable_model_summary=False, accelerator="cpu").fit(lit, loader)
"""
TRANSFORMERS = """
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments
class Net(PreTrainedModel):
    config_class = PretrainedConfig
    def __init__(self, config):
        super().__init__(config)
        self.net = net
        self.post_init()
    def forward(self, x, labels=None):
        return {"loss": self.net(x).square().mean()}
model = Net(PretrainedConfig())
arguments = TrainingArguments("out", per_device_train_batch_size=4, max_steps=8, report_to=[], save_strategy="no",
                              disable_tqdm=True, use_cpu=True, logging_strategy="no")
Trainer(model=model, args=arguments, train_dataset=[{"x": one, "labels": 0} for one in x]).train()
"""
ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
loader = torch.utils.data.DataLoader(x, batch_size=2)
net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
for batch in loader:
    with accelerator.accumulate(net):
        accelerator.backward(net(batch).square().mean())
        optimizer.step()
        optimizer.zero_grad()
"""
FASTAI = """
from fastai.basics import DataLoaders, Learner
from fastai.callback.progress import ProgressCallback
from fastai.data.load import DataLoader
data = torch.utils.data.TensorDataset(x, x[:, :1])
learner = Learner(DataLoaders(DataLoader(data, bs=8), DataLoader(data, bs=8)), net, loss_func=nn.MSELoss())
with learner.no_bar(), learner.no_logging():
    learner.fit(2)
"""


def launched(tmp_path, script, name):
    ends = []
    for how in ("plain", "watched"):
        folder = tmp_path / how
        folder.mkdir()
        (folder / "train.py").write_text(BEGIN + script + END)
        run = ["-m", "hookline", "run", "--to", "kept"] if how == "watched" else []
        ends.append(Started([*run, "train.py"], folder).end())
    plain, watched = ends
    assert plain.code == watched.code == 0, watched.err
    assert watched.out.splitlines()[-1] == plain.out.splitlines()[-1]
    assert watched.told[0].startswith(f"{name} (")
    return hookline.open_run(watched.folder / "kept")


def updates(run, site):
    return [row["step"] for row in run.rows(site, kind="update")]


def test_lightning(tmp_path):
    run = launched(tmp_path, LIGHTNING, "lit")
    assert updates(run, "net.0.weight") == list(range(8))


def test_transformers(tmp_path):
    run = launched(tmp_path, TRANSFORMERS, "model")
    assert updates(run, "net.0.weight") == list(range(8))


def test_accelerate(tmp_path):
    run = launched(tmp_path, ACCELERATE, "net")
    assert updates(run, "0.weight") == list(range(8))


def test_fastai_whose_optimizers_are_its_own(tmp_path):
    run = launched(tmp_path, FASTAI, "net")
    assert updates(run, "0.weight") == list(range(8))
