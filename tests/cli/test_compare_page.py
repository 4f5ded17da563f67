"""What docs/compare-your-model.md shows is what its scripts and commands give."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pellucid.formats import huggingface
from pellucid.verification.name_table import read_table
from tests.cli.commands import Shell, without_numbers
from tests.formats.gguf import random_models

PAGE = (Path(__file__).parent.parent.parent / "docs" / "compare-your-model.md").read_text("utf-8")
BLOCKS = re.findall(r"```(python|toml|text)\n(.*?)\n```", PAGE, re.DOTALL)
NANO = {
    "block_size": 32,
    "vocab_size": 272,
    "n_layer": 2,
    "n_head": 4,
    "n_embd": 32,
    "dropout": 0.0,
    "bias": True,
}
MODEL = """
from tests.cli.test_compare_page import GPT, GPTConfig
"""


class GPTConfig:
    def __init__(self, **sizes: int) -> None:
        self.__dict__ |= sizes


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.resid_dropout = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.resid_dropout(self.c_proj(mixed.transpose(1, 2).flatten(2)))
        return out


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential()
        for name, module in (
            ("c_fc", nn.Linear(width, 4 * width)), ("gelu", nn.GELU()),
            ("c_proj", nn.Linear(4 * width, width)), ("dropout", nn.Dropout(0.0)),
        ):  # fmt: skip
            self.mlp.add_module(name, module)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class GPT(nn.Module):
    """A GPT with the names of nanoGPT's modules; like it, without targets it gives the last logits alone."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        width = config.n_embd  # type: ignore[attr-defined]
        blocks = [Block(width, config.n_head) for _ in range(config.n_layer)]  # type: ignore[attr-defined]
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocab_size, width),  # type: ignore[attr-defined]
                "wpe": nn.Embedding(config.block_size, width),  # type: ignore[attr-defined]
                "drop": nn.Dropout(0.0),
                "h": nn.ModuleList(blocks),
                "ln_f": nn.LayerNorm(width),
            }
        )
        self.lm_head = nn.Linear(width, config.vocab_size, bias=False)  # type: ignore[attr-defined]
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, ids: Tensor, targets: Tensor | None = None) -> Tensor:
        parts = self.transformer
        x = parts["drop"](parts["wte"](ids) + parts["wpe"](torch.arange(ids.shape[1])))
        for block in parts["h"]:  # type: ignore[union-attr]
            x = block(x)
        x = parts["ln_f"](x)
        logits: Tensor = self.lm_head(x if targets is not None else x[:, [-1]])
        return logits


def test_the_scripts_and_commands_of_the_page_give_what_it_shows(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.llama import modeling_llama

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(modeling_llama, "repeat_kv", modeling_llama.repeat_kv)  # the page's is undone
    huggingface.write(Path("mine"), random_models.model(random_models.LLAMA), "float32")
    Path("model.py").write_text(MODEL, "utf-8")
    torch.manual_seed(0)
    torch.save({"model": GPT(GPTConfig(**NANO)).state_dict(), "model_args": NANO}, "ckpt.pt")
    compared = 0
    for kind, block in BLOCKS:
        first, _, rest = block.partition("\n")
        if kind == "text":
            done = shell(*shlex.split(first)[2:])
            message = (done.out + done.err).rstrip("\n")
            if rest.startswith("no bug seen"):  # which other mistakes could hide depends on the rounding
                assert message.startswith("no bug seen; these mistakes could hide: ")
                always = r"blocks\.\*\.attn\.q_rot would show: .*RoPE positions counted from 1"
                assert re.search(always, message) and re.search(always, rest)
                compared += 1
                continue
            assert message.partition("\n")[0] == rest.partition("\n")[0]
            if rest.startswith("noise"):  # which error is the largest depends on the rounding
                lines, wanted = (re.findall(r"^  the .*?:", text, re.MULTILINE) for text in (message, rest))
                assert lines == wanted and len(wanted) == 2
            else:
                assert without_numbers(message) == without_numbers(rest)
            compared += 1
            continue
        file = Path(first.removeprefix("# "))
        file.write_text(block, "utf-8")
        if kind == "toml":
            read_table(str(file))
        elif file.stem != "record":
            runpy.run_path(str(file))
    for name in ("record", "run", "model"):
        sys.modules.pop(name, None)
    assert compared == 7
