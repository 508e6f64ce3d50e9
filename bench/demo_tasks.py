# SPDX-License-Identifier: Apache-2.0
"""The two tasks of the demo: data, model and settings. Nothing here knows about MPI."""
import math
import re

import torch
import torch.nn as nn
import torch.nn.functional as F


class CharacterModel(nn.Module):
    """A small transformer over characters. Beside each character's embedding it has one for the last three characters,
    hashed into a table: that table learns fast and makes two thirds of the parameters, as the vocabulary's embedding
    does in a language model of words."""

    TABLE = 16384

    def __init__(self, symbols, window, width=256, layers=2, heads=4):
        super().__init__()
        self.symbols = symbols
        self.character = nn.Embedding(symbols, width)
        self.position = nn.Embedding(window, width)
        self.triple = nn.Embedding(self.TABLE, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, symbols)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, 0, 0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, x):
        before, two_before = F.pad(x, (1, 0))[:, :-1], F.pad(x, (2, 0))[:, :-2]
        triple = (x * self.symbols + before) * self.symbols + two_before
        h = self.character(x) + self.position.weight[: x.shape[1]] + self.triple(triple * 2654435761 % self.TABLE)
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, time, width = x.shape
        split = self.query_key_value(self.norm1(x)).view(batch, time, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / math.sqrt(width // self.heads)
        future = torch.ones(time, time, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(future, -1e9).softmax(-1) @ value
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, time, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class LanguageTask:
    """Next-character prediction on the King James Bible as Debian's bible-kjv prints it. The last twentieth of the text
    is for validation."""

    name = "lm"
    title = "Character language model on the King James Bible"
    steps, batch, window, rate, warm_up, clip = 144, 8, 64, 3e-3, 20, 1.0
    curve_windows, final_windows = 48, 416

    def __init__(self, text_file):
        with open(text_file, encoding="utf-8", errors="replace") as file:
            text = re.sub(r"(?m)^\S+ ", "", file.read())  # a line begins with the verse's address
        alphabet = sorted(set(text))
        code = {character: number for number, character in enumerate(alphabet)}
        data = torch.tensor([code[character] for character in text])
        cut = len(data) * 19 // 20
        self.symbols, self.training, self.validation = len(alphabet), data[:cut], data[cut:]
        self.baseline_name, self.baseline = "bigram counts", self.bigram_loss()

    def bigram_loss(self):
        counts = torch.full((self.symbols, self.symbols), 0.1)
        pairs = (self.training[:-1], self.training[1:])
        counts.index_put_(pairs, torch.ones(len(pairs[0])), accumulate=True)
        log = (counts / counts.sum(1, keepdim=True)).log()
        return -log[self.validation[:-1], self.validation[1:]].mean().item()

    def model(self):
        return CharacterModel(self.symbols, self.window)

    def optimizer(self, parameters):
        return torch.optim.Adam(parameters, lr=self.rate, betas=(0.9, 0.98))

    def shard(self, rank, size):
        """Each rank trains on a stretch of the text of its own."""
        length = len(self.training) // size
        return self.training[rank * length : (rank + 1) * length]

    def draw(self, shard, generator):
        starts = torch.randint(len(shard) - self.window, (self.batch,), generator=generator)
        rows = torch.stack([shard[start : start + self.window + 1] for start in starts])
        return rows[:, :-1], rows[:, 1:]

    def examination(self, windows):
        """Evenly spaced windows of the validation text, as (input, target) batches."""
        starts = torch.linspace(0, len(self.validation) - self.window - 1, windows).long()
        rows = torch.stack([self.validation[start : start + self.window + 1] for start in starts])
        return [(part[:, :-1], part[:, 1:]) for part in rows.split(self.batch)]


class DigitsTask:
    """Handwritten digits, 8 x 8 pixels, that scikit-learn carries; every fifth is for validation."""

    name = "digits"
    title = "Multilayer perceptron on scikit-learn's digits"
    steps, batch, rate, warm_up, clip = 240, 32, 0.05, 10, 1.0
    curve_windows = final_windows = None  # always all of them
    baseline_name, baseline = "guessing", math.log(10)

    def __init__(self, _text_file):
        from sklearn.datasets import load_digits

        digits = load_digits()
        x = torch.tensor(digits.data, dtype=torch.float32) / 16
        y = torch.tensor(digits.target)
        held_out = torch.arange(len(y)) % 5 == 4
        self.training = (x[~held_out], y[~held_out])
        self.validation = (x[held_out], y[held_out])

    def model(self):
        return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=self.rate, momentum=0.9)

    def shard(self, rank, size):
        return self.training[0][rank::size], self.training[1][rank::size]

    def draw(self, shard, generator):
        rows = torch.randint(len(shard[1]), (self.batch,), generator=generator)
        return shard[0][rows], shard[1][rows]

    def examination(self, _windows):
        return list(zip(self.validation[0].split(self.batch), self.validation[1].split(self.batch)))


TASKS = {task.name: task for task in (LanguageTask, DigitsTask)}
