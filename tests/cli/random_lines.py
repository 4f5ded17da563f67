"""Random command lines: every command and option, with values that fit, are absurd, or are hostile."""

import random
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from pellucid.cli.app import command_tree
from tests.cli.container import TINY
from tests.cli.hostile import FILE_NAMES, STRINGS, TITLE


def words(text: str) -> list[str]:
    return text.split()


NUMBERS = words("0 -1 1 7 1.5 1e308 nan inf 99999999999999999999 0x10 1_0 \u0665")
WORDS = ["", " ", "a b", "[1, 2]", *words("- -- . .. = =1 [ {} * %s ~ C:\\x \u00e9 \u65e5\u672c \U0001f600")]
MODELS = words("""
    ours hf tiny.gguf words.toml run/model abcd run gpt2 smollm2 hf:org/small linked pickled mixed/model
    lora/adapter
    """)
FILES = [*FILE_NAMES, *words("""
    plain.txt latin1.txt utf16.txt binary.txt empty.txt chats.jsonl names.toml recipe.toml thesis.tex
    config.json picture.png model.safetensors arrays.npz trace.json trace.safetensors small.json curves.svg
    run lora tokens tokenizer ours hf mixed empty dangling dangling.json host loop linked fifo locked
    locked/secret.txt home nowhere run/log.jsonl run/recipe.toml run/checkpoints run/data ours/config.json
    plain.txt/x ./ours/../ours pickled sheet.md
    """)]  # fmt: skip
DEVICES = words("/dev/null /dev/zero /dev/full /etc/passwd /proc/self/mem /")
"""Read only: a bug that replaced one would break the machine that tests run on."""
NEW = [
    "new",
    "new.json",
    "new.gguf",
    "new.svg",
    "new.html",
    "new.png",
    "new.md",
    "new/a/b",
    "new/a.json",
    f"{TITLE}.json",
]
PROMPTS = ["A B", "the cat", "[1, 2]", "", "A", "\u202eA", "the " * 40, *STRINGS[:6]]
CHANGES = [f"optimizer.kind={TITLE}", "train.device=\x1b[53m", f"evaluation.prompt={TITLE}", *words("""
    steps=0 steps=-1 steps=nan out= out=run out=ours out=thesis.tex out=new out=mixed out=. out=empty
    out=dangling optimizer.lr=nan optimizer.lr=1e308 optimizer.kind=sgd model.n_head=0 model.n_head=3
    model.d_model=99999999999 model.n_layer=-1 model.positions=rope model.mask=causl data.path=chats.jsonl
    data.path= data.tokenizer=tokenizer data.tokenizer=thesis.tex data.validation=2
    data.validation=plain.txt data.batch_size=0 data.vocab_size=99999999999 train.dtype=float8
    train.only=["x"] train.ema=0.5 train.patience=1 checkpoint.every=1 checkpoint.keep=0 start=ours
    start=nowhere lora.rank=2 lora.rank=-1 x=1 model=1 train.x.y=1 = a=b=c seed=-1 seed=99999999999999999999
    schedule.kind=linear train.record_every=0 train.z_loss=1 train.clip=-1 data.split=x data.on_bad_file=skip
    train.tensorboard=true train.accumulate=99999 checkpoint.keep_best=true steps=4
    """)]  # fmt: skip
ADDRESSES = words("""
    logits probs loss blocks.0.attn.pattern blocks.0.attn.q[0,0,0,0] probs[t=1,v=2] d.logits embed.weight
    probs@1 logits[t=the] nothing blocks.0.attn.pattern[h=0] probs[t=A] logits[0,:,0]
    """)
