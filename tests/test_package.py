"""What `import pellucid` offers is listed, importable and typed."""

import ast
import rlcompleter
from pathlib import Path

import pellucid


def test_dir_lists_what_is_public_and_nothing_else() -> None:
    assert sorted(dir(pellucid)) == sorted([*pellucid.__all__, "__version__"])
    for name in pellucid.__all__:
        assert getattr(pellucid, name) is not None
    assert not hasattr(pellucid, "Any")


def test_every_public_name_is_imported_for_type_checkers_from_where_it_is() -> None:
    source = Path(pellucid.__file__)
    (block,) = (node for node in ast.parse(source.read_text("utf-8")).body if isinstance(node, ast.If))
    listed = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert listed == pellucid._WHERE and set(listed) == set(pellucid.__all__)
    assert source.with_name("py.typed").exists()


def test_tab_completes_the_public_names() -> None:
    found = rlcompleter.Completer({"pellucid": pellucid}).attr_matches("pellucid.")
    assert sorted(name.rstrip("()") for name in found) == [f"pellucid.{name}" for name in pellucid.__all__]
