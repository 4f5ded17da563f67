"""Files: written whole or not at all, replaced only with `force`, and read as untrusted input.

Every command that writes follows one rule. It creates a path that does not exist; it replaces only an output
of the same kind, and only with `force`; on failure it removes only what this call created.
Until an output is complete it has a partial name beside its own and is locked. A partial whose writer was
killed is removed by the next call that writes into that folder; the output that it was about to replace is
restored by the next call that writes the same path.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pellucid.base.errors import FileError, UsageError, file_error, file_errors, show

_PARTIAL = re.compile(r"\.pellucid-[0-9a-f]{12}-[0-9a-f]{8}\.partial")
MOST_TRIES = 1000
"""The most names that are tried for a partial file, in a folder that others sweep or that takes no files."""
_REPLACED = "replaced"
"""The name, inside a partial folder, of the folder that it is about to replace."""


@dataclass(frozen=True)
class Kind:
    """A kind of output, and how to recognize one."""

    name: str
    """With its article: "a trace", "a model folder"."""
    why_not: Callable[[Path], str]
    """Returns why the path is not one of this kind ("it has no config.json"); "" where it is."""


def make_json_kind(name: str, format: str) -> Kind:
    """Returns the kind of the JSON files that say this "format", of whatever version."""

    def why_not(path: Path) -> str:
        if not path.is_file():
            return "it is not a file"
        try:
            data = read_json(path)
        except FileError:
            return "it is not JSON"
        is_one = isinstance(data, dict) and data.get("format") == format
        return "" if is_one else f'it does not say "format": "{format}"'

    return Kind(name, why_not)


def make_page_kind(name: str, mark: bytes) -> Kind:
    """Returns the kind of the HTML pages that have a mark at their beginning."""

    def why_not(path: Path) -> str:
        if not path.is_file():
            return "it is not a file"
        with path.open("rb") as file:
            return "" if mark in file.read(4096) else f"it does not say {mark.decode()}"

    return Kind(name, why_not)


def check_output(path: Path, kind: Kind, force: bool = False, folder: bool = False) -> None:
    """Raises unless an output of this kind may be written there; call it before the work."""
    if path.name in ("", ".."):
        place = "" if str(path) == "." else f": {path} has no file name"
        raise UsageError(f"the output has no name{place}. Give {kind.name} a path, such as -o out/name.")
    with file_errors("write", path):
        if not os.path.lexists(path):
            check_parent(path, folder)
            return
        if folder and path.is_dir() and not any(path.iterdir()):
            return
        why = kind.why_not(path) if path.exists() else "it is a broken link"
    if why:
        raise FileError(
            f"{path} exists and is not {kind.name} that could be replaced: {why}. Give another path."
        )
    if not force:
        sweep(path)  # its writer may have been killed between the last rename and its end
        raise FileError(f"{path} exists already; --force replaces it (in Python, force=True).")


def check_suffix(path: Path, suffix: str, what: str) -> None:
    """Raises unless a path ends in the suffix of its kind; `what` says what files of that kind are. A path
    without a file name is left to `check_output`."""
    if path.name not in ("", "..") and path.suffix != suffix:
        raise UsageError(f"{what}; use {path.with_suffix(suffix)}.")


def check_distinct(paths: Sequence[Path]) -> None:
    """Raises where two of the outputs of a call are one path: the second would find the first there."""
    seen = set[Path]()
    for path in map(Path.absolute, paths):
        if path in seen:
            raise UsageError(f"the output {path} is given twice: give each once.")
        seen.add(path)


def check_parent(path: Path, folder: bool) -> None:
    """Raises unless the folder above exists and may be written to; a new folder may have its parents made."""
    parent = path.parent
    while folder and not os.path.lexists(parent):
        parent = parent.parent
    if not parent.is_dir():
        there = os.path.lexists(parent)
        why = f"{parent} is not a folder" if there else f"the folder {parent} does not exist"
        raise FileError(f"cannot write {path}: {why}.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise FileError(f"cannot write {path}: {parent} may not be written to.")


@contextlib.contextmanager
def new_file(path: Path, kind: Kind, force: bool = False) -> Iterator[BinaryIO]:
    """Yields a binary file to write; when the block ends well, it becomes a new `path`, or with `force`
    replaces an output of the same kind."""
    check_output(path, kind, force)
    with _whole_file(path, replace=force) as file:
        yield file


@contextlib.contextmanager
def new_folder(path: Path, kind: Kind, force: bool = False) -> Iterator[Path]:
    """Yields an empty folder to fill; when the block ends well, it becomes a new `path`, or with `force`
    replaces a folder of the same kind."""
    check_output(path, kind, force, folder=True)
    made = make_folders(path.parent)
    try:
        with partial_folder(path) as partial:
            new = partial / "new"
            new.mkdir()
            yield new
            check_output(path, kind, force, folder=True)  # it may have come while the block ran
            _put_folder(new, path, partial / _REPLACED)
    except OSError as error:
        remove_made(made)
        raise file_error("write", path, error) from None
    except BaseException:
        remove_made(made)
        raise


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Yields a binary file to write; it gets its name when the block ends well, and is gone when it does not.

    For files inside a folder of ours: what is there under that name is replaced. Two that write the same
    file do not write into each other's.
    """
    with _whole_file(path, replace=True) as file:
        yield file