FITTING: dict[str, list[str]] = {
    "model": MODELS,
    "a": [*MODELS, "trace.json", "small.json", "arrays.npz"],
    "b": [*MODELS, "trace.json", "small.json", "arrays.npz", "trace.safetensors"],
    "lesson": words("13 lesson-15 99 x"),
    "origin": [*MODELS, "lesson-13", "lesson-99", "review"],
    "prompt": PROMPTS,
    "prompts": PROMPTS,
    "text": PROMPTS,
    "target": ["C", "n", "the", "[1]", *STRINGS[:3]],
    "at": ADDRESSES,
    "focus": ADDRESSES,
    "stop": ["*", "logits", "blocks.*", "[", *STRINGS[:2]],
    "only": ["*", "logits", "unembed.weight", "blocks.*", "[", *STRINGS[:2]],
    "update": words("sgd momentum averaging_momentum adamw muon"),
    "file": words("sheet.md trace.json small.json new.json config.json dangling.json"),
    "folders": words(". run lora home tokens locked"),
    "runs": words("run lora run/log.jsonl ours ."),
    "folder": words("tokenizer tokens ours hf run tiny.gguf run/model"),
    "sources": ["plain.txt", "latin1.txt", "chats.jsonl", "two words.txt", ".", "-", "binary.txt"],
    "source": words("pickled pickled/pytorch_model.bin ours hf words.toml small.json run"),
    "export": NEW,
    "size": words("5MB 200kB 1GB 1B x"),
    "output": [*NEW, *NEW, *words("""
    ours hf trace.json small.json sheet.md tiny.gguf curves.svg tokenizer tokens run mixed empty thesis.tex
    model.json config.json
    """)],
    "tokenizer": words("tokenizer ours hf tokens tiny.gguf"),
    "tokenizers": words("tokenizer ours hf tokens tiny.gguf bytes abcd"),
    "texts": ["two words.txt", *words("plain.txt latin1.txt chats.jsonl . - stories:tiny stories:x")],
    "d_model": ["1", "64", "16777216"],
    "to": words("hf gguf pellucid onnx"),
    "dtype": words("float32 bfloat16 float16 float64 int8"),
    "type": words("F32 F16 Q8_0 Q4_1"),
    "quantize": words("F16 q8_0 Q4_0 Q4_1"),
    "bits": words("8 4 3 0"),
    "group": words("32 row 33 64 1048576"),
    "keep": ["*", "embed.weight", "blocks.0.*", "[", *STRINGS[:2]],
    "weights": words("file file int8"),
    "on": ["the cat sat", *words("plain.txt stories:tiny latin1.txt . nowhere.txt")],
    "tokens": ["1", "40", "100000"],
    "against": MODELS,
    "plot": words("new.svg new.png new.html curves.svg ours"),
    "temperatures": words("0.7 0.5,2 1, 0 nan x"),
    "trace": words("new.json new.json trace.json small.json ours thesis.tex"),
    "data": ["two words.txt", *words("""
    plain.txt latin1.txt chats.jsonl . - stories:tiny task:copy tokens empty.txt
    """)],
    "limit": words("1 3 200B 1kB 0 x"),
    "device": ["cpu", "cuda", "meta", "mps", *STRINGS[:2]],
    "cache": words("float32 bfloat16 int8 x"),
    "adapter": words("lora/adapter ours run"),
    "kind": words("bpe wordpiece unigram bytes characters words x"),
    "path": words("reference eager fused compiled"),
    "names": words("names.toml recipe.toml hf nanogpt"),
    "layout": words("halves pairs x"),
    "split": words("file line paragraph x"),
    "field": ["text", "messages", TITLE],
    "what": ["two words.txt", *words("""
    plain.txt recipe.toml stories task:copy chats.jsonl tokens . adapters.toml empty.txt latin1.txt nowhere
    """)],
    "changes": CHANGES,
    "resume": words("run lora ours mixed empty nowhere"),
    "name": ["rope", "attention", "adamw", "tokenizer", "ours", TITLE],
    "workers": ["1"],
    "vocab_size": ["280", "300", "16777216"],
    "max_new_tokens": ["0", "3", "40"],
    "minutes": ["0.1", "0.2"],
    "ids": ["1", "2", "300", "-1"],
    "host": words("127.0.0.1 localhost ::1 0.0.0.0 :: 127.1 192.0.2.7 *"),
    "port": ["0", "0", "0", "65536"],
    "api_key_file": words("key.txt key.txt plain.txt fifo nowhere empty.txt"),
    "allow_host": words("example.org localhost:9000 [::1] * http://example.org"),
    "slots": ["1", "8", "4096"],
    "queue": ["0", "65536"],
}  # fmt: skip
HEAVY = {
    "train": 0.05,
    "verify": 0.01,
    "inspect": 0.4,
    "data prepare": 0.3,
    "explore": 0.5,
    "quantize": 0.4,
    "serve": 0.5,
    "get": 0.4,
    "tokenizer train": 0.6,
}
"""How often a command comes that takes long; the others count 1."""

