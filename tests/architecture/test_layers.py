"""Imports point downwards, the specification never sees torch, and no file is a drawer for odds and ends."""

import ast
import gc
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

import pellucid

PACKAGE = Path(pellucid.__file__).parent
LAYERS = (
    ("base", "parts", "config"),
    ("reference", "ops", "engine", "report"),
    ("text", "formats", "data", "model"),
    ("explanation", "generation", "evaluation", "interpretability", "training"),
    ("verification", "learning", "verbs"),
    ("server", "cli"),
)
"""The rooms, and the files beside them, in the order of their imports: each imports what stands before it."""
LEVEL = {name: level for level, name in enumerate(name for names in LAYERS for name in names)}
ALONE = {"typer": "cli", "rich": "cli"}
FILES = sorted(PACKAGE.rglob("*.py"))
LOOK_UPS = {"kinds", "find", "module_of", "function_of", "class_of"}
"""The functions of the registry, whose first argument is a family."""
MECHANISM = (
    *("pellucid", "pellucid.base.registry", "pellucid.base.lazy"),
    *("pellucid.cli.app", "pellucid.interpretability.look_kinds"),
)
"""Modules that import what a table names: lazy names of the package and of `Model`, commands, views."""

Sources = Mapping[str, str]
Graph = dict[str, set[str]]


