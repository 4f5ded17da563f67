"""A test file is named after the module that it tests, so that each is found from the other."""

from pathlib import Path

import pellucid

PACKAGE = Path(pellucid.__file__).parent
TESTS = PACKAGE.parent / "tests"
FILES = sorted(path.relative_to(TESTS) for path in TESTS.rglob("test_*.py"))
ROOMS = {"agreement", "architecture", "browser", "choices", "faults", "golden"}
"""Folders of claims about the whole package."""
CLAIMS = {
    "cli/test_evaluation_page.py": "docs/evaluation.md",
    "cli/test_generation_page.py": "docs/generation.md",
    "cli/test_nothing_lost.py": "every command that writes, under faults of the disk",
    "cli/test_random_commands.py": "every command, with any arguments",
    "cli/test_recorder_page.py": "docs/recorder.md",
    "cli/test_streams.py": "every command, with closed streams, signals and exit codes",
    "formats/gguf/test_llama_cpp.py": "reading and writing, against llama.cpp",
    "formats/gguf/test_smollm2.py": "reading and writing, with a real model",
    "formats/huggingface/test_greedy.py": "reading and generating, against transformers",
    "formats/huggingface/test_oracle.py": "reading and writing, against transformers",
    "server/test_hostile_sockets.py": "the server, with clients that are slow, silent, many or gone",
    "server/test_load.py": "a served model with many clients at once",
    "test_package.py": "what `import pellucid` offers",
    "test_wrong_types.py": "every public function, with arguments of wrong types",
    "training/recipe/test_recipes_page.py": "docs/recipes.md",
    "test_python_page.py": "docs/python.md",
}
"""Files about more than one module, with what they claim."""


def find_named(file: Path) -> list[str]:
    """Returns the modules, folders and packages that the name of a test file may mean."""
    room, words = PACKAGE / file.parent, file.stem.removeprefix("test_").split("_")
    names = {"_".join(words[: count + 1]) for count in range(len(words))}
    return [name for name in names if (room / f"{name}.py").exists() or (room / name).is_dir()] + [
        name for name in names if name == file.parent.name
    ]


def test_a_test_file_is_named_after_a_module_and_perhaps_an_aspect_of_it() -> None:
    """test_MODULE.py or test_MODULE_ASPECT.py; or CLAIMS says what it claims."""
    claims = {file for file in FILES if file.parts[0] in ROOMS or str(file) in CLAIMS}
    assert not [str(file) for file in FILES if file not in claims and not find_named(file)]


def test_every_claim_is_of_a_file_that_no_module_names() -> None:
    assert set(map(Path, CLAIMS)) <= set(FILES)
    assert not [file for file in CLAIMS if find_named(Path(file))]