WAITING = ("chat", "learn")
"""Commands that wait for a key on a terminal."""


@dataclass(frozen=True)
class Line:
    arguments: list[str]
    stdin: bytes
    terminal: bool

    def __str__(self) -> str:
        """A line that can be pasted into a shell."""
        return " ".join(["pellucid", *map(shell_quoted, self.arguments)])


def shell_quoted(text: str) -> str:
    if text.isascii() and text.isprintable():
        return shlex.quote(text)
    data = text.encode("utf-8", "surrogateescape")
    return "$'" + "".join(chr(b) if 32 <= b < 127 and b not in b"\\'" else f"\\x{b:02x}" for b in data) + "'"


@cache
def commands() -> dict[str, list[Any]]:
    """Returns every command with its parameters."""

    def inside(command: Any, path: str) -> Iterator[tuple[str, list[Any]]]:
        for name, inner in getattr(command, "commands", {}).items():
            yield from inside(inner, f"{path} {name}".strip())
        if not hasattr(command, "commands"):
            yield path, command.params

    return dict(inside(command_tree(), ""))


def random_lines(seed: int, count: int) -> Iterator[Line]:
    names = list(commands())
    weights = [HEAVY.get(name, 1.0) for name in names]
    for number in range(count):
        draw = random.Random(f"{seed}-{number}")
        [name] = draw.choices(names, weights)
        stdin = draw.choice([b"", b"", b"the cat\n", b"\xff\xfe", TITLE.encode()])
        yield Line(_arguments(draw, name), stdin, draw.random() < 0.25 and name not in WAITING)


def _arguments(draw: random.Random, name: str) -> list[str]:
    positional, options = [], []
    for parameter in commands()[name]:
        many = parameter.nargs == -1
        if parameter.param_type_name == "argument":
            if draw.random() < (0.97 if parameter.required else 0.5):
                positional += [_value(draw, parameter) for _ in range(draw.choice([1, 1, 2]) if many else 1)]
        elif draw.random() < (0.96 if parameter.required else 0.15):
            options.append(_option(draw, parameter))
    if draw.random() < 0.03:
        options.append(
            [draw.choice(["--help", "-h", "--nothing", "--version", f"--{draw.choice(STRINGS)}", "-x"])]
        )
    if draw.random() < 0.03:
        positional.append(draw.choice([*WORDS, *STRINGS]))
    parts = [[value] for value in positional]
    parts = parts + options if draw.random() < 0.5 else options + parts
    given = [*name.split(), *(word for part in parts for word in part)]
    if name == "train" and "--resume" not in given and "--dry-run" not in given:
        own = {change.partition("=")[0] for change in given}
        given += [change for change in TINY if change.partition("=")[0] not in own]
    if name == "explore" and not any(word.startswith("--export") for word in given):
        given += ["--export", draw.choice(NEW)]  # without, it serves until it is ended
    return given


def _option(draw: random.Random, parameter: Any) -> list[str]:
    name = draw.choice(parameter.opts)
    if getattr(parameter, "is_flag", False):
        return [name]
    value = _value(draw, parameter)
    if name.startswith("--") and draw.random() < 0.15:
        return [f"{name}={value}"]
    return [name, value]


def _value(draw: random.Random, parameter: Any) -> str:
    fitting = FITTING.get(parameter.name)
    numeric = any(word in str(parameter.type) for word in ("INT", "FLOAT", "Int", "Float"))
    if draw.random() < 0.75:
        return draw.choice(fitting or NUMBERS)
    if parameter.name == "workers" and getattr(parameter.type, "max", None) is None:
        return draw.choice(["0", "-1", "x"])  # each is a process
    if numeric and draw.random() < 0.8:
        return draw.choice(NUMBERS)
    pools = [NUMBERS, WORDS, STRINGS, FILES, FILES, MODELS, PROMPTS]
    if parameter.name not in ("output", "what", "changes", "resume"):
        pools.append(DEVICES)
    return draw.choice(draw.choice(pools))
