"""The ledger file: JSON from which every draw can be recomputed, with each number bit for bit.

A record is a table of its fields, a candidate and a node of a beam search a list of them. Numbers are written
with as many digits as they need to be read back exactly; an infinite one is the text "inf" or "-inf".
"""

import dataclasses
import functools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

from pellucid.base.errors import FileError
from pellucid.base.files import (
    UNPAIRED,
    Damaged,
    check_format,
    check_output,
    check_suffix,
    make_json_kind,
    need,
    new_file,
    read_bytes,
    validating,
)
from pellucid.base.schema import fields_of, fields_with, read, to_field
from pellucid.generation.ledger.content import LedgerRecord
from pellucid.generation.ledger.entry import (
    FATES,
    MOST_CANDIDATES,
    NOT_IN_LEDGER,
    PROPOSERS,
    BeamNode,
    Candidate,
    Entry,
)
from pellucid.generation.request import FINISH_REASONS, Completion
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.settings.table import SETTINGS

FORMAT, VERSION = "pellucid-ledger", 1
Record = TypeVar("Record", bound=LedgerRecord)
MOST_BYTES = 2**27
"""The largest file that is read or written: about 100,000 tokens."""
_ROWS = (Candidate, BeamNode)
"""Records that are written as lists, since a file has thousands of them."""
_INFINITE = {"inf": math.inf, "-inf": -math.inf}
LEDGER = make_json_kind("a ledger", FORMAT)


def check_not_page(path: Path) -> None:
    """Raises where a page of a ledger is given in place of its file."""
    if path.suffix == ".html":
        raise FileError(f"{path} is a page, which has rounded numbers: give the .json file of the ledger.")


def is_ledger(path: Path) -> bool:
    """Returns whether a file says that it is a ledger, of whatever version."""
    return not LEDGER.why_not(path)


def check_ledger_output(path: Path, force: bool = False) -> None:
    """Raises unless a ledger may be written there; call it before the work."""
    check_output(path, LEDGER, force)
    check_suffix(path, ".json", "a ledger is a .json file, or a page, .html")


def write_ledger(ledger: LedgerRecord, path: Path, force: bool = False) -> None:
    """Writes the file whole or not at all; `force` replaces another ledger."""
    check_ledger_output(path, force)
    text = json.dumps(make_file_data(ledger), ensure_ascii=False, allow_nan=False)
    content = text.encode("utf-8", UNPAIRED)
    if len(content) > MOST_BYTES:
        raise FileError(
            f"cannot write {path}: it would have {len(content):,} bytes, and a ledger has at most "
            f"{MOST_BYTES:,}. Record fewer tokens."
        )
    with new_file(path, LEDGER, force) as file:
        file.write(content)


def make_file_data(ledger: LedgerRecord) -> dict[str, Any]:
    """Returns what the file of a ledger holds."""
    return {"format": FORMAT, "version": VERSION, **to_data(ledger)}


