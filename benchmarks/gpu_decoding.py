"""Decoding on a GPU: the fused step beside its peers and the limit of its bandwidth, in one run.

    python -m benchmarks.gpu_decoding [--only speed|peers|engine|prompts|proof] [--weights KIND]

speed    tokens a second of the loop that the engine runs, for three shapes, with int8 weights, in batches and
         after a long context; each with the fraction of the bandwidth that its weights and keys take
peers    a plain transformer with a static cache, compiled with CUDA graphs as gpt-fast does it, and
         `transformers` with a static cache, on the same shapes
engine   whole requests through `Engine`, greedy and drawn
prompts  the time until prompts are read, by the fused step and by the module
proof    the argmax of 10,000 tokens of random models, with every choice that the kernels have, beside the
         module's; with --weights, for weights of one kind

Weights are random: the speed is the same.
"""

import argparse
import datetime
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.base.quantized import QuantizedWeight, Scheme, quantize
from pellucid.config import ModelConfig
from pellucid.engine.cache import Cache
from pellucid.engine.gpu.decoder import GpuDecoder
from pellucid.engine.gpu.loop import LoopText
from pellucid.engine.transformer import Transformer
from pellucid.generation.request import Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.slots import CHUNK, CacheSlots, Feed

GPT2 = {
    "vocab_size": 50257,
    "context_length": 1024,
    "n_layer": 12,
    "n_head": 12,
    "d_model": 768,
    "norm": "layer_norm",
    "positions": "learned",
    "mlp": "gelu_tanh",
    "biases": ["qkv", "output", "mlp", "norm"],
}
SMOLLM2 = {
    "vocab_size": 49152,
    "context_length": 8192,
    "n_layer": 30,
    "n_head": 9,
    "n_kv_head": 3,
    "d_model": 576,
    "d_ff": 1536,
}
LLAMA = {
    "vocab_size": 128256,
    "context_length": 16384,
    "n_layer": 16,
    "n_head": 32,
    "n_kv_head": 8,
    "d_model": 2048,
    "d_ff": 8192,
}
SHAPES: dict[str, dict[str, Any]] = {"124M": GPT2, "SmolLM2": SMOLLM2, "1B": LLAMA}
ASKED = {"124M": 3700, "SmolLM2": 1850, "1B": 1180}
"""Tokens a second of one text in bfloat16."""
NEW, ROUNDS = 256, 3
DEVICE = torch.device("cuda")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--weights", choices=WEIGHTS)
    given = parser.parse_args()
    only = "proof" if given.weights else given.only
    bandwidth = measure_bandwidth()
    print(f"{datetime.date.today()}, {torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"a copy on the device reads and writes {bandwidth / 1e12:.2f} TB/s", flush=True)
    for name, part in PARTS.items():
        if only in (None, name):
            prove(given.weights) if name == "proof" else part(bandwidth)


def measure_bandwidth() -> float:
    """Returns the bytes a second that a large copy reads and writes."""
    source = torch.empty(2**31, dtype=torch.int8, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * source.numel() / min(time_on_device(lambda: target.copy_(source)) for _ in range(5))


def time_on_device(act: Callable[[], object]) -> float:
    """Returns the seconds until the device has done what `act` asks of it."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    act()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def make_module(
    shape: dict[str, Any],
    dtype: torch.dtype = torch.bfloat16,
    scheme: Scheme | None = None,
    std: float = 0.02,
) -> Transformer:
    """Returns a model of random weights; quantized, where a scheme says how."""
    config = ModelConfig(**shape)
    torch.manual_seed(0)
    weights: dict[str, Any] = {}
    for name, size in config.parameters().items():
        is_matrix = len(size) == 2 and not name.startswith("position")
        drawn = torch.randn(size, device=DEVICE) * std + (0.0 if len(size) > 1 else 1.0)
        if scheme is None or not is_matrix:
            weights[name] = drawn.cpu().numpy()
        elif scheme.group is None:
            integers = (drawn / drawn.abs().max() * 127).round().to(torch.int8).cpu().numpy()
            scales = np.full((size[0], 1), std / 40, np.float16)
            weights[name] = QuantizedWeight(integers, scales, None, size[1], 8)
        else:
            weights[name] = quantize(drawn.cpu().numpy(), scheme)
    return Transformer.from_weights(config, weights, DEVICE, dtype)


# ---- speed


class Texts:
    """Texts of one length that a decoder goes on with, each from random keys."""

    def __init__(self, module: Transformer, count: int, length: int, new: int = NEW) -> None:
        self.decoder, self.new, self.length = GpuDecoder(module, count), new, length
        capacity = min(length + new + 1, module.config.context_length)
        self.cache = Cache(module.config, count, capacity, dtype=module.cache_dtype, device=DEVICE)
        for buffer in (buffer for layer in self.cache.layers for buffer in layer.buffers):
            buffer.normal_()
        self.rows = [self.cache.row(row) for row in range(count)]

    def run(self, ahead: int = 6) -> None:
        """Decodes, a few steps ahead of reading them, as the engine does."""
        self.cache.set_lengths([self.length] * len(self.rows))
        loop = self.decoder.begin_loop([LoopText(row, 5, self.new) for row in self.rows])
        while loop.can_launch or loop.n_ahead:
            while loop.can_launch and loop.n_ahead < ahead:
                loop.launch()
            loop.take()

    def measure(self) -> float:
        """Returns the least seconds of a step."""
        self.run()
        return min(time_on_device(self.run) for _ in range(ROUNDS)) / self.new


def count_bytes(module: Transformer, count: int, length: float) -> float:
    """Returns the bytes that a step reads: every matrix once, and the keys and values of all texts."""
    held = dict(module.named_parameters())
    weights = sum(part.nbytes for name, part in held.items() if not name.startswith("position"))
    quantized = module.quantized_weights().values()
    weights += sum(part.integers.nbytes + part.scales.nbytes for part in quantized)
    c = module.config
    if not c.unembedding.weight.startswith("embed."):
        weights -= held["embed.weight"].nbytes  # of which one row is read
    keys = 2 * c.n_layer * c.n_kv_head * c.d_head * module.dtype.itemsize
    return float(weights + count * length * keys)


def report(name: str, module: Transformer, bandwidth: float, count: int, length: int, asked: str) -> float:
    texts = Texts(module, count, length)
    seconds = texts.measure()
    share = count_bytes(module, count, length + texts.new / 2) / seconds / bandwidth
    print(
        f"  {name:32} {count / seconds:9,.0f} tok/s  {seconds * 1e6:7,.0f} µs a step  "
        f"{share:4.0%} of the bandwidth  (asked {asked})",
        flush=True,
    )
    return count / seconds


def measure_speed(bandwidth: float) -> None:
    """Prints the speed of the loop on the device, whose tokens the host reads behind it."""
    print("the fused step, greedy, 256 tokens of each text:")
    for name, shape in SHAPES.items():
        module = make_module(shape)
        short = report(f"{name}, bfloat16", module, bandwidth, 1, 0, f"{ASKED[name]:,}")
        if name == "124M":
            for count in (2, 8):
                report(f"{name}, bfloat16, batch {count}", module, bandwidth, count, 0, "-")
            report(f"{name}, bfloat16, batch 32", module, bandwidth, 32, 0, "45,000")
            report(f"{name}, bfloat16, batch 256 × 512", module, bandwidth, 256, 384, "50 %")
        if name == "1B":
            long = report(f"{name}, bfloat16, after 8,192", module, bandwidth, 1, 8192 - NEW // 2, "0.8 ×")
            print(f"    {long / short:.2f} × its speed after short texts")
            del module
            quantized = make_module(shape, scheme=Scheme(8))
            report(f"{name}, int8 weights", quantized, bandwidth, 1, 0, "1,800")


# ---- peers


class PeerBlock(nn.Module):
    """A block of Llama as gpt-fast writes it: one matrix for Q, K and V, a static cache, SDPA."""

    def __init__(self, c: ModelConfig, capacity: int) -> None:
        super().__init__()
        self.heads, self.kv, self.size = c.n_head, c.n_kv_head, c.d_head
        self.is_gated = c.mlp.form == "gated"
        self.qkv = nn.Linear(c.d_model, (c.n_head + 2 * c.n_kv_head) * c.d_head, bias=False)
        self.output = nn.Linear(c.n_head * c.d_head, c.d_model, bias=False)
        self.up = nn.Linear(c.d_model, c.d_ff, bias=False)
        self.gate = nn.Linear(c.d_model, c.d_ff, bias=False) if self.is_gated else None
        self.down = nn.Linear(c.d_ff, c.d_model, bias=False)
        self.first, self.second = nn.RMSNorm(c.d_model), nn.RMSNorm(c.d_model)
        shape = (1, c.n_kv_head, capacity, c.d_head)
        self.register_buffer("keys", torch.zeros(shape))
        self.register_buffer("values", torch.zeros(shape))

    keys: Tensor
    values: Tensor

    def forward(self, x: Tensor, position: Tensor, mask: Tensor, angles: Tensor) -> Tensor:
        widths = [self.heads * self.size, self.kv * self.size, self.kv * self.size]
        parts = self.qkv(self.first(x)).split(widths, -1)
        q, k, v = (part.view(1, 1, -1, self.size).transpose(1, 2) for part in parts)
        q, k = turn(q, angles), turn(k, angles)
        self.keys[:, :, position], self.values[:, :, position] = k, v
        z = F.scaled_dot_product_attention(q, self.keys, self.values, mask, enable_gqa=self.heads > self.kv)
        x = x + self.output(z.transpose(1, 2).reshape(1, 1, -1))
        y = self.second(x)
        hidden = (
            F.gelu(self.up(y), approximate="tanh") if self.gate is None else F.silu(self.gate(y)) * self.up(y)
        )
        out: Tensor = self.down(hidden)
        return x + out


def turn(x: Tensor, angles: Tensor) -> Tensor:
    """RoPE on pairs of neighboring channels."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * angles).flatten(-2).to(x.dtype)


class PeerDecoder(nn.Module):
    """A plain decoder with a static cache; a step draws the next token without a sync."""

    def __init__(self, c: ModelConfig, capacity: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(c.vocab_size, c.d_model)
        self.blocks = nn.ModuleList(PeerBlock(c, capacity) for _ in range(c.n_layer))
        self.norm, self.head = nn.RMSNorm(c.d_model), nn.Linear(c.d_model, c.vocab_size, bias=False)
        frequencies = 10_000 ** -(torch.arange(0, c.d_head, 2) / c.d_head)
        turns = torch.arange(capacity)[:, None] * frequencies
        self.register_buffer("angles", torch.polar(torch.ones_like(turns), turns))
        self.register_buffer("causal", torch.tril(torch.ones(capacity, capacity, dtype=torch.bool)))

    angles: Tensor
    causal: Tensor

    def forward(self, token: Tensor, position: Tensor) -> Tensor:
        x, mask, angles = self.embed(token), self.causal[None, None, position], self.angles[position]
        for block in self.blocks:
            x = block(x, position, mask, angles)
        logits: Tensor = self.head(self.norm(x))
        return logits.argmax(-1)


def measure_compiled(shape: dict[str, Any]) -> float:
    """Returns the tokens a second of the plain decoder, compiled with CUDA graphs."""
    torch._dynamo.reset()
    model = PeerDecoder(ModelConfig(**shape), NEW + 8).to(DEVICE)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding | nn.RMSNorm | PeerBlock):
            module.to(torch.bfloat16)
    step = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    positions = torch.arange(NEW + 8, device=DEVICE)

    @torch.inference_mode()
    def run() -> None:
        token = torch.zeros(1, 1, dtype=torch.int64, device=DEVICE)
        for at in range(NEW):
            token = step(token, positions[at : at + 1]).clone()

    run()
    return NEW / min(time_on_device(run) for _ in range(ROUNDS))


def measure_transformers(count: int) -> float:
    """Returns the tokens a second of GPT-2 124M in `transformers`, with a compiled static cache."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch._dynamo.reset()
    model = GPT2LMHeadModel(GPT2Config()).to(DEVICE, torch.bfloat16).eval()
    model.generation_config.pad_token_id = 0
    ids = torch.randint(5, 50_000, (count, 4), device=DEVICE)
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}

    def run() -> None:
        model.generate(ids, **options, cache_implementation="static")

    run()
    return NEW * count / min(time_on_device(run) for _ in range(ROUNDS))


def measure_peers(bandwidth: float) -> None:
    """Prints what peers reach on the same shapes."""
    print("peers, greedy, 256 tokens:")
    for name, shape in SHAPES.items():
        print(f"  {name}, compiled as gpt-fast does it {measure_compiled(shape):17,.0f} tok/s", flush=True)
    for count in (1, 32):
        print(f"  124M, transformers, batch {count:2} {measure_transformers(count):24,.0f} tok/s", flush=True)


# ---- whole requests


def measure_engine(bandwidth: float) -> None:
    """Prints the speed of whole requests, without a tokenizer."""
    print("whole requests through the engine, 256 new tokens:")
    drawn = Sampling(max_new_tokens=NEW, temperature=0.8, top_k=200, seed=0)
    for name, shape in SHAPES.items():
        module = make_module(shape)
        for count in (1, 32) if name == "124M" else (1,):
            engine = Engine(GpuDecoder(module), slots=count, capacity=512)
            for kind, sampling in (
                ("greedy", Sampling(max_new_tokens=NEW, temperature=0.0)),
                ("drawn", drawn),
            ):
                requests = [Request((7, 8, place + 1), sampling) for place in range(count)]

                def run(engine: Engine = engine, requests: list[Request] = requests) -> None:
                    for handle in [engine.add(request, streams=False) for request in requests]:
                        handle.result()

                run()
                speed = NEW * count / min(time_on_device(run) for _ in range(ROUNDS))
                print(f"  {name}, batch {count:2}, {kind:6} {speed:9,.0f} tok/s", flush=True)


# ---- prompts

PROMPTS = {"one of 4 tokens": (1, 4), "32 of 4 tokens": (32, 4), "one of 512": (1, 512), "8 of 512": (8, 512)}
"""How many prompts are read together, and their tokens."""


@torch.inference_mode()
def measure_prompts(bandwidth: float) -> None:
    """Prints how long prompts take that are read together, as the engine reads them."""
    print("prompts, bfloat16, until their logits are there:")
    for name, shape in SHAPES.items():
        module = make_module(shape)
        decoder = GpuDecoder(module)
        for what, (count, length) in PROMPTS.items():
            seconds = [time_prompts(model, count, length) for model in (decoder, module)]
            rate = count * length / seconds[0]
            print(
                f"  {name}, {what:16} {seconds[0] * 1e3:7.2f} ms, {rate:9,.0f} tok/s; by the module "
                f"{seconds[1] * 1e3:7.2f} ms, {seconds[1] / seconds[0]:.1f} ×",
                flush=True,
            )


def time_prompts(model: GpuDecoder | Transformer, count: int, length: int) -> float:
    """Returns the least seconds in which a model reads prompts of one length."""
    slots = CacheSlots(model, count, length, model.cache_dtype, is_static=False)
    ids = np.random.default_rng(0).integers(5, 40_000, (count, length)).tolist()

    def run() -> None:
        for slot in range(count):
            slots.reset(slot)
        row_feeds = [
            Feed(slot, tuple(tuple(row[at : at + CHUNK]) for at in range(0, length, CHUNK)), 1)
            for slot, row in enumerate(ids)
        ]
        slots.forward(row_feeds).argmax(-1).tolist()

    run()
    return min(time_on_device(run) for _ in range(ROUNDS))


# ---- proof

SMALL = {
    "vocab_size": 1000,
    "context_length": 320,
    "n_layer": 3,
    "n_head": 4,
    "n_kv_head": 2,
    "d_model": 128,
    "d_head": 32,
    "d_ff": 320,
}
CHOICES: tuple[dict[str, Any], ...] = (
    {},
    {"n_kv_head": 4},
    {"n_kv_head": 1},
    {"norm": "layer_norm", "positions": "learned", "mlp": "gelu_tanh", "biases": GPT2["biases"]},
    {"positions": {"kind": "rope", "layout": "pairs"}},
    {"positions": "alibi", "norm": "layer_norm", "embed_norm": "layer_norm", "mlp": "gelu"},
    {"mask": {"kind": "window", "size": 20}},
    {"score_cap": {"kind": "tanh", "limit": 5.0}, "logit_cap": {"kind": "tanh", "limit": 8.0}},
    {"qk_norm": "rms_norm"},
    {"qk_norm": "layer_norm", "biases": ["norm"]},
    {"unembedding": "linear", "biases": ["unembed", "qkv"]},
    {"mlp": "relu_squared"},
    {"mlp": "geglu"},
)


def decode_both(
    decoder: GpuDecoder, truth: Transformer, count: int, length: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields the logits of a step and those of the module for the same texts, as the step continues them."""
    config, dtype = truth.config, decoder.cache_dtype
    caches = [Cache(config, count, length + 9, dtype=dtype, device=DEVICE) for _ in range(2)]
    ids = torch.randint(0, config.vocab_size, (count, length), device=DEVICE)
    for cache in caches:
        truth.forward_cached(ids, cache)
    rows = [caches[0].row(row) for row in range(count)]
    tokens = ids[:, -1]
    for _ in range(8):
        own = decoder.forward_packed(
            [(row, [id]) for row, id in zip(rows, tokens.tolist(), strict=True)], range(count)
        )
        yield own.float(), truth.forward_cached(tokens[:, None], caches[1])[:, 0]
        tokens = own.argmax(-1)


WEIGHTS: dict[str, tuple[torch.dtype, Scheme | None]] = {
    "float32": (torch.float32, None),
    "bfloat16": (torch.bfloat16, None),
    "int8": (torch.bfloat16, Scheme(8)),
    "int8-groups": (torch.bfloat16, Scheme(8, 32)),
    "int4": (torch.bfloat16, Scheme(4, 32)),
}


@torch.inference_mode()
def prove(only: str | None = None) -> None:
    """Prints how many tokens of random models have the module's argmax, and the largest difference."""
    print("the argmax of random models beside the module's in float32, the same weights and cache:")
    for kind, (dtype, scheme) in WEIGHTS.items():
        if only not in (None, kind):
            continue
        same = total = 0
        worst = 0.0
        for choices in CHOICES:
            module = make_module(SMALL | choices, dtype, scheme, std=0.08)
            truth = Transformer.from_weights(module.config, module.weights(), DEVICE, torch.float32)
            decoder = GpuDecoder(module)
            for count, length in ((1, 10), (3, 30), (32, 50), (60, 290)):
                for own, wanted in decode_both(decoder, truth, count, length):
                    same += int((own.argmax(-1) == wanted.argmax(-1)).sum())
                    total += count
                    worst = max(worst, float((own - wanted).abs().max() / wanted.std()))
        print(
            f"  {kind:12} {same:,} of {total:,} ({same / total:.2%}); the largest difference of a logit is "
            f"{worst:.1e} of their standard deviation",
            flush=True,
        )


PARTS: dict[str, Callable[[float], None]] = {
    "proof": lambda bandwidth: prove(),
    "speed": measure_speed,
    "engine": measure_engine,
    "prompts": measure_prompts,
    "peers": measure_peers,
}

if __name__ == "__main__":
    main()
