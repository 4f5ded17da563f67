"""`constraints.txt` names the whole set of packages that the suite was green on."""

import re
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]

PLATFORM = re.compile("nvidia-.*|cuda-.*|triton|setuptools|pip")
"""What one build of torch brings and another does not; each of them pins these itself."""


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.split("==") for line in lines if not line.startswith("#")]
    return {normalize(name): version for name, version in pins}


def list_needed(name: str, extra: str = "", found: set[str] | None = None) -> set[str]:
    """Returns the installed packages that a package and one of its extras need, and what those need."""
    found = set() if found is None else found
    for line in metadata.requires(name) or ():
        requirement, _, marker = line.partition(";")
        needed = normalize(re.split(r"[^\w.-]", requirement.strip())[0])
        is_wanted = "extra" not in marker or re.search(rf"extra\s*==\s*['\"]{extra}['\"]", marker)
        if is_wanted and needed not in found and needed != "pellucid":
            try:
                metadata.version(needed)
            except metadata.PackageNotFoundError:
                continue  # for another platform
            found.add(needed)
            inner = re.search(r"\[(.+?)\]", requirement)
            for more in ("", *(inner[1].split(",") if inner else ())):
                list_needed(needed, more.strip(), found)
    return found


def test_every_package_that_setup_installs_has_one_version() -> None:
    pins = read_pins()
    missing = {name for name in list_needed("pellucid", "dev") if not PLATFORM.fullmatch(name)} - {*pins}
    assert not missing, f"constraints.txt does not name {sorted(missing)}"
    assert "torch" in pins and "transformers" in pins and len(pins) > 100
