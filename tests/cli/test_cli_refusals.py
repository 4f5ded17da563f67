"""Requests that cannot be met, by command: one message with its facts, an exit code, and no file written."""

import os
import shlex
from pathlib import Path

import numpy as np
import pytest

from pellucid.explanation.trace_file import write
from pellucid.model import load
from pellucid.server.http.key_file import VARIABLE
from tests.cli.commands import Shell
from tests.cli.test_export import save_tiny
from tests.evaluation.small_models import make_model
from tests.model import folders
from tests.model.test_model_chat import CHATML
from tests.training.sample_events import folder as run_folder

KEY = "a-key-of-a-test-0123456789"
TEXT = "The cat sat on the mat. The dog sat on the log. " * 50
FOCUS = "--focus probs[t=1]"

REFUSED: dict[str, list[tuple[str, ...]]] = {
    "": [("nonsense", "nonsense"), ("list --x", "--x"), ("inspect", "MODEL"), ("inspect nowhere", "nowhere")],
    "explain": [
        ("abcd 'A X' --at loss", "the word 'X' is not in this model's vocabulary"),
        ("abcd 'A B' --at prob[1,2]", "'probs"),
        ("abcd 'A B' --at probs[9,9]", "has no t=9: t has 0…1 (A B)"),
        ("abcd 'A B' --at d.logits[0,0]", "give a target (--target)"),
        ("abcd", "abcd needs a prompt"),
        ("abdc A", "'abcd'"),
        ("no.json", "cannot read no.json: No such file"),
        ("gpt2 'A B' --at probs", "gpt2 is a config-only preset"),
        ("abcd 'A B' --lr 2", "'lr' belongs to an update"),
        ("abcd 'A B' --depth x", "--depth"),
        ("abcd 'A B' --update sgd --target C --set beta2", "NAME=NUMBER"),
    ],
    "trace": [
        ("abcd 'A B' --target C --update sgd --lr nan -o x.json", "lr must be a finite number, not nan"),
        (f"abcd A -o {'x' * 251}.json", "File name too long"),
        ("gpt2 A -o x.json", "config-only"),
        ("abcd A -o x.txt", "use x.json"),
        ("abcd A -o x", "use x.json"),
        ("abcd A -o ''", "the output has no name"),
        ("abcd A -o /", "the output has no name"),
        ("abcd A -o ..", "the output has no name"),
        ("abcd A -o /tmp/", "/tmp exists and is not a trace"),
        ("abcd A -o no/such/x.json", "cannot write no/such/x.json: the folder no/such does not exist"),
        ("abcd A --backward -o x.json", "a loss needs a target"),
        ("abcd A", "--output"),
    ],
    "inspect": [
        ("gpt2 --probe", "gpt2 is a config-only preset"),
        ("gpt2 --text a", "--text is what the probe reads"),
        ("smollm2", "`pellucid get smollm2`"),
        ("smolm2", "'smollm2'"),
        ("no/such.gguf", "no such file"),
        ("abcd --probe --text The", "is not in this model's vocabulary"),
        (".", "no config.json"),
    ],
    "choices": [
        ("swigl", "'swiglu'"),
        ("linear", "outputs/linear or unembeddings/linear or schedules/linear"),
    ],
    "replay": [("no.json", "cannot read no.json: No such file or directory")],
    "generate": [
        ("small the --temperature -1", "temperature must be a finite number"),
        ("small the --temperature nan", "temperature must be a finite number"),
        ("small the --temperature inf", "temperature must be a finite number"),
        ("small the --temperature warm", "--temperature"),
        ("small the --max-new-tokens -1", "max_new_tokens must be a whole number"),
        ("small the --dtype float8", "dtype must be one of"),
        ("small the --device toaster", "the device 'toaster' cannot be used here"),
        ("small the --seed x", "--seed"),
        (f"small the --seed {'9' * 30}", "seed must be a whole number"),
        ("small the --cache int4", "int8; got 'int4'"),
        ("small a b --sweep top_k=1,2", "give one"),
        ("small a --sweep top_k=1,2 -o out.jsonl", "omit --output"),
        ("small a --sweep top_k=1 --sweep top_k=2", "twice"),
        ("small a --sweep tpo_k=1", "top_k"),
        ("small a --sweep temperature=0,-1", "temperature"),
        ("small the --chat", "has no chat template"),
        ("small the --system x", "give --chat as well"),
        ("talker the --chat --parse-special", "omit --parse-special"),
        ("gpt2 the", "gpt2 is a config-only preset"),
        ("abdc the", "'abdc' is not a model"),
        ("no/such/folder the", "no/such/folder is not a model: there is no such file or folder"),
    ],
    "evaluate": [
        *(
            (f"a {name}",)
            for name in ("empty.txt", "one.txt", "binary.txt", "stories:huge", "task:x", "/dev/zero")
        ),
        ("a nowhere.txt", "nowhere.txt"),
        ("a mine", "mine"),
        ("a",),
        ("a --tasks my.txt", "my.txt"),
    ],
    "calibrate": [
        ("a", "DATA"),
        ("a nowhere.txt", "nowhere.txt"),
        ("a my.txt --temperatures x", "--temperatures"),
        ("a my.txt --temperatures 0", "temperature"),
        ("a my.txt --quantize q4_k", "q4_k"),
        ("a my.txt --checkpoints", "checkpoint"),
        ("a my.txt -o x.txt", "x.txt"),
        ("a my.txt --trace x.txt", "x.json"),
        ("abcd my.txt --save", "abcd"),
        ("gpt2 my.txt", "gpt2"),
    ],
    "look": [
        ("abcd 'A B' --show nonsense", "nonsense"),
        ("abcd --show patching", "patching"),
        ("abcd --show probes", "probes"),
        ("abcd 'A B' -o a.pdf", "a.pdf"),
        ("abcd 'A B' --show attribution --set top", "top"),
        ("gpt2 'A B'", "gpt2"),
    ],
    "verify": [
        ("abcd --quick --text A", "at least two tokens"),
        ("abcd --quick --text 'The end'", "vocabulary"),
        ("abcd --quick --text ''", "two tokens"),
        ("gpt2", "gpt2 is a config-only preset"),
        ("abdc", "'abdc' is not a model"),
        ("no/such.gguf", "no/such.gguf is not a model: there is no such file or folder."),
        ("no.toml", "cannot read no.toml: No such file or directory."),
        ("smollm2", "smollm2 is not downloaded yet: `pellucid get smollm2`"),
        ("abcd --device toaster --json", "the device 'toaster' cannot be used here"),
        ("", "MODEL", "--self"),
        ("--self abcd --step 3", "omit abcd, --step"),
    ],
    "export": [
        ("mine --to onnx -o x", "hf, gguf, pellucid; got 'onnx'"),
        ("mine --to gguf -o x", "use -o x.gguf"),
        ("mine --to gguf -o x.gguf --dtype float32", "a GGUF file has a type"),
        ("mine --to hf -o x --type F16", "a folder has a dtype"),
        ("mine --to hf -o x --dtype float8", "'float8'"),
        ("mine --to gguf -o x.gguf --type Q9", "'Q9'"),
        ("gpt2 --to hf -o x", "config-only preset"),
        ("smollm2 --to hf -o x", "`pellucid get smollm2`"),
        ("abcd --to gguf -o ''", ".gguf"),
        ("abcd --to gguf -o .", ".gguf"),
        ("abcd --to gguf -o /", ".gguf"),
        ("abcd --to gguf -o out", ".gguf"),
    ],
    "import": [("no -o new", "no such file")],
    "explore": [
        ("nothing --no-browser", "nothing"),
        ("gpt2 'the cat' --no-browser", "gpt2"),
        ("abcd 'A B' --target Z --no-browser", "Z"),
        ("damaged.json --no-browser", "damaged.json"),
        ("b.json 'A B' --no-browser", "prompt"),
        ("abcd --target C", "--target"),
        ("abcd --update sgd", "--update"),
        ("abcd 'A B' --lr 1", "--lr"),
        ("abcd 'A B' --force", "--force"),
        ("abcd 'A B' --size 1MB", "--size"),
        ("abcd 'A B' --at probs", "--at"),
        ("abcd 'A B' --port 65536", "--port"),
        ("abcd 'A B' --export page.html --size x", "--size"),
        ("abcd 'A B' --export page.html --size 1B", "--size"),
        ("abcd 'A B' --export page.html --weights int9", "int9"),
    ],
    "serve": [
        ("abcd --port 0 --host 0.0.0.0", "--api-key-file"),
        ("abcd --port 0 --host ::", "--api-key-file"),
        ("abcd --port 0 --host 0", "0.0.0.0"),
        ("abcd --port 0 --host 192.0.2.7", "--api-key-file"),
        ("abcd --port 0 --host 192.0.2.7 --api-key-file key", "192.0.2.7"),
        ("abcd --port 0 --host ''", "--host"),
        ("abcd --port 0 --host example.org", "--host"),
        ("abcd --port 0 --api-key-file none", "none"),
        ("abcd --port 0 --api-key-file .", "regular file"),
        ("abcd --port 0 --api-key-file open", "chmod 600"),
        ("abcd --port 0 --api-key-file short", "16"),
        ("abcd --port 0 --allow-host *", "--allow-host"),
        ("abcd --port 0 --allow-host https://example.org", "--allow-host"),
        ("abcd --port 0 --name 'a b'", "--name"),
        ("abcd --port 0 --name ''", "--name"),
        ("abcd --port 65536", "--port"),
        ("abcd --port -1", "--port"),
        ("abcd --port 0 --slots 0", "--slots"),
        ("abcd --port 0 --slots 4097", "--slots"),
        ("abcd --port 0 --queue -1", "--queue"),
        ("abcd --port 0 --queue 65537", "--queue"),
        ("nothing --port 0", "nothing"),
        ("gpt2 --port 0", "weights"),
        ("--port 0", "MODEL"),
    ],
    "quantize": [
        ("a --bits 8", "nothing to do"),
        ("a", "8 or 4"),
        ("a -o b", "8 or 4"),
        ("a --bits 3", "8 or 4"),
        ("a --bits -8", "8 or 4"),
        ("a --bits eight", "8 or 4"),
        ("nowhere --bits 3 -o a", "8 or 4"),
        ("nowhere --weights int4 -o a", "--bits 4"),
        ("a --bits 8 --group 33 -o b", "33"),
        ("a --bits 8 --group rows", "'row'"),
        (f"a --bits 8 --group {'9' * 5000}", "'row'"),
        ("a --bits 8 --group 128 -o b", "--group row"),
        ("a --bits 8 --keep embd.weight -o b", "Did you mean 'embed.weight'?"),
        ("a --bits 8 -o a", "--force"),
        ("a --bits 8 -o a --force", "read from there"),
        ("a --bits 8 --json -o b", "--bill"),
        ("a --bits 8 --on x -o b", "--bill"),
        ("a --bits 8 --tokens 60 -o b", "--bill"),
        ("a --bits 8 --bill --on ''", "two tokens"),
        ("a --bits 8 --bill --on none.txt", "does not exist"),
        ("a --bits 8 --bill --plot x.pdf", ".svg"),
        ("a --weights file --bill", "no quantized weights"),
        ("a --weights int9 --bill", "file"),
        ("a --bits 8 --bill --against nowhere", "nowhere"),
        ("gpt2 --bits 8 -o b", "no weights"),
        ("nowhere --bits 8 -o b", "nowhere"),
    ],
    "sheet": [
        ("abcd 'A B' --focus prob[t=1] -o s.md", "prob", "probs"),
        ("abcd 'A B' --focus probs[h=1] -o s.md", "h", "probs"),
        ("abcd 'A B' --focus probs[t=9] -o s.md", "9"),
        ("abcd 'A B' --focus probs[t=1 -o s.md", "probs[t=1"),
        ("abcd 'A B' --focus embed.weight -o s.md", "embed.weight", "given"),
        ("abcd 'A B' --focus ids -o s.md", "ids", "given"),
        ("gpt2 'A B' --focus probs -o s.md", "gpt2", "weights"),
        ("abcd 'A B' --focus d.logits[t=1] -o s.md", "d.logits", "--target"),
        ("abcd 'A B' --focus loss -o s.md", "loss", "--target"),
        ("abcd 'A B' --focus unembed.weight@1 -o s.md", "unembed.weight@1", "--update"),
        ("abcd 'A B' --update sgd --focus probs@1 -o s.md", "target"),
        (f"abcd 'A B' {FOCUS} --level 3 -o s.md", "3", "abcd"),
        (f"abcd 'A B' {FOCUS} --seed 3 -o s.md", "--seed", "abcd"),
        (f"abcd 'A B' {FOCUS} --form guess -o s.md", "guess", "find"),
        (f"abcd {FOCUS} -o s.md", "prompt"),
        (f"nothing 'A B' {FOCUS} -o s.md", "nothing"),
        (f"nothing 'A B' {FOCUS} -o s.pdf", ".html, .md or .json"),
        ("lesson-99 -o s.md", "99"),
        ("lesson-13 'A B' -o s.md", "prompt", "lesson-13"),
        ("lesson-13 --focus probs -o s.md", "--focus", "lesson-13"),
        ("lesson-13 --target C -o s.md", "--target", "lesson-13"),
        ("lesson-13 --part 7 -o s.md", "7", "13"),
    ],
    "plot": [
        ("nowhere -o c.svg", "there is no log nowhere"),
        ("loop -o c.svg", "there is no log loop"),
        ("empty -o c.svg", "no run has made a step"),
        ("run -o c.gif", "c.gif does not end in .html, .svg or .png"),
        ("run -o no/c.svg", "cannot write no/c.svg"),
        ("damaged -o c.svg", "damaged/log.jsonl is damaged: line 1"),
        ("run --smooth 99999999999999999999", "--smooth"),
    ],
    "compare": [
        ("abcd abcd", "needs a prompt"),
        ("a.json a.json 'A B'", "omit the prompt"),
        ("a.json a.json --names n.toml", "names is for"),
        ("a.json x.npz --dtype float31", "float32, float16"),
        ("a.json x.npz", "theirs; ours are embedded"),
        ("a.json x.npz --names wrong.toml", "'blocks.0.attn.scores'"),
        ("a.json x.npz --names shape.toml", "has the shape (3,), and probs [b t v] has"),
        ("a.json x.npz --names axes.toml", "must be letters of probs: b t v"),
        ("a.json a.json --only nothing*", "only='nothing"),
        ("a.json b.json", "'A B' and 'A B C D': 2 tokens there, 4 here: another prompt, or a bos?"),
        ("a.json short.npz", "2 tokens there, 4 here: another prompt, or a bos?"),
        ("a.json x.npz --tolerance nan", "tolerance"),
        ("abcd x.npz A --layout half", "halves, pairs"),
        ("a.json x.npz --layout pairs", "layout is for"),
    ],
    "tokenizer": [
        ("encode '' text",),
        ("encode gpt2 text", "gpt2"),
        ("encode no/such/folder text", "no/such/folder"),
        ("encode nothing text", "nothing"),
        ("encode . text", "tokenizer"),
        ("decode small -- --5", "--5"),
        ("compare bytes --on nowhere.txt", "nowhere.txt"),
        ("compare bytes", "--on"),
    ],
    "train": [
        ("", "--resume"),
        ("stories --resume runs/a", "--resume"),
        ("nothing-here", "nothing-here"),
        ("stories stepz=3", "stepz"),
        ("--resume /nowhere", "/nowhere"),
        ("stories train.device=tpu9", "tpu9"),
        ("stories train.device=meta", "meta"),
        ("task:", "addition, brackets, copy"),
        ("stories out=", "out is empty"),
        ("my.txt data.path=b.txt --dry-run", "both name texts"),
        ("b.txt stories", "is a recipe"),
        ("b.txt task:copy", "is a recipe"),
        ("wrong.toml b.txt", "is a recipe"),
        ("stories --minutes 5", "minutes plans a run for texts"),
        ("task:copy --minutes 5", "minutes plans a run for texts"),
        ("--resume a --minutes 5", "minutes plans a run for texts"),
        ("tiny", "model=tiny"),
        ("stories --dry-run data.path=nowhere.txt", "nowhere.txt"),
        ("stories --dry-run out=my.txt", "is a file"),
        ("stories --dry-run out=my.txt/a", "cannot write"),
        ("stories --dry-run out=.", "not empty"),
        ("stories --dry-run train.device=tpu", "train.device"),
        ("stories --dry-run start=nowhere", "nowhere"),
        ("stories --dry-run train.only=zzz", "zzz"),
        ("stories --dry-run train.only=*.bias", "*.bias"),
        ("stories --dry-run train.only=embed.weight train.freeze=embed.weight", "train.freeze"),
        ("stories --dry-run data.path=my.txt train.patience=3 data.validation=0", "train.patience"),
        ("stories --dry-run data.path=my.txt data.tokenizer=bpx", "data.tokenizer='bpx'"),
        ("stories --dry-run data.path=my.txt data.validation=abc", "data.validation must be"),
        ("stories --dry-run data.path=my.txt model.context_length=99999", "too short"),
        ("stories --dry-run data.path=[]", "a list of paths"),
    ],
}
for line in (
    "generate abcd 'A B'", "chat abcd", "serve abcd --port 0", "evaluate abcd my.txt",
    "calibrate abcd my.txt",
    "look abcd 'A B'", "explain abcd 'A B'", "trace abcd 'A B' -o t.json", "verify abcd",
):  # fmt: skip
    REFUSED[""].append((f"{line} --weights int44", "int8, int4, file", "Did you mean 'int4'?"))
