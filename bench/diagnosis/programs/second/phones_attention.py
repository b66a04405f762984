"""Sequences of different lengths copied backwards: transformer encoder and decoder, padding and causal masks."""
import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, BOS, EOS, VOCAB, LONGEST, D = 0, 1, 2, 11, 7, 32


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, D, padding_idx=PAD)
        self.pos = nn.Parameter(0.3 * torch.randn(LONGEST + 2, D))
        self.core = nn.Transformer(D, 4, 1, 1, 64, dropout=0.1, batch_first=True)
        self.out = nn.Linear(D, VOCAB)

    def forward(self, src, tgt):
        t = tgt.shape[1]
        causal = torch.full((t, t), float("-inf")).triu(1)
        far = torch.zeros(src.shape).masked_fill(src == PAD, float("-inf"))
        late = torch.zeros(tgt.shape).masked_fill(tgt == PAD, float("-inf"))
        h = self.core(
            self.emb(src) + self.pos[: src.shape[1]], self.emb(tgt) + self.pos[:t], tgt_mask=causal,
            src_key_padding_mask=far, tgt_key_padding_mask=late, memory_key_padding_mask=far,
        )
        return self.out(h)


def batch(n):
    src = torch.full((n, LONGEST), PAD)
    tgt = torch.full((n, LONGEST + 2), PAD)
    for i in range(n):
        k = torch.randint(2, LONGEST + 1, ()).item()
        word = torch.randint(3, VOCAB, (k,))
        src[i, :k] = word
        tgt[i, : k + 2] = torch.cat([torch.tensor([BOS]), word.flip(0), torch.tensor([EOS])])
    return src, tgt


def main():
    torch.manual_seed(64)
    model = Seq2Seq()
    opt = torch.optim.Adam(model.parameters(), lr=4e-3, betas=(0.9, 0.98))
    loss_fn = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.02)
    for step in range(160):
        src, tgt = batch(48)
        logits = model(src, tgt[:, :-1])
        loss = loss_fn(logits.flatten(0, 1), tgt[:, 1:].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 20 == 0 or step == 159:
            print("step %d loss %.4f" % (step, loss.item()))
    torch.save(model.state_dict(), "phones.pt")


main()