def to_data(value: Any) -> Any:
    """Returns a record as plain data."""
    if isinstance(value, Sampling):
        return to_data(value.to_dict(always=SETTINGS))
    if dataclasses.is_dataclass(value):
        known = [entry.name for entry in dataclasses.fields(value) if entry.metadata != NOT_IN_LEDGER]
        items = {name: to_data(getattr(value, name)) for name in known}
        return list(items.values()) if isinstance(value, _ROWS) else items
    if isinstance(value, Mapping):
        return {str(key): to_data(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_data(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


# ---- reading: a file may be damaged or malicious


def read_ledger(path: Path, kind: type[Record] = LedgerRecord) -> Record:  # type: ignore[assignment]
    """Returns the ledger of a file, as that class; raises a FileError that names the damage."""
    try:
        data = json.loads(read_bytes(path, MOST_BYTES))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is not JSON: {error}.") from None
    data = check_format(path, data, "ledger", FORMAT, VERSION)
    with validating(path):
        fields = {key: value for key, value in data.items() if key not in ("format", "version")}
        ledger: Record = _read(kind, fields, "the ledger")
        _check(ledger)
        return ledger


def _read(kind: Any, value: Any, name: str) -> Any:
    """Returns a value of the type that a field has."""
    if kind is Sampling:
        return Sampling.read(value, name, error=Damaged)
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        if kind in _ROWS:
            names = [entry.name for entry in dataclasses.fields(kind)]
            need(isinstance(value, list) and len(value) == len(names), f"{name} is not {', '.join(names)}")
            value = dict(zip(names, value, strict=True))
        readers = {field.name: functools.partial(_read, field.type) for field in fields_of(kind)}
        return read(fields_with(kind, readers), value, name, kind, path=name, error=Damaged)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is tuple and dataclasses.is_dataclass(inner[0]):
        need(isinstance(value, list), f"{name} is not a list")
        return tuple(_read(inner[0], one, f"{name}.{i}") for i, one in enumerate(value))
    if origin is Mapping:
        need(isinstance(value, dict), f"{name} is not a table")
        return {
            _read_key(inner[0], key, name): _read(inner[1], one, f"{name}.{key}")
            for key, one in value.items()
        }
    if kind is float or (isinstance(kind, UnionType) and float in inner):
        if isinstance(value, str) and value in _INFINITE:
            return _INFINITE[value]
        need(not isinstance(value, float) or math.isfinite(value), f"{name} is {value!r}, which is not JSON")
    return to_field(kind).read(value, name, error=Damaged)


def _read_key(kind: Any, key: str, name: str) -> Any:
    if kind is not int:
        return key
    need(key.isascii() and key.isdigit() and len(key) < 19, f"{name} has the key {key!r}, not a token's id")
    return int(key)


def _check(ledger: LedgerRecord) -> None:
    """Raises unless the numbers are possible ones; whether they are right is for `replay`."""
    size = ledger.model.vocab_size
    need(0 < size < 2**31, f"the vocabulary has {size} tokens")
    need(0 < ledger.model.context_length < 2**40, "the model's context_length is not positive")
    _check_ids("the prompt", ledger.prompt, size)
    need(bool(ledger.prompt), "the prompt is empty")
    need(bool(ledger.completions), "it has no completions")
    for place, completion in enumerate(ledger.completions):
        name = f"completion {place}"
        need(completion.choice == place, f"{name} is choice {completion.choice}")
        need(completion.finish in FINISH_REASONS, f"{name} ended by {completion.finish!r}")
        need(not completion.beams, f"{name} has a beam search of its own")
        _check_completion(name, completion, size)
        if completion.node is not None:
            need(0 <= completion.node < len(ledger.beams), f"{name} is a beam that does not exist")
    for place, node in enumerate(ledger.beams):
        _check_ids("the beam search", (node.id,), size)
        need(-1 <= node.parent < place, f"node {place} of the beam search stands before its parent")
        need(node.fate in FATES, f"node {place} of the beam search is {node.fate!r}")
        need(node.penalty is None or 0 < node.penalty < math.inf, f"node {place} has a penalty of 0")
    for cut in ledger.shortenings:
        need(0 <= cut.choice < len(ledger.completions), f"choice {cut.choice} does not exist")


def _check_completion(name: str, completion: Completion, size: int) -> None:
    _check_ids(name, completion.ids, size)
    need(len(completion.entries) in (0, len(completion.ids)), f"{name} has not an entry for each token")
    for step, entry in enumerate(completion.entries):
        need(entry.id == completion.ids[step], f"{name}: entry {step} is of another token")
        _check_entry(f"{name}, token {step}", entry, size)
    for one in completion.speculative:
        _check_ids(name, one.proposed, size)
        need(one.proposer in PROPOSERS, f"{name}: tokens proposed by {one.proposer!r}")
        possible = 0 <= one.step <= len(completion.ids) and 0 <= one.accepted <= len(one.proposed)
        need(possible, f"{name}: a speculative step is impossible")


def _check_entry(name: str, entry: Entry, size: int) -> None:
    _check_ids(name, [one.id for one in entry.candidates], size)
    ids = {one.id for one in entry.candidates}
    need(len(ids) == len(entry.candidates), f"{name} has a candidate twice")
    need(0 < len(ids) <= min(MOST_CANDIDATES, entry.kept), f"{name} has {len(ids)} candidates")
    need(entry.kept <= size, f"{name} keeps {entry.kept} tokens of {size}")
    need(0 <= entry.rank < size, f"{name} has the rank {entry.rank}")
    need(entry.u is None or 0 <= entry.u < 1, f"{name} has u = {entry.u!r}")
    shares = [entry.probability, *(one.probability for one in entry.candidates)]
    shares += [removal.mass for removal in entry.removed]
    need(all(0 <= share <= 1 + 1e-9 for share in shares), f"{name} has a probability beyond 0 and 1")
    need(entry.surprisal >= -1e-9 and entry.entropy >= -1e-9, f"{name} has a negative surprisal or entropy")
    finite = [entry.log_normalizer, entry.entropy, *(one.score for one in entry.candidates)]
    need(all(map(math.isfinite, finite)), f"{name} has a score that is infinite")
    for removal in entry.removed:
        _check_ids(name, removal.ids, size)
        need(len(removal.ids) <= removal.count <= size, f"{name}: {removal.sampler} removed {removal.count}")


def _check_ids(name: str, ids: Any, size: int) -> None:
    wrong = [id for id in ids if not 0 <= id < size]
    need(not wrong, f"{name} has the token {wrong[:1]}, and ids go from 0 to {size - 1}")
