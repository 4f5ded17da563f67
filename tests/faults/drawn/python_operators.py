"""The operators for Python: the places of a source where each applies, by its syntax tree.

Each place is one piece of one line. What computes nothing is left out: documentation, messages, imports,
annotations, and the checks of what callers give.
"""

import ast
from collections.abc import Iterable, Iterator

from tests.faults.drawn.mutation import Place
from tests.faults.drawn.sizes import change_float, change_integer

ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "%"),
    ast.Mod: ("%", "//"),
}
COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
}
_PAIRS = (
    ("min", "max"), ("minimum", "maximum"), ("amin", "amax"), ("argmin", "argmax"),
    ("clamp_min", "clamp_max"), ("any", "all"), ("floor", "ceil"),
)  # fmt: skip
EXTREMES = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
OF_AXES = frozenset(
    {
        *(
            "sum",
            "mean",
            "softmax",
            "log_softmax",
            "transpose",
            "unsqueeze",
            "squeeze",
            "cat",
            "stack",
            "sort",
        ),
        *(
            "argmax",
            "argmin",
            "gather",
            "cumsum",
            "flip",
            "roll",
            "amax",
            "amin",
            "logsumexp",
            "topk",
            "size",
        ),
        *("flatten", "unflatten", "norm", "prod", "split", "chunk", "repeat_interleave"),
    }
)
"""Functions whose small integers are axes."""
SILENT = (
    *("check_", "_check", "warn", "describe", "format", "say", "summary", "explain", "refuse", "_refuse"),
    *("__repr__", "__str__"),
)
"""How functions begin that compute no number: they check arguments or write messages."""
MESSAGES = (
    "Error",
    "log",
    "warn",
    "warning",
    "info",
    "debug",
    "report",
    "pluralize",
    "unknown",
    "show",
    "quote",
)


def find_places(file: str, source: str) -> list[Place]:
    """Returns every place of a Python source, in order."""
    tree = ast.parse(source)
    lines = source.splitlines()
    found = _Finder(file, lines)
    found.visit(tree)
    return sorted(set(found.places))


