"""Change one operator or constant at a time, and list the changes that no quick test detects.

``python -m tests.mutants darrm/loss --sample 20`` makes twenty changes, one at a time, in a copy of the checkout; the
seed determines their places. It runs the module's doctests and tests first, then those of its package, then all quick
tests. A survivor is an equivalent change, which needs an explanation, or a missing test. The exit status is 1 if a
change survived.
"""

import argparse
import ast
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.planted import NOT_COPIED, find_failure

ROOT = Path(__file__).parent.parent

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
}
_NAMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "floor": "ceil", "ceil": "floor"}


@dataclass(frozen=True)
class Mutant:
    """One change: the file, relative to the checkout, the place of the expression, and its replacement."""

    path: Path
    line: int
    start: int
    end: int
    right: str
    wrong: str

    def write(self, folder: Path) -> str:
        """Change the file in a copy of the checkout; return its original text."""
        file = folder / self.path
        text = file.read_bytes()
        file.write_bytes(text[: self.start] + f"({self.wrong})".encode() + text[self.end :])
        return text.decode()


def change_node(node: ast.AST) -> ast.AST | None:
    """Return a copy of an expression with one mistake, or None if it has no operator or constant that we change."""
    wrong = deepcopy(node)
    match wrong:
        case ast.Compare(ops=[operator]) if type(operator) in _COMPARISONS:
            wrong.ops = [_COMPARISONS[type(operator)]()]
        case ast.BinOp(op=operator) if type(operator) in _OPERATORS:
            wrong.op = _OPERATORS[type(operator)]()
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            return wrong.operand
        case ast.BoolOp():
            wrong.op = ast.Or() if isinstance(wrong.op, ast.And) else ast.And()
        case ast.Constant(value=bool()):
            wrong.value = not wrong.value
        case ast.Constant(value=int() | float() as value):
            wrong.value = value + 1 if isinstance(value, int) else 2.0 * value + (value == 0.0)
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in _NAMES:
            wrong = ast.parse(ast.unparse(wrong).removesuffix(name) + _NAMES[name], mode="eval").body
        case _:
            return None
    return wrong


def expressions(node: ast.AST) -> Iterator[ast.expr]:
    """List the expressions below a node, without annotations, texts and messages of errors."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or name in {"annotation", "returns", "decorator_list"}:
                continue
            if isinstance(child, ast.Raise | ast.JoinedStr):
                continue
            if isinstance(child, ast.expr):
                yield child
            yield from expressions(child)


def mutants(path: Path) -> list[Mutant]:
    text = path.read_bytes()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node in expressions(ast.parse(text)):
        wrong = change_node(node)
        if wrong is not None and node.end_lineno is not None and node.end_col_offset is not None:
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            right = text[start:end].decode()
            found.append(Mutant(path.relative_to(ROOT), node.lineno, start, end, right, ast.unparse(wrong)))
    return found


def nearest_tests(path: Path) -> list[str]:
    package = Path("tests", path.parts[1]) if len(path.parts) > 2 else Path("tests", f"test_{path.name}")
    own = package / f"test_{path.name}"
    return [str(place) for place in dict.fromkeys((path, own, package)) if (ROOT / place).exists()]  # doctests first


def find_killer(folder: Path, mutant: Mutant, *, package_only: bool) -> str | None:
    """Return the test that fails for a mutant, or None if it survives."""
    original = mutant.write(folder)
    try:
        for tests in [*([place] for place in nearest_tests(mutant.path)), *([] if package_only else [[]])]:
            failed_test = find_failure(folder, "-n0", *tests)
            if failed_test is not None:
                return failed_test
    except RuntimeError:
        return "the tests did not start"
    finally:
        (folder / mutant.path).write_text(original, encoding="utf-8")
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("paths", nargs="+", type=Path, help="packages or modules, such as darrm/loss")
    parser.add_argument("--sample", type=int, default=20, help="changes for each path (default 20)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--package-only", action="store_true", help="only the tests of the package, not all quick ones")
    options = parser.parse_args()
    sample: list[Mutant] = []
    random_places = random.Random(options.seed)  # noqa: S311 (a sample, no secret)
    for path in options.paths:
        files = sorted((ROOT / path).rglob("*.py")) if (ROOT / path).is_dir() else [ROOT / path]
        all_mutants = [mutant for file in files for mutant in mutants(file)]
        sample += random_places.sample(all_mutants, min(options.sample, len(all_mutants)))
    folders: SimpleQueue[Path] = SimpleQueue()
    num_tried, num_survived = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(options.jobs) as pool:
        for job in range(options.jobs):
            shutil.copytree(ROOT, Path(name) / str(job), ignore=NOT_COPIED)
            folders.put(Path(name) / str(job))

        def attempt(mutant: Mutant) -> str | None:
            folder = folders.get()
            try:
                return find_killer(folder, mutant, package_only=options.package_only)
            finally:
                folders.put(folder)

        for mutant, failed_test in zip(sample, pool.map(attempt, sample), strict=True):
            package = "/".join(mutant.path.parts[:2])
            num_tried[package] += 1
            num_survived[package] += failed_test is None
            outcome = "SURVIVED" if failed_test is None else f"caught by {failed_test}"
            print(f"{mutant.path}:{mutant.line}: {mutant.right!r} -> {mutant.wrong!r}: {outcome}", flush=True)  # noqa: T201
    for package, number in num_tried.items():
        print(f"{package}: {number - num_survived[package]} of {number} caught")  # noqa: T201
    return int(num_survived.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
