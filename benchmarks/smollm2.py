"""SmolLM2 from its GGUF against `transformers` and llama.cpp on the same file; the price of an explanation.

PELLUCID_SMOLLM2=smollm2.gguf [PELLUCID_DATA=texts] python -m benchmarks.smollm2
"""

import datetime
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from pellucid.formats import gguf
from pellucid.model import load
from pellucid.verification.checks.check import TEXT
from pellucid.verification.checks.outside.llamacpp_answers import run_process

TOKENS = 256


def text() -> str:
    """A page of a book, where there is one."""
    folder = os.environ.get("PELLUCID_DATA")
    page = Path(folder) / "books-valid.txt" if folder else None
    if page and page.exists():
        with page.open(encoding="utf-8") as file:
            file.seek(20_000)
            return file.read(4_000)
    return TEXT * 6


def explain(path: str) -> tuple[float, float]:
    """Seconds and GiB of one explanation, in a process of its own."""
    at = "blocks.5.attn.pattern[h=3,t=3,s=1]"
    command = [sys.executable, "-m", "pellucid.cli", "explain", path, "The cat sat on", "--at", at]
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return time.perf_counter() - start, peak


def main() -> None:
    path = os.environ["PELLUCID_SMOLLM2"]
    print(f"{datetime.date.today()}  {platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}")
    seconds, peak = explain(path)
    print(f"explain one cell                  {seconds:.1f} s, {peak:.2f} GiB (asked ≤ 12 s, ≤ 4 GiB)")
    model = load(path)
    ids = model.encode(text())[:TOKENS]
    where = Path(path)
    theirs = AutoModelForCausalLM.from_pretrained(where.parent, gguf_file=where.name, dtype=torch.float32)
    ours = torch.log_softmax(model.logits(ids).double(), -1)
    with torch.no_grad():
        found = torch.log_softmax(theirs.eval()(torch.tensor([ids])).logits[0].double(), -1)
    apart = (ours - found).abs()
    print(
        f"log-probabilities, transformers   {apart.mean():.1e} apart on average (asked ≤ 1e-4), "
        f"{apart.max():.1e} at worst (asked ≤ 1e-2), {len(ids)} tokens"
    )
    prompt = model.encode("The history of the lighthouse begins")
    options = {"max_new_tokens": 64, "do_sample": False, "pad_token_id": 0}
    said = theirs.generate(torch.tensor([prompt]), **options)[0, len(prompt) :].tolist()
    mine = model.generate(prompt, max_new_tokens=64)
    alike = sum(a == b for a, b in zip(mine, said, strict=False))
    print(f"greedy text, transformers         {alike} of {len(said)} tokens alike (asked: all)")
    letter = model.tokenizer.encode("a")[-1:]
    with tempfile.TemporaryDirectory() as folder:
        wide = Path(folder) / "f32.gguf"
        gguf.write(wide, model.pretrained, "F32")
        for name, file in (("this file", where), ("the same in F32", wide)):
            request = {"ids": ids, "letter": letter, "texts": (), "conversations": []}
            choices = [found[0][0] for found in run_process(file, request)["predictions"]]
            alike = sum(token == int(ours[t].argmax()) for t, token in enumerate(choices))
            print(
                f"llama.cpp, {name:<15}        {alike} of {len(ids)} choices alike, {alike / len(ids):.1%} "
                "(asked ≥ 99 %)"
            )


if __name__ == "__main__":
    main()
