"""The sources in which faults are drawn, and how often each area is."""

from pathlib import Path

ROOT = Path(__file__).parents[3]
AREAS: dict[str, tuple[float, tuple[str, ...]]] = {
    "engine": (
        0.40,
        (
            "pellucid/engine/*.py",
            "pellucid/engine/attentions/*.py",
            "pellucid/generation/*.py",
            "pellucid/generation/samplers/*.py",
            "pellucid/generation/strategies/*.py",
            "pellucid/generation/constraints/*.py",
            "pellucid/generation/settings/sampling.py",
            "pellucid/generation/settings/resolve.py",
            "pellucid/generation/ledger/entry.py",
            "pellucid/generation/ledger/content.py",
            "pellucid/generation/ledger/replay.py",
        ),
    ),
    "native": (0.17, ("pellucid/engine/cpu/*.c", "pellucid/engine/cpu/*.h")),
    "native calls": (0.08, ("pellucid/engine/cpu/*.py",)),
    "training": (
        0.35,
        (
            "pellucid/training/*.py",
            "pellucid/training/saving/*.py",
            "pellucid/training/history/log.py",
            "pellucid/verification/runs/rebuild.py",
            "pellucid/verification/runs/rebuilt_step.py",
            "pellucid/training/recipe/sections.py",
            "pellucid/data/loader.py",
            "pellucid/data/batches.py",
            "pellucid/data/permutation.py",
            "pellucid/data/shard.py",
            "pellucid/data/tokens.py",
            "pellucid/data/rows/*.py",
            "pellucid/data/sources/generated.py",
            "pellucid/data/sources/source.py",
            "pellucid/data/sources/validation.py",
            "pellucid/evaluation/loss.py",
        ),
    ),
}
"""Of each area, the share of the drawn faults and the files."""
LEFT_OUT = frozenset(f"pellucid/{name}.py" for name in (
    # memory, compilers and GPUs: they decide no number of a run on a CPU
    "engine/compile_cache", "engine/compiler", "engine/device_memory",
    "engine/cross_entropy_kernel", "engine/cpu/library", "generation/ahead",
    "training/compiled_loss", "training/device", "training/memory",
    # what is watched and told about a run
    "engine/recording", "engine/taps", "training/forecast", "training/machine", "training/pace",
    "training/saving/lock", "training/plan", "training/saving/environment", "training/run_listing",
    "training/train",
    # files and screens around a text
    "generation/prompt_jobs",
    "generation/conversation_file", "generation/conversation", "generation/sweep",
))  # fmt: skip


def list_files(area: str) -> list[str]:
    """Returns the files of an area, relative to the repository, in order."""
    found = {path.relative_to(ROOT).as_posix() for glob in AREAS[area][1] for path in ROOT.glob(glob)}
    return sorted(
        name for name in found - LEFT_OUT if not name.endswith("__init__.py") or "attentions" in name
    )