@contextlib.contextmanager
def _whole_file(path: Path, replace: bool) -> Iterator[BinaryIO]:
    partial, is_new = None, False
    try:
        sweep(path)
        partial, handle = _create_partial(
            path, lambda new: os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        )
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(partial, path) if replace else rename_new(partial, path)
            is_new = not replace
        fsync_folder(path.parent)
    except OSError as error:
        if is_new:
            with contextlib.suppress(OSError):
                path.unlink()
        raise file_error("write", path, error) from None
    finally:
        if partial is not None:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)


@contextlib.contextmanager
def partial_folder(path: Path) -> Iterator[Path]:
    """Yields a scratch folder beside `path`, which is removed at the end: a place to make `path` in."""
    sweep(path)

    def create(new: Path) -> int:
        new.mkdir(0o700)
        return os.open(new, os.O_RDONLY)

    partial, handle = _create_partial(path, create)
    try:
        yield partial
    finally:
        try:
            with contextlib.suppress(OSError):
                _restore(partial, path)
            shutil.rmtree(partial, ignore_errors=True)
        finally:
            os.close(handle)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yields a folder for this user's eyes in the system's temporary folder; it is removed at the end, or by
    the next call where this process is killed."""
    import tempfile

    with partial_folder(Path(tempfile.gettempdir()) / f"pellucid-{os.getuid()}") as folder:
        yield folder


def _create_partial(path: Path, create: Callable[[Path], int]) -> tuple[Path, int]:
    """Returns a new partial of `path` and its open, locked handle."""
    for left in reversed(range(MOST_TRIES)):
        partial = path.with_name(f".pellucid-{_hash_name(path)}-{os.urandom(4).hex()}.partial")
        try:
            handle = create(partial)
        except FileNotFoundError:
            if not left or not path.parent.is_dir():
                raise
            continue  # a folder that another call swept between its creation and its opening
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            swept = False
        except BlockingIOError:  # another call is sweeping it at this moment
            swept = True
        except OSError:  # a disk without locks: then no call sweeps there, either
            swept = False
        with contextlib.suppress(OSError):
            if not swept and os.path.samestat(os.fstat(handle), os.stat(partial)):
                return partial, handle
        os.close(handle)
    raise FileError(
        f"cannot write {path}: other processes removed it {MOST_TRIES} times while it was written."
    )


def _hash_name(path: Path) -> str:
    import hashlib

    return hashlib.sha256(os.fsencode(path.name)).hexdigest()[:12]


def sweep(path: Path) -> None:
    """Removes the partials beside `path` whose writers were killed, and puts back what those of `path` were
    about to replace."""
    start = f".pellucid-{_hash_name(path)}-"
    for partial in _partials(path.parent):
        _sweep_one(partial, path if partial.name.startswith(start) else None)


def sweep_folder(folder: Path) -> None:
    """Removes the partial files of a folder whose writers were killed, whatever they were going to be."""
    for partial in _partials(folder):
        _sweep_one(partial, None)


def is_partial(path: Path) -> bool:
    """Returns whether the name is that of an incomplete output."""
    return _PARTIAL.fullmatch(path.name) is not None


def _partials(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if is_partial(path)]
    except OSError:
        return []


def _sweep_one(partial: Path, path: Path | None) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(partial, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its writer lives
            if path is not None:
                _restore(partial, path)
            elif (partial / _REPLACED).exists():  # the only copy of an output whose name is not known here
                return
            if partial.is_dir():
                shutil.rmtree(partial, ignore_errors=True)
            else:
                partial.unlink()
        finally:
            os.close(handle)


def _restore(partial: Path, path: Path) -> None:
    """Puts back what was moved aside and not replaced: the writer ended between two renames."""
    old = partial / _REPLACED
    if old.exists() and not os.path.lexists(path):
        os.replace(old, path)


def _put_folder(new: Path, path: Path, aside: Path) -> None:
    """Gives a complete folder its name, in one step where the system can exchange two folders."""
    fsync_folder(new)
    if not path.is_dir() or not any(path.iterdir()):
        os.replace(new, path)  # onto nothing or an empty folder; the system refuses any other
    elif not exchange(new, path):
        os.replace(path, aside)
        os.replace(new, path)
    fsync_folder(path.parent)


def exchange(a: Path, b: Path) -> bool:
    """Exchanges two paths in one step, so that each exists at every moment; False where the system cannot."""
    return _renameat2(a, b, 2)


def rename_new(old: Path, new: Path) -> None:
    """Renames, and fails where `new` exists already."""
    if _renameat2(old, new, 1):
        return
    try:
        os.link(old, new)
    except FileExistsError:
        raise
    except OSError:  # a disk without links
        if os.path.lexists(new):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(new)) from None
        os.replace(old, new)
    else:
        os.unlink(old)


def _renameat2(old: Path, new: Path, flags: int) -> bool:
    """Calls Linux's rename with flags (1: do not replace, 2: exchange); False where it does not exist."""
    if sys.platform != "linux" or _LIBC_RENAME is None:
        return False
    here = -100  # AT_FDCWD
    if _LIBC_RENAME(here, os.fsencode(old), here, os.fsencode(new), flags) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(old), None, str(new))