NO_MEMORY = [
    ("stories --dry-run model.d_model=1048576", "does not fit into memory"),
    ("stories --dry-run data.batch_size=16777216", "data.batch_size="),
]
LINES = [(f"{command} {line}".strip(), facts) for command in REFUSED for line, *facts in REFUSED[command]]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one of everything that the lines name."""
    place = tmp_path_factory.mktemp("here")
    for name in ("my.txt", "b.txt"):
        (place / name).write_text(TEXT)
    (place / "empty.txt").write_text("")
    (place / "one.txt").write_text("the")
    (place / "binary.txt").write_bytes(bytes(range(256)) * 4)
    save_tiny(place / "mine")
    make_model(d_model=64, n_head=2, n_kv_head=2, d_head=32, d_ff=64).save(place / "a")
    folders.ours(place / "small", generation={})
    folders.ours(place / "talker", chat_template=CHATML)
    short, long = (load("abcd").trace(prompt) for prompt in ("A B", "A B C D"))
    write(long, place / "a.json")
    write(short, place / "b.json")
    (place / "damaged.json").write_text('{"format": "pellucid-trace"')
    np.savez(place / "x.npz", theirs=np.zeros(3))
    np.savez(place / "short.npz", **{name: short.tape[name] for name in short.tape.steps})
    (place / "wrong.toml").write_text('theirs = "blocks.0.attn.score"')
    (place / "shape.toml").write_text('theirs = "probs"')
    (place / "axes.toml").write_text('theirs = {name = "probs", axes = "q"}')
    run_folder(place / "run", 5)
    run_folder(place / "empty", 0)
    (run_folder(place / "damaged", 5) / "log.jsonl").write_text("[]\n{}\n[]\n")
    (place / "loop").symlink_to("loop")
    for name, text, mode in (("key", KEY, 0o600), ("open", KEY, 0o644), ("short", KEY[:15], 0o600)):
        (place / name).write_text(text)
        (place / name).chmod(mode)
    return place


def list_files(folder: Path) -> dict[str, int]:
    """Returns every path below a folder with the time of its last change."""
    return {str(path): path.lstat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("line", "code", "facts"),
    [(line, 2, facts) for line, facts in LINES] + [(f"train {line}", 3, [fact]) for line, fact in NO_MEMORY],
    ids=[line[:80] for line, _ in LINES] + [line for line, _ in NO_MEMORY],
)
def test_what_cannot_be_is_one_message_and_nothing_is_written(
    shell: Shell, here: Path, monkeypatch: pytest.MonkeyPatch, line: str, code: int, facts: list[str]
) -> None:
    monkeypatch.chdir(here)
    monkeypatch.delenv(VARIABLE, raising=False)
    before = list_files(here)
    done = shell(*shlex.split(line))
    assert (done.code, done.out) == (code, ""), done
    assert sum(line.startswith("pellucid: ") for line in done.err.splitlines()) == 1, done
    message = " ".join(done.err.split())
    assert all(fact in message for fact in facts), message
    assert KEY[:15] not in done.err and list_files(here) == before and os.getcwd() == str(here)
