"""A folder with one of everything that a command may meet: outputs of every command, texts good and bad, and
files of strangers that no command may touch; and what tells whether any of it has changed.
"""

import atexit
import hashlib
import json
import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from pellucid.formats import gguf, huggingface, model_folder
from pellucid.training.recipe.toml import format_toml, parse_value
from pellucid.verification.checks.check import Check
from tests.cli.fork_server import Done, fork_server
from tests.cli.hostile import FILE_NAMES
from tests.formats.gguf import random_models

TEXT = "the cat sat in the inn. then the cat ate the hen.\n"
TINY = """
steps=3 model.n_layer=1 model.n_head=2 model.d_model=8 model.d_ff=8 model.context_length=8 data.batch_size=2
data.tokenizer=bytes data.validation=0.2 evaluation.every=2 evaluation.batches=1 evaluation.sample=4
checkpoint.every=2 train.record_every=1 train.compile=false
""".split()  # noqa: SIM905
"""A run of seconds."""
TINY_ADAPTERS = [
    "model.context_length=8",
    *(c for c in TINY if not c.startswith(("model.", "data.tokenizer"))),
]
ENVIRONMENT = {
    "PELLUCID_HOME": "home",
    "HOME": "home",
    "XDG_CACHE_HOME": "",
    "PATH": "/nowhere",  # no compiler: what it would compile takes minutes
    "HF_HUB_OFFLINE": "1",
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_RETRIES": "0",
    "PIP_CONFIG_FILE": os.devnull,
    "COLUMNS": "100",
    "MPLCONFIGDIR": tempfile.gettempdir(),
}
"""A home inside the container, and a package index that does not answer."""


def run(arguments: list[str], folder: Path, **more: object) -> Done:
    """Runs a command line in a container; a server ends as soon as it serves, and `verify` makes the checks
    whose messages quote files or programs outside."""
    if arguments[:1] in (["serve"], ["explore"]):
        more.setdefault("first", "tests.cli.container:end_servers")
    if arguments[:1] == ["verify"]:
        more.setdefault("first", "tests.cli.container:leave_out_numbers")
    return fork_server().run(arguments, folder, environment=ENVIRONMENT, **more)  # type: ignore[arg-type]


def end_servers() -> None:
    """Lets every server of this process get its signal at once."""
    from pellucid.server.http.listen import DrainingServer

    async def end(server: DrainingServer) -> None:
        server.ended_by = signal.SIGTERM

    DrainingServer.main_loop = end  # type: ignore[method-assign]


def leave_out_numbers() -> None:
    """Lets `verify` make fewer checks in this process."""
    from pellucid.verification.checks import catalogue

    catalogue.CHECKS = without_numbers(catalogue.CHECKS)


