"""The page of all messages: every error that the package can raise, read from its source."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from pellucid.base import errors

CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.PellucidError)
}
BUILDERS = {
    "file_error": ("FileError", "cannot {0} {1}: {{reason}}."),
    "need": ("FileError", "{{path}} is damaged: {1}"),
    "Damaged": ("FileError", "{{path}} is damaged: {0}"),
    "NoLibrary": ("PellucidError", "{0}"),
    "NotDecodable": ("UsageError", "{0}"),
}
"""Functions and subclasses that build an error, with its class and the message of their arguments."""
TEXTS = {
    "not_one_of": "{0} must be one of {{names}}; got {1}.",
    "unknown": "{0} must be one of {{names}}; got {1}.{{hint}}",
    "did_you_mean": "{{hint}}",
    "show": "{0}",
    "quote": "{0}",
    "repr": "{0}",
    "str": "{0}",
}
"""Functions that return a text."""


def messages_page(package: Path) -> Iterator[str]:
    """Yields the page: messages by class, then by file, in the order of the source."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for file in sorted(package.rglob("*.py")):
        text = file.read_text("utf-8")
        if not any(f"{name}(" in text for name in (*CLASSES, *BUILDERS)):
            continue
        for name, message in messages(ast.parse(text)):
            here = found[name][str(file.relative_to(package.parent))]
            if message not in here:
                here.append(message)
    count = sum(len(texts) for files in found.values() for texts in files.values())
    yield "# Messages\n"
    yield (
        f"Every error message that the package can raise, {count} in all: the fact, the reason, the remedy. "
        "`{name}` is filled in, `[words]` are there in some cases, and `{hint}` is a close name, if there is "
        "one. The class is what Python code catches; the command line prints the message alone and ends with "
        "the exit code.\n"
    )
    for name, kind in CLASSES.items():
        if name in found:
            yield f"## {name}, exit code {kind.exit_code}\n"
            for path, texts in found[name].items():
                yield "\n".join((f"`{path}`\n", "```text", *texts, "```\n"))


def messages(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yields the class and the message of every error that is built in a module."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            nodes = list(_own_nodes(function))
            values = _assigned(nodes)
            for node in nodes:
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                    name = node.func.id
                    if name in CLASSES:
                        yield name, render(node.args[0], values)
                    elif name in BUILDERS and function.name != name:
                        kind, form = BUILDERS[name]
                        yield kind, form.format(*(render(argument, values) for argument in node.args))


def _own_nodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Yields the nodes of a function in the order of the source, without those of functions inside it."""
    stack: list[ast.AST] = list(reversed(function.body))
    while stack:
        node = stack.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node
            stack += reversed(list(ast.iter_child_nodes(node)))


def _assigned(nodes: list[ast.AST]) -> dict[str, ast.expr]:
    """Returns the texts that a function gives a name before it uses them in a message."""
    texts = (ast.JoinedStr, ast.Constant, ast.BinOp, ast.IfExp)
    return {
        target.id: node.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, texts)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def render(node: ast.expr, values: dict[str, ast.expr]) -> str:
    """Returns the text of an expression, {name} for what is only known when the program runs."""
    match node:
        case ast.Constant(str(text)):
            return text.replace("\n", " ")
        case ast.JoinedStr(parts):
            return "".join(render(part, values) for part in parts)
        case ast.FormattedValue(value):
            return render(value, values)
        case ast.BinOp(left, ast.Add(), right):
            return render(left, values) + render(right, values)
        case ast.BinOp(left, ast.Mult()):
            return f"[{render(left, values)}]"
        case ast.IfExp(_, then, other):
            both = render(then, values), render(other, values)
            return f"[{' | '.join(both)}]" if all(both) else f"[{''.join(both)}]"
        case ast.Name(name) if name in values and is_text(values[name]):
            return render(values[name], {key: value for key, value in values.items() if key != name})
        case ast.Call(ast.Name(name), [*arguments]) if name in TEXTS:
            return TEXTS[name].format(*(render(argument, values) for argument in arguments))
        case ast.Constant(value):
            return str(value)
    return f"{{{_label(node)}}}"


def is_text(node: ast.expr) -> bool:
    """Returns whether an expression is a text: a literal, an f-string, or one built of them."""
    match node:
        case ast.JoinedStr() | ast.Constant(str()):
            return True
        case ast.BinOp(left, _, right):
            return is_text(left) or is_text(right)
        case ast.IfExp(_, then, other):
            return is_text(then) and is_text(other)
    return False


def _label(node: ast.expr) -> str:
    """Returns a short name for the value of an expression."""
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(_, name):
            return name
        case ast.Call(ast.Attribute(ast.Constant(), "join"), [first]):
            return _label(first)
        case ast.Call(ast.Name("map" | "sorted" | "list" | "set" | "tuple" | "len" | "type"), arguments):
            return _label(arguments[-1])
        case ast.Call(function, arguments):
            return _label(arguments[0]) if arguments else _label(function)
        case ast.Subscript(value) | ast.Starred(value) | ast.UnaryOp(_, value):
            return _label(value)
        case ast.BinOp(left):
            return _label(left)
        case ast.GeneratorExp(_, [comprehension, *_]) | ast.ListComp(_, [comprehension, *_]):
            return _label(comprehension.iter)
        case ast.NamedExpr(target) | ast.BoolOp(_, [target, *_]):
            return _label(target)
    return "…"
