"""Checks the files of a run: its checkpoints and its models against the checksums beside them."""

from pathlib import Path

from pellucid.base.formatting import pluralize
from pellucid.formats.checkpoint_manifest import BEST, MODEL, measure, parse_step
from pellucid.training.saving.published import read_origin
from pellucid.verification.checks.training.run_subject import RunCheck, RunSubject
from pellucid.verification.verdict import Finding, Judged, Verdict


def measure_files(subject: RunSubject) -> Finding:
    """Hashes every file of the checkpoints and of the published models; names the first that was changed."""
    if subject.past.folder.read_status().state == "running":
        return Finding(Verdict.SKIPPED, "the run is under way, and replaces its files")
    folder, whole, skipped = subject.past.folder, 0, list[str]()
    most: int | None = None
    while True:
        found, why = folder.find_newest(most)
        skipped += why
        if found is None:
            break
        whole, most = whole + 1, (parse_step(found.name) or 0) - 1
    if skipped:
        message = "; ".join(dict.fromkeys(skipped))
        return Finding(
            Verdict.BUG, f"{pluralize(len(set(skipped)), 'checkpoint')} damaged", "checkpoints", message
        )
    models = 0
    for name in (MODEL, BEST):
        path = folder.path / name
        origin = read_origin(path) if path.is_dir() else None
        if origin is None:
            continue
        models += 1
        for file, entry in origin.files.items():
            if (changed := _find_change(path / file, entry)) is not None:
                message = (
                    f"{path / file} is not the file that the run wrote there at step {origin.step}: {changed}"
                )
                return Finding(Verdict.BUG, "another file", f"{name}/{file}", message)
    return Finding(Verdict.EQUAL, f"{pluralize(whole, 'checkpoint')}, {pluralize(models, 'model')}")


def _find_change(path: Path, entry: object) -> str | None:
    """Returns what is not as it was written; None where all is."""
    if not path.is_file():
        return "it is gone"
    if isinstance(entry, dict) and measure(path)["sha256"] != entry.get("sha256"):
        return "its checksum is another"
    return None


CHECKS = (
    RunCheck(
        "run files",
        "Every file of a checkpoint or of a model of the run is the one that the run wrote.",
        "byte for byte",
        measure_files,
        trusts="the checksums that the run wrote beside its files",
        judges=Judged.MODEL,
    ),
)