def without_numbers(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Returns the checks without those that judge the engine's numbers: seconds, and the same for every
    file."""
    left_out = ("pellucid.verification.checks.engine.", "pellucid.verification.checks.generation.")
    return tuple(check for check in checks if not check.measure.__module__.startswith(left_out))


@cache
def template() -> Path:
    """Returns a container that is only copied from: commands run in its folder `work`."""
    folder = scratch()
    (folder / "work").mkdir()
    (folder / "outside").write_bytes(b"of another program\n")
    _fill(folder / "work")
    return folder


def copy(into: Path) -> Path:
    """Returns the folder to work in of a new container: copies, since a hard link would change with its
    original."""
    shutil.copytree(template(), into, symlinks=True, copy_function=_copy_one, dirs_exist_ok=True)
    (into / "work" / "locked").chmod(0)
    return into / "work"


def _copy_one(source: str, target: str) -> None:
    if stat.S_ISFIFO(os.lstat(source).st_mode):
        os.mkfifo(target)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def remove(folder: Path) -> None:
    """Removes a container, also what its own commands locked."""
    for place, folders, _ in os.walk(folder):
        for name in folders:
            if not os.path.islink(path := os.path.join(place, name)):
                os.chmod(path, 0o755)
    shutil.rmtree(folder, ignore_errors=True)


def scratch() -> Path:
    """Returns an empty folder, in memory where there is some; it goes with the process."""
    memory = Path("/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir())
    _sweep(memory)
    folder = Path(tempfile.mkdtemp(prefix=f"pellucid-test-{os.getpid()}-", dir=memory))
    atexit.register(remove, folder)
    return folder


@cache
def _sweep(memory: Path) -> None:
    """Removes the folders of test processes that were killed."""
    for left in memory.glob("pellucid-test-*-*"):
        process = left.name.split("-")[2]
        if process.isdigit() and not Path(f"/proc/{process}").exists():
            remove(left)


# ---- what it holds


def _fill(folder: Path) -> None:
    _write_texts(folder)
    _write_models(folder)
    _write_strange(folder)
    for arguments in (
        ["tokenizer", "train", "plain.txt", "--vocab-size", "280", "-o", "tokenizer"],
        ["data", "prepare", "plain.txt", "--tokenizer", "tokenizer", "--workers", "1", "-o", "tokens"],
        ["train", "recipe.toml"],
        ["train", "adapters.toml"],
        ["trace", "ours", "the cat sat in the inn", "--target", "n", "--backward", "-o", "trace.json"],
        ["trace", "words.toml", "A B", "-o", "small.json"],
        ["plot", "run", "-o", "curves.svg"],
        ["sheet", "words.toml", "A B", "--focus", "probs[t=1]", "-o", "sheet.md"],
    ):
        done = run(arguments, folder)
        assert done.code == 0, (arguments, done.text)
    (folder / "locked").chmod(0)


def _write_texts(folder: Path) -> None:
    texts = {
        "plain.txt": (TEXT * 40).encode(),
        "latin1.txt": ("caf\u00e9 " * 40).encode("latin-1"),
        "utf16.txt": (TEXT * 4).encode("utf-16"),
        "binary.txt": bytes(range(256)) * 4,
        "empty.txt": b"",
        "chats.jsonl": "".join(_chat("hi", word) for word in TEXT.split()).encode(),
        "names.toml": b'"h.{l}.q" = "blocks.{l}.attn.q"\n"logits" = "logits"\n',
        "recipe.toml": _recipe("run", TINY).encode(),
        "adapters.toml": _recipe("lora", ["start=ours", "lora.rank=2", *TINY_ADAPTERS]).encode(),
        "thesis.tex": b"\\documentclass{book} % ten years of work\n",
        "notes.md": b"# Notes\n",
        "config.json": b'{"theme": "dark", "window": [800, 600]}',
        "picture.png": b"\x89PNG\r\n\x1a\n" + bytes(40),
        "model.safetensors": b"\x02\x00\x00\x00\x00\x00\x00\x00{}",
    }  # fmt: skip
    for name, data in texts.items():
        (folder / name).write_bytes(data)
    np.savez(folder / "arrays.npz", **{"logits": np.zeros((1, 2, 4)), "h.0.q": np.ones((1, 1, 2, 2))})


def _chat(*contents: str) -> str:
    turns = [
        {"role": role, "content": text} for role, text in zip(("user", "assistant"), contents, strict=True)
    ]
    return json.dumps({"messages": turns}) + "\n"


def _recipe(out: str, changes: list[str]) -> str:
    lines: dict[str, list[str]] = {"": [f'out = "{out}"'], "data": ['path = "plain.txt"']}
    for change in changes:
        key, _, value = change.partition("=")
        section, _, name = key.rpartition(".")
        lines.setdefault(section, []).append(f"{name} = {format_toml(parse_value(value))}")
    tables = [f"[{section}]\n" * bool(section) + "\n".join(rows) for section, rows in lines.items()]
    return "\n".join(tables) + "\n"


def _write_models(folder: Path) -> None:
    sizes = random_models.LLAMA | {"n_layer": 1, "d_model": 16, "d_ff": 24, "context_length": 32, "n_head": 2}
    model = random_models.model(sizes | {"n_kv_head": 1}, "llama")
    model_folder.write(folder / "ours", model)
    huggingface.write(folder / "hf", model)
    wide = random_models.model(random_models.LLAMA | {"n_layer": 1}, "llama")
    gguf.write(folder / "tiny.gguf", wide, "F16")
    (folder / "home" / "models").mkdir(parents=True)
    shutil.copy(folder / "tiny.gguf", folder / "home" / "models" / "smollm2.gguf")
    shutil.copytree(folder / "hf", folder / "home" / "models" / "org--small")
    words = (Path(__file__).parents[2] / "pellucid" / "config/presets" / "abcd.toml").read_bytes()
    (folder / "words.toml").write_bytes(words)
    shutil.copytree(folder / "hf", folder / "pickled")
    weights = load_file(folder / "pickled" / "model.safetensors")
    (folder / "pickled" / "model.safetensors").unlink()
    torch.save(weights, folder / "pickled" / "pytorch_model.bin")


def _write_strange(folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "mixed").mkdir()
    shutil.copytree(folder / "ours", folder / "mixed" / "model")
    (folder / "mixed" / "thesis.tex").write_bytes(b"\\documentclass{book}\n")
    (folder / "mixed" / "data").mkdir()
    (folder / "mixed" / "data" / "source.json").write_bytes(b'{"mine": true}')
    (folder / "dangling").symlink_to("nowhere")
    (folder / "dangling.json").symlink_to("nowhere.json")
    (folder / "host").symlink_to("../outside")
    (folder / "loop").symlink_to("loop")
    (folder / "linked").symlink_to("ours")
    os.mkfifo(folder / "fifo")
    (folder / "key.txt").write_bytes(b"the-key-of-a-server\n")
    (folder / "key.txt").chmod(0o600)
    (folder / "locked").mkdir()
    (folder / "locked" / "secret.txt").write_bytes(b"secret\n")
    for name in FILE_NAMES:
        (folder / name).write_bytes(TEXT.encode())


# ---- what may have changed

Entry = tuple[str, bytes]
"""What a path is, and what it holds: the digest of a file, the target of a link."""


def snapshot(folder: Path) -> dict[str, Entry]:
    """Returns every path below the folder, with its type and content."""
    return {path: _entry(os.path.join(folder, path)) for path in _walk(folder)}


def _walk(folder: Path) -> list[str]:
    found = []
    for place, folders, files in os.walk(folder):
        start = os.path.relpath(place, folder)
        found += [os.path.normpath(os.path.join(start, name)) for name in (*folders, *files)]
    return found


def _entry(path: str) -> Entry:
    kind = os.lstat(path).st_mode
    if stat.S_ISLNK(kind):
        return "link", os.fsencode(os.readlink(path))
    if stat.S_ISREG(kind):
        with open(path, "rb") as file:
            return "file", hashlib.sha256(file.read()).digest()
    return ("folder" if stat.S_ISDIR(kind) else "other"), b""


def touched(folder: Path) -> dict[str, tuple[int, ...]]:
    """Returns what changes whenever a path is written, renamed or replaced; quicker than its content."""
    found = {}
    for path in _walk(folder):
        now = os.lstat(os.path.join(folder, path))
        times = () if stat.S_ISDIR(now.st_mode) else (now.st_ctime_ns, now.st_size)
        found[path] = (now.st_mode, now.st_ino, *times)
    return found


def lost(before: dict[str, Entry], after: dict[str, Entry]) -> list[str]:
    """Returns the paths that were there and are gone or hold something else."""
    return [path for path, entry in before.items() if after.get(path) != entry]


def leftovers(paths: object) -> list[str]:
    """Returns the paths whose names say that they were not completed; an output may have any other."""
    marks = (".partial", ".tmp", ".getting-")
    assert isinstance(paths, (dict, list, set))
    return [path for path in paths if any(mark in os.path.basename(path) for mark in marks)]
