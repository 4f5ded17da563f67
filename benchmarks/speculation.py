"""Speculative decoding: how often proposals are accepted, and what that saves.

    python -m benchmarks.speculation TARGET [DRAFT] [--prompt TEXT] [--new 200]

With a draft model, acceptance is also computed from both distributions in the contexts of texts that the
target wrote: with the shared u of `strategies/speculative.py`, the length that both intervals of a token
share, added up; by the rule of Leviathan et al. 2023 (arXiv:2211.17192), Σ min(p, q), the most that any rule
has; and with independent draws Σ p q. Speeds take turns within one run, and the best of each is printed.
"""

import argparse
import datetime
import platform
import time
from typing import Any

import torch
from torch import Tensor

from pellucid.engine.transformer import Transformer
from pellucid.generation.request import Completion, Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.model import load

TEMPERATURES, TEXTS, ROUNDS = (0.0, 0.5, 0.8, 1.0, 1.5), 4, 3


def find_intervals(p: Tensor) -> tuple[Tensor, Tensor]:
    """The interval of u in which each token is drawn [N V]: in order of rank, as `Entry` says."""
    order = p.sort(dim=-1, descending=True, stable=True)
    ends = order.values.cumsum(-1)
    starts = torch.cat((torch.zeros_like(ends[:, :1]), ends[:, :-1]), -1)
    return tuple(torch.zeros_like(p).scatter(-1, order.indices, x) for x in (starts, ends))  # type: ignore[return-value]


@torch.inference_mode()
def compare_rules(target: Transformer, draft: Transformer, texts: Tensor, start: int) -> None:
    """Prints the probability that a proposed token is accepted, averaged over the contexts of the texts."""
    logits = [model(texts)[:, start - 1 : -1].flatten(0, 1).double() for model in (target, draft)]
    print(f"{len(logits[0])} contexts      shared u    min(p, q)    independent")
    for temperature in TEMPERATURES[1:]:
        p, q = (torch.softmax(one / temperature, -1) for one in logits)
        (p_start, p_end), (q_start, q_end) = find_intervals(p), find_intervals(q)
        shared = (torch.minimum(p_end, q_end) - torch.maximum(p_start, q_start)).clamp_min(0)
        rates = [one.sum(-1).mean() for one in (shared, torch.minimum(p, q), p * q)]
        print(f"temperature {temperature:3g}   " + "    ".join(f"{100 * float(one):7.1f} %" for one in rates))


def generate(engine: Engine, prompt: tuple[int, ...], temperature: float, new: int) -> list[Completion]:
    requests = [
        Request(prompt, Sampling(temperature=temperature, seed=seed, max_new_tokens=new, stop_ids=()))
        for seed in range(TEXTS if temperature else 1)
    ]
    return [engine.add(request, streams=False).result()[0] for request in requests]


def measure(ways: dict[str, Engine], prompt: tuple[int, ...], temperature: float, new: int) -> None:
    """Prints tokens per second of each way, one text after the other, and what was accepted."""
    seconds = dict.fromkeys(ways, float("inf"))
    found: dict[str, list[Completion]] = {}
    for _ in range(ROUNDS):
        for name, engine in ways.items():
            start = time.perf_counter()
            found[name] = generate(engine, prompt, temperature, new)
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    for name, texts in found.items():
        assert [one.ids for one in texts] == [one.ids for one in found["plain"]], "a text has changed"
        steps = [step for one in texts for step in one.speculative]
        proposed, accepted = sum(len(one.proposed) for one in steps), sum(one.accepted for one in steps)
        tokens = sum(len(one.ids) for one in texts)
        note = f"{100 * accepted / proposed:5.1f} % of {proposed:,} proposals accepted" if proposed else ""
        print(
            f"temperature {temperature:3g}   {name:12}  {tokens / seconds[name]:8.1f} tokens/s  "
            f"{seconds['plain'] / seconds[name]:5.2f} ×   {note}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("target")
    parser.add_argument("draft", nargs="?")
    parser.add_argument("--prompt", default="")
    parser.add_argument("--new", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--temperatures", type=float, nargs="*", default=TEMPERATURES)
    options = parser.parse_args()
    threads = torch.get_num_threads()
    print(f"{datetime.date.today()}  {platform.machine()}, {threads} threads, torch {torch.__version__}")
    model = load(options.target)
    prompt = tuple(model.encode(options.prompt)) if options.prompt else (0,)
    settings: dict[str, Any] = {"slots": 1, "draft_tokens": options.tokens}
    ways = {"plain": Engine(model.module, slots=1), "look-up": Engine(model.module, lookup=True, **settings)}
    if options.draft:
        draft = load(options.draft).module
        ways["draft"] = Engine(model.module, draft=draft, **settings)
        texts = [[*prompt, *one.ids] for one in generate(ways["plain"], prompt, 1.0, options.new)]
        compare_rules(model.module, draft, torch.tensor(texts), len(prompt))
    for temperature in options.temperatures:
        measure(ways, prompt, temperature, options.new)


if __name__ == "__main__":
    main()