class _Finder(ast.NodeVisitor):
    def __init__(self, file: str, lines: list[str]) -> None:
        self.file, self.lines, self.places = file, lines, list[Place]()
        self.bound: list[set[str]] = []
        """Of each function around, the names that have a value."""
        self.is_in_init = False

    # ---- spans

    def _column(self, line: int, offset: int) -> int:
        return len(self.lines[line - 1].encode()[:offset].decode())

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int, int] | None:
        """Returns line, first and last column of a node; None where it is on several lines."""
        line = node.lineno
        if node.end_lineno != line or node.end_col_offset is None:
            return None
        return line, self._column(line, node.col_offset), self._column(line, node.end_col_offset)

    def _text(self, node: ast.expr) -> str | None:
        span = self._span(node)
        return None if span is None else self.lines[span[0] - 1][span[1] : span[2]]

    def _add(self, operator: str, line: int, start: int, end: int, *options: str) -> None:
        before = self.lines[line - 1][start:end]
        others = tuple(option for option in options if option != before)
        if others:
            self.places.append(Place(self.file, line, start, before, others, operator))

    def _replace(self, operator: str, node: ast.expr | ast.stmt, *options: str) -> None:
        if (span := self._span(node)) is not None:
            self._add(operator, *span, *options)

    def _replace_between(self, operator: str, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        """Replaces an operator between two operands on one line."""
        a, b = self._span(left), self._span(right)
        if a is None or b is None or a[0] != b[0]:
            return
        between = self.lines[a[0] - 1][a[2] : b[1]]
        if between.count(old) == 1:
            start = a[2] + between.index(old)
            self._add(operator, a[0], start, start + len(old), new)

    # ---- what computes nothing

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        is_overload = any("overload" in ast.unparse(one) for one in node.decorator_list)
        if is_overload or node.name.startswith(SILENT) or "html" in node.name:
            return
        arguments = node.args
        given = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        self.bound.append({argument.arg for argument in given})
        before, self.is_in_init = self.is_in_init, node.name in ("__init__", "__post_init__")
        for default in (*arguments.defaults, *(one for one in arguments.kw_defaults if one is not None)):
            self.visit(default)
        self._visit_all(node.body)
        self.is_in_init = before
        self.bound.pop()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        pass

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_all(node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
        self._bind([node.target])

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_Raise(self, node: ast.Raise) -> None:
        pass

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.unparse(node.test):
            return
        is_refusal = isinstance(node.body[-1], ast.Raise)  # a check of what was given, or a message
        if not is_refusal:
            self._negate(node.test)
            self.visit(node.test)
            self._visit_all(node.body)
        self._visit_all(node.orelse)

    def _visit_all(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self._delete(statement)
            self.visit(statement)
            if isinstance(statement, ast.Assign):
                self._bind(statement.targets)
            elif isinstance(statement, ast.For):
                self._bind([statement.target])

    def _bind(self, targets: Iterable[ast.expr]) -> None:
        if self.bound:
            names = (one for target in targets for one in ast.walk(target))
            self.bound[-1].update(one.id for one in names if isinstance(one, ast.Name))

    # ---- operators

    def _delete(self, node: ast.stmt) -> None:
        """A statement whose absence is not an unknown name: a call, a new value of a name or an attribute."""
        if isinstance(node, ast.Expr):
            is_one = isinstance(node.value, ast.Call) and not _is_message(node.value)
        elif isinstance(node, ast.Assign):
            is_one = not self.is_in_init and bool(self.bound) and all(map(self._has_value, node.targets))
        else:
            is_one = isinstance(node, ast.AugAssign)
        if is_one:
            self._replace("statement deleted", node, "pass")

    def _has_value(self, target: ast.expr) -> bool:
        if isinstance(target, ast.Name):
            return target.id in self.bound[-1]
        if isinstance(target, ast.Tuple):
            return all(map(self._has_value, target.elts))
        return isinstance(target, ast.Attribute | ast.Subscript)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        operands = (node.left, node.right)
        is_text = any(isinstance(one, ast.JoinedStr) or _is_string(one) for one in operands)
        if type(node.op) in ARITHMETIC and not is_text:
            self._replace_between("arithmetic", *operands, *ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if type(node.op) in ARITHMETIC and not _is_string(node.value):
            old, new = (f"{one}=" for one in ARITHMETIC[type(node.op)])
            self._replace_between("arithmetic", node.target, node.value, old, new)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for operator, left, right in zip(node.ops, operands[:-1], operands[1:], strict=True):
            if type(operator) in COMPARISONS:
                self._replace_between("comparison", left, right, *COMPARISONS[type(operator)])
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # which only refuses
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._replace("flag", node, str(not value))
        elif isinstance(value, int):
            self._replace("constant", node, *change_integer(value))
        elif isinstance(value, float) and value == value:
            self._replace("constant", node, *change_float(value))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.USub) and (text := self._text(node.operand)):
            self._replace("minus dropped", node, text)
        if isinstance(node.op, ast.Not) and (text := self._text(node.operand)):
            self._replace("condition negated", node, f"bool({text})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values[:-1], node.values[1:], strict=True):
            self._replace_between("condition negated", left, right, f" {old} ", f" {new} ")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if (text := self._text(test)) and not isinstance(test, ast.UnaryOp):
            self._replace("condition negated", test, f"(not ({text}))")

    def visit_Slice(self, node: ast.Slice) -> None:
        for bound in (node.lower, node.upper):
            if bound is not None and (text := self._text(bound)) and not isinstance(bound, ast.Constant):
                self._replace("slice bound", bound, f"({text}) + 1", f"({text}) - 1")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _is_message(node):
            return
        name, function = _name(node), node.func
        for left, right in zip(node.args[:-1], node.args[1:], strict=True):
            texts = self._text(left), self._text(right)
            a, b = self._span(left), self._span(right)
            if a and b and a[0] == b[0] and None not in texts and not _is_starred(left, right):
                between = self.lines[a[0] - 1][a[2] : b[1]]
                self._add("arguments swapped", a[0], a[1], b[2], f"{texts[1]}{between}{texts[0]}")
        if name in EXTREMES and (span := self._span(function)) is not None:
            self._add("min and max", span[0], span[2] - len(name), span[2], EXTREMES[name])
        for axis in self._axes(node, name):
            value = ast.literal_eval(axis)
            self._replace("axis", axis, str(value + 1), str(value - 1))
        self.generic_visit(node)

    def _axes(self, node: ast.Call, name: str) -> Iterator[ast.expr]:
        yield from (
            one.value for one in node.keywords if one.arg in ("dim", "axis") and _is_integer(one.value)
        )
        if name in OF_AXES:
            yield from (one for one in node.args if _is_integer(one))


def _name(node: ast.Call) -> str:
    function = node.func
    return getattr(function, "attr", None) or getattr(function, "id", "")


def _is_message(node: ast.Call) -> bool:
    """Whether a call writes a message or checks what was given."""
    owner = getattr(getattr(node.func, "value", None), "id", "")
    name = _name(node)
    return name.startswith(SILENT) or name.endswith(MESSAGES[0]) or name in MESSAGES[1:] or owner in MESSAGES


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _is_integer(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    return isinstance(inner, ast.Constant) and type(inner.value) is int


def _is_starred(*nodes: ast.expr) -> bool:
    return any(isinstance(node, ast.Starred) for node in nodes)