def _find_libc_rename() -> Any:
    try:
        found = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return found


_LIBC_RENAME = _find_libc_rename()


_USER_FOLDERS = {
    "cache": ("XDG_CACHE_HOME", "~/.cache", "~/Library/Caches"),
    "data": ("XDG_DATA_HOME", "~/.local/share", "~/Library/Application Support"),
}
"""For each kind of files: the variable and the folder on Linux, and the folder on macOS."""


def find_user_folder(kind: str) -> Path:
    """Returns where a user's files are kept, "cache" or "data": $PELLUCID_HOME, or our folder in the
    place that the platform has for them."""
    if home := os.environ.get("PELLUCID_HOME"):
        return Path(home).expanduser().absolute()
    variable, linux, mac = _USER_FOLDERS[kind]
    if sys.platform == "win32":
        parent = Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local")
    elif sys.platform == "darwin":
        parent = Path(mac)
    else:
        given = Path(os.environ.get(variable, ""))
        parent = given if given.is_absolute() else Path(linux)  # XDG: a relative path is ignored
    return parent.expanduser() / "pellucid"


def write_line(file: int, line: bytes) -> None:
    """Writes one line at the end of an open file, to the system before this returns: a killed process loses
    none, and no half line remains for the next one to be appended to."""
    written = os.write(file, line)
    if written != len(line):
        os.ftruncate(file, os.fstat(file).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def make_folders(folder: Path) -> list[Path]:
    """Makes a folder and those above it, each known to the disk; returns those made, outermost first."""
    made: list[Path] = []
    try:
        for place in reversed([folder, *folder.parents]):
            if place.is_dir():
                continue
            try:
                place.mkdir()
            except FileExistsError:
                if place.is_dir():
                    continue  # another call made it in this moment
                raise
            made.append(place)
            fsync_folder(place.parent)
    except OSError as error:
        remove_made(made)
        raise file_error("write", folder, error) from None
    return made


def remove_made(folders: list[Path]) -> None:
    """Removes folders that this call made, as far as they are empty."""
    for place in reversed(folders):
        with contextlib.suppress(OSError):
            place.rmdir()


def fsync_folder(folder: Path) -> None:
    """Flushes the names in a folder to disk: until then a power failure may lose a rename."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


UNPAIRED = "backslashreplace"
"""The error handler for JSON text that may have a lone surrogate, as from a path that is not UTF-8: it is
written as JSON's own escape."""


def check_readable(path: Path) -> None:
    """Raises where a path is a pipe or a device: reading one might never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise FileError(f"cannot read {path}: it is a pipe or a device, and not a file.")


def read_bytes(path: Path, limit: int | None = None) -> bytes:
    """Returns the content of a file; raises where it has more than `limit` bytes."""
    with file_errors("read", path):
        check_readable(path)
        if limit is not None and (size := path.stat().st_size) > limit:
            raise FileError(f"cannot read {path}: it has {size:,} bytes; the limit is {limit:,}.")
        return path.read_bytes()


def read_text(path: Path, limit: int | None = None) -> str:
    """Returns the content of a UTF-8 file."""
    try:
        return read_bytes(path, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise FileError(
            f"cannot read {path}: it is not UTF-8; byte {error.start:,} is 0x{byte:02x}."
        ) from None


def read_json(path: Path) -> Any:
    """Returns the content of a JSON file."""
    try:
        return json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is not JSON: {error}.") from None


def read_format(path: Path, what: str, format: str, *versions: int) -> dict[str, Any]:
    """Returns the table of a JSON file of ours; raises unless it has the format and one of the versions."""
    return check_format(path, read_json(path), what, format, *versions)


def check_format(path: Path, data: Any, what: str, format: str, *versions: int) -> dict[str, Any]:
    """Returns the content of a JSON file of ours; raises unless it is a table of that format and one of the
    versions."""
    if not isinstance(data, dict) or data.get("format") != format:
        raise FileError(f'{path} is not a {what}: it does not say "format": "{format}".')
    found = data.get("version")
    if type(found) is not int or found not in versions:
        older = isinstance(found, int) and found < max(versions)
        raise FileError(
            f"{path} has {what} format {show(found)}; this version of Pellucid reads "
            f"{' and '.join(map(str, versions))}. "
            f"Use the version that wrote it{'' if older else ', or a newer one'}."
        )
    return data


class Damaged(Exception):
    """A fault inside a file; `validating` adds which file it is."""


def need(holds: bool, complaint: str) -> None:
    """Raises `Damaged` with the complaint unless the condition holds."""
    if not holds:
        raise Damaged(complaint)


@contextlib.contextmanager
def validating(path: Path) -> Iterator[None]:
    """Turns a failed `need` inside the block into a FileError about the file."""
    try:
        yield
    except Damaged as error:
        text = str(error)
        raise FileError(f"{path} is damaged: {text}{'' if text.endswith(('.', '?')) else '.'}") from None
