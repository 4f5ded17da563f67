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
LEFT_OUT = frozenset(
    {
        # memory, compilers and GPUs: they decide no number of a run on a CPU
        *(
            "pellucid/engine/compile_cache.py",
            "pellucid/engine/compiler.py",
            "pellucid/engine/device_memory.py",
        ),
        *(
            "pellucid/engine/score_kernel.py",
            "pellucid/generation/ahead.py",
        ),
        *("pellucid/training/compiled_loss.py", "pellucid/training/device.py", "pellucid/training/memory.py"),
        "pellucid/engine/cpu/library.py",
        # what is watched and told about a run
        *("pellucid/engine/recording.py", "pellucid/engine/taps.py", "pellucid/training/forecast.py"),
        *("pellucid/training/machine.py", "pellucid/training/pace.py", "pellucid/training/saving/lock.py"),
        *("pellucid/training/plan.py", "pellucid/training/saving/environment.py"),
        *("pellucid/training/run_listing.py", "pellucid/training/train.py"),
        # files and screens around a text
        *("pellucid/generation/prompt_jobs.py", "pellucid/generation/conversation_file.py"),
        *("pellucid/generation/conversation.py", "pellucid/generation/sweep.py"),
    }
)


def list_files(area: str) -> list[str]:
    """Returns the files of an area, relative to the repository, in order."""
    found = {path.relative_to(ROOT).as_posix() for glob in AREAS[area][1] for path in ROOT.glob(glob)}
    return sorted(
        name for name in found - LEFT_OUT if not name.endswith("__init__.py") or "attentions" in name
    )