def name_module(file: Path) -> str:
    return ".".join(("pellucid", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


SOURCES: Sources = {name_module(file): file.read_text("utf-8") for file in FILES}


@cache
def parse(source: str) -> ast.Module:
    return ast.parse(source)


@cache
def find_running(source: str) -> list[ast.AST]:
    """Returns every node that runs: imports for type checkers alone are left out."""
    nodes: list[ast.AST] = [parse(source)]
    for node in nodes:
        for child in ast.iter_child_nodes(node):
            if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
                nodes.append(child)  # noqa: PERF401 (the loop goes on with it)
    return nodes


@pytest.fixture(autouse=True, scope="module")
def _forgotten() -> Iterator[None]:
    """The nodes of the whole package hold no cycles, and would slow every collection of garbage."""
    gc.disable()
    yield
    parse.cache_clear()
    find_running.cache_clear()
    gc.enable()


@cache
def static_imports(module: str, source: str) -> frozenset[str]:
    """Returns the dotted names that import statements name, those inside functions among them."""
    found = set()
    for node in find_running(source):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def read_name(module: str, argument: ast.expr) -> str | None:
    """Returns the dotted name that an expression means, `*` for a part that only a run knows; else None."""
    match argument:
        case ast.Constant(str(name)):
            return name
        case ast.Name("__name__"):
            return module
        case ast.JoinedStr(parts):
            inner = (part.value if isinstance(part, ast.FormattedValue) else part for part in parts)
            return "".join(read_name(module, part) or "*" for part in inner)
    return None


@cache
def dynamic_imports(module: str, source: str) -> frozenset[str]:
    """Returns the names that `import_module` is given, and for a look-up in the registry, every kind."""
    found = set()
    for node in find_running(source):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        last = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if last != "import_module" and last not in LOOK_UPS:
            continue
        called = ast.unparse(node.func)
        is_look_up = called.startswith("registry.") and called.removeprefix("registry.") in LOOK_UPS
        if is_look_up or last == "import_module":
            name = read_name(module, node.args[0])
            assert name is not None, f"{module}: {ast.unparse(node)} cannot be followed"
            found.add(f"{name}.*" if is_look_up else name)
    return frozenset(found)


def resolve(name: str, modules: Sources) -> set[str]:
    """Returns the modules of the package that a dotted name imports; a name in a module imports that
    module."""
    before, star, _ = name.partition("*")
    if star:
        prefix = before.rstrip(".")
        return {one for one in modules if one == prefix or one.startswith(before)}
    owner = name.rpartition(".")[0]
    return {one for one in (name, owner) if one in modules and one != "pellucid"} and {
        name if name in modules else owner
    }


def import_graph(modules: Sources, dynamic: bool) -> Graph:
    """Returns which modules each module imports, without itself and the package's own `__init__`."""
    graph: Graph = {}
    for module, source in modules.items():
        names = static_imports(module, source)
        if dynamic and module not in MECHANISM:
            names |= dynamic_imports(module, source)
        graph[module] = set().union(*(resolve(name, modules) for name in names)) - {module, "pellucid"}
    return graph


def join_families(modules: Sources) -> Graph:
    """Returns the graph with dynamic imports, in which a folder that looks its own files up is one node."""
    families = [
        module
        for module, source in modules.items()
        if module not in MECHANISM
        and any(name.startswith((f"{module}.", f"{module}*")) for name in dynamic_imports(module, source))
    ]

    def node(module: str) -> str:
        homes = [home for home in families if module == home or module.startswith(f"{home}.")]
        return min(homes, key=len, default=module)

    joined: Graph = {}
    for module, others in import_graph(modules, dynamic=True).items():
        joined.setdefault(node(module), set()).update(map(node, others))
    return {module: others - {module} for module, others in joined.items()}


def find_cycles(graph: Graph) -> list[set[str]]:
    """Returns the sets of nodes that import each other, directly or through others."""
    reached = {start: reach(graph, start) for start in graph}
    found: list[set[str]] = []
    for start in graph:
        cycle = {other for other in reached[start] if start in reached.get(other, ())}
        if cycle and cycle not in found:
            found.append(cycle)
    return found


def reach(graph: Graph, start: str) -> set[str]:
    """Returns every node that is imported from `start`, directly or through others."""
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        if (one := waiting.pop()) not in seen:
            seen.add(one)
            waiting += graph.get(one, ())
    return seen


def find_upward_imports(modules: Sources) -> list[str]:
    """Returns the imports that do not point to a lower layer, and those of packages that one layer may
    use."""
    found = []
    for module, source in modules.items():
        here = module.partition(".")[2].partition(".")[0]
        if module in MECHANISM:
            continue
        for name in static_imports(module, source) | dynamic_imports(module, source):
            package, _, rest = name.partition(".")
            there = rest.partition(".")[0]
            if package == "pellucid" and there in LEVEL and there != here and LEVEL[there] >= LEVEL[here]:
                found.append(f"{module} imports {name}")
            if ALONE.get(package, here) != here:
                found.append(f"{module} imports {name}")
    return found


def test_an_import_points_to_a_lower_layer() -> None:
    assert not find_upward_imports(SOURCES)


def test_no_module_imports_itself_through_others() -> None:
    assert not find_cycles(import_graph(SOURCES, dynamic=False))


def test_no_family_is_imported_by_one_of_its_own_kinds_through_others() -> None:
    assert not find_cycles(join_families(SOURCES))


@pytest.mark.parametrize(
    "line",
    [
        "from pellucid.engine import Model",
        "def load():\n    import pellucid.verbs",
        "importlib.import_module('pellucid.verbs')",
        "registry.find('pellucid.verbs', kind, 'model')",
        "import typer",
    ],
)
def test_an_upward_import_is_found_however_it_is_written(line: str) -> None:
    assert len(find_upward_imports({"pellucid.config": line})) == 1


@pytest.mark.parametrize(
    "line",
    [
        "from pellucid.engine import run",
        "def attend():\n    from pellucid import engine",
        "importlib.import_module('pellucid.engine')",
    ],
)
def test_a_cycle_through_the_registry_is_found(line: str) -> None:
    """An engine looks a kind up, and the kind imports the engine."""
    modules = {
        "pellucid.engine": "from pellucid import kinds",
        "pellucid.kinds": "from pellucid.base import registry\nregistry.find(__name__, kind, 'kind')",
        "pellucid.kinds.linear": line,
    }
    assert find_cycles(join_families(modules)) == [{"pellucid.engine", "pellucid.kinds"}]
    assert not find_cycles(join_families(modules | {"pellucid.kinds.linear": "import pellucid.kinds"}))


def test_an_import_for_type_checkers_alone_is_not_a_cycle() -> None:
    lazy = "if TYPE_CHECKING:\n    from pellucid.b import B"
    modules = {"pellucid.a": "from pellucid.b import B", "pellucid.b": "from pellucid.a import A"}
    assert find_cycles(import_graph(modules, dynamic=False)) == [{"pellucid.a", "pellucid.b"}]
    assert not find_cycles(import_graph(modules | {"pellucid.a": lazy}, dynamic=False))


def test_an_import_that_cannot_be_followed_is_refused() -> None:
    with pytest.raises(AssertionError, match="cannot be followed"):
        dynamic_imports("pellucid.a", "importlib.import_module(name)")


def test_importing_the_package_imports_nothing_of_it() -> None:
    script = "import sys, pellucid; sys.exit(any(name.startswith('pellucid.') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_every_unit_of_the_package_has_a_layer() -> None:
    units = {module.split(".")[1] for module in SOURCES if module != "pellucid"}
    assert units <= set(LEVEL)


def test_no_command_without_torch_imports_torch() -> None:
    script = (
        "import sys, pellucid.cli, pellucid.model, pellucid.config.cost, pellucid.verification.mistakes, "
        "pellucid.explanation.trace, pellucid.explanation.trace_file, pellucid.verification.replay, "
        "pellucid.verification.judge_run, pellucid.verification.foreign_values, "
        "pellucid.explanation.probe.readings, "
        "pellucid.explanation.conventions, pellucid.formats.resolve, pellucid.formats.gguf, "
        "pellucid.learning.lessons.covers, pellucid.learning.lessons.terminal, pellucid.server.openai.serve, "
        "pellucid.server.openai.serve, pellucid.server.explorer.serve\n"
        "pellucid.load('abcd').explain('A B', at='probs[1,2]')\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_no_file_is_a_drawer_for_odds_and_ends() -> None:
    drawers = {"utils", "util", "helpers", "common", "misc", "manager", "base"}
    assert not [file for file in FILES if file.stem in drawers]


def test_every_file_says_its_idea_in_its_first_line() -> None:
    for module, source in SOURCES.items():
        assert ast.get_docstring(parse(source)) or module.endswith(".__main__"), module


def test_nothing_of_an_untrusted_file_is_ever_run() -> None:
    """No pickle, no evaluated text, no code from a model's folder; `torch.load` with weights_only alone."""
    calls = {"eval", "exec", "pickle.load", "pickle.loads", "yaml.load", "marshal.loads", "np.load"}
    for module, source in SOURCES.items():
        for node in ast.walk(parse(source)):
            if not isinstance(node, ast.Call):
                continue
            called, given = (
                ast.unparse(node.func),
                {word.arg: ast.unparse(word.value) for word in node.keywords},
            )
            assert called not in calls, f"{module}: {called}"
            assert "trust_remote_code" not in given, module
            if called == "torch.load":
                assert given.get("weights_only") == "True", module
