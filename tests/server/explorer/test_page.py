"""The page's modules: they compute nothing, parse no markup, and can be joined into one script."""

import re
from collections import Counter
from pathlib import Path

import pytest

import pellucid.server.explorer

FOLDER = Path(pellucid.server.explorer.__file__).parent / "page"
MODULES = sorted(FOLDER.glob("*.js"))
MOST_BYTES = 120_000
ARITHMETIC = {"min", "max", "round", "abs", "floor", "ceil"}
"""What lays out: nothing of a model can be computed with these."""
PARSERS = (
    r"\.innerHTML|\.outerHTML|insertAdjacentHTML|createContextualFragment|document\.write|DOMParser|srcdoc"
    r"|setHTML|\beval\b|\bFunction\(|javascript:|setAttribute\(\"style\"|style: \""
)
FOREIGN = r"https?://(?!www\.w3\.org/(?:2000/svg|1998/Math/MathML)\")"


def find_names(source: str) -> list[str]:
    """Returns the names that a module declares at its top level."""
    pattern = r"^(?:export )?(?:async )?(?:const|let|var|class|function\*?) (\w+|\{[^}]*\}|\[[^\]]*\])"
    return [name for found in re.findall(pattern, source, re.M) for name in re.findall(r"\w+", found)]


def find_violations(source: str) -> list[str]:
    """Returns what a module may not contain, outside of comments."""
    source = re.sub(r"/\*.*?\*/", "", source, flags=re.S)
    return [
        *(f"Math.{name}" for name in re.findall(r"\bMath\.(\w+)", source) if name not in ARITHMETIC),
        *re.findall(r"\bMath\b(?![./]\w)|\*\*", source),
        *re.findall(PARSERS, source),
        *re.findall(FOREIGN, source),
    ]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_a_module_computes_nothing_and_parses_no_markup(module: Path) -> None:
    assert not find_violations(module.read_text("utf-8"))


@pytest.mark.parametrize(
    "line",
    [
        "const y = Math.exp(x);",
        "const { exp } = Math;",
        "const y = x ** 2;",
        "element.innerHTML = text;",
        'element.insertAdjacentHTML("beforeend", text);',
        "new DOMParser()",
        "eval(text)",
        'element.setAttribute("style", text);',
        'h("p", { style: "color: red" })',
        'fetch("https://example.org")',
    ],
)
def test_a_violation_is_found(line: str) -> None:
    assert find_violations(line)


def test_a_name_is_declared_in_one_module_only() -> None:
    """An exported page joins the modules into one script."""
    counts = Counter(name for module in MODULES for name in set(find_names(module.read_text("utf-8"))))
    assert not [name for name, count in counts.items() if count > 1]


def test_imports_are_named_and_from_the_folder_and_never_circular() -> None:
    reads: dict[str, set[str]] = {}
    for module in MODULES:
        source = module.read_text("utf-8")
        imports = re.findall(r"^import (.*?) from \"(.*?)\";$", source, re.M | re.S)
        assert len(imports) == len(re.findall(r"^\s*import\b|\bimport\(", source, re.M)), module.name
        for names, path in imports:
            assert re.fullmatch(r"\./\w+\.js", path) and (FOLDER / path).is_file(), (module.name, path)
            exported = re.findall(r"^export (?:async )?\w+ (\w+)", (FOLDER / path).read_text("utf-8"), re.M)
            assert set(re.findall(r"\w+", names)) <= set(exported), (module.name, path)
        assert not re.search(r"^export (default|\{|\*)", source, re.M), module.name
        reads[module.name] = {path[2:] for _, path in imports}
    while free := {name for name, read in reads.items() if not read & reads.keys()}:
        reads = {name: read for name, read in reads.items() if name not in free}
    assert not reads


def test_the_page_has_no_style_or_script_of_its_own() -> None:
    text = (FOLDER / "index.html").read_text("utf-8")
    assert not re.search(r"\sstyle=|\son\w+=|<style|<script(?! type=\"module\" src=)", text)
    assert not re.search(r"url\((?!#)|@import|@font-face", (FOLDER / "page.css").read_text("utf-8"))


def test_the_page_is_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= MOST_BYTES
