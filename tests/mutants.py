"""Change one operator or constant at a time, and list the changes that no quick test detects.

``python -m tests.mutants darrm/loss --sample 20`` makes twenty changes, one at a time, in a copy of the checkout; the
seed determines their places. A first run of the package's quick tests and doctests records which tests run a line; each
change then runs the tests of its lines, the quickest first, and, if none fails, all other quick tests. A survivor is an
equivalent change, which needs an explanation, or a missing test. The exit status is 1 if a change survived.
"""

import argparse
import ast
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutant_server import MutantServer
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
_MIN_LIMIT_SECONDS = 60.0  # for a change that loops for ever
# with more tests than this, pytest runs whole folders faster than it finds the tests
_MAX_CHOSEN_TESTS = 400
_NAMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "floor": "ceil", "ceil": "floor"}


@dataclass(frozen=True)
class Mutant:
    """One change: the file, relative to the checkout, the place of the expression, and its replacement."""

    path: Path
    line: int
    last_line: int
    start: int
    end: int
    right: str
    wrong: str

    def write(self, folder: Path) -> str:
        """Change the file in a copy of the checkout; return its original text."""
        file = folder / self.path
        text = file.read_bytes()
        file.write_bytes(text[: self.start] + f"({self.wrong})".encode() + text[self.end :])
        os.utime(file, (0, self.start + 1))  # a cached bytecode of the same second and length must not be used
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


def mutants(path: Path, root: Path = ROOT) -> list[Mutant]:
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
            found.append(
                Mutant(path.relative_to(root), node.lineno, node.end_lineno, start, end, right, ast.unparse(wrong))
            )
    return found


def nearest_tests(path: Path) -> list[str]:
    """List the doctests and the folder of tests of a package, or of a module's package."""
    is_module = len(path.parts) == 2 and path.suffix == ".py"
    package = Path("tests", f"test_{path.name}" if is_module else path.parts[1])
    return [str(place) for place in (path, package) if (ROOT / place).exists()]


@dataclass(frozen=True)
class RecordedTests:
    """The tests of a package: their seconds, and for each file and line the tests that run it."""

    paths: tuple[str, ...]
    seconds: dict[str, float]
    lines: dict[str, dict[str, list[str]]]

    @classmethod
    def record(cls, servers: list[MutantServer], package: Path, paths: tuple[str, ...]) -> "RecordedTests":
        """Run the tests on the right program; raise RuntimeError if one fails."""
        answer = servers[0].ask(paths, 3600.0, package=str(package))
        if answer["failed"] is not None or answer["status"] != 0:
            raise RuntimeError(f"the tests of {package} fail without a change: {answer['output']}")
        for server in servers:
            server.ask((), 0.0, modules=answer["modules"])
        return cls(paths, answer["seconds"], answer["lines"])

    def choose(self, mutant: Mutant) -> tuple[list[str], float]:
        """List the tests that run a mutant's lines, the quickest first, and a limit in seconds for them all."""
        lines = self.lines.get(str(mutant.path), {})
        contexts = {
            context
            for line in range(mutant.line, mutant.last_line + 1)
            for context in lines.get(str(line), ())
            if context  # empty: at import, which all tests do
        }
        tests = sorted(contexts or self.seconds, key=lambda test: self.seconds.get(test, 0.0))
        limit = _MIN_LIMIT_SECONDS + 10.0 * sum(self.seconds.get(test, 0.0) for test in tests)
        return (list(self.paths) if len(tests) > _MAX_CHOSEN_TESTS else tests), limit


def find_killer(server: MutantServer, tests: RecordedTests, mutant: Mutant, *, package_only: bool) -> str | None:
    """Return the test that fails for a mutant, or None if it survives."""
    original = mutant.write(server.folder)
    try:
        failed: str | None = server.ask(*tests.choose(mutant))["failed"]
        return failed if failed is not None or package_only else find_failure(server.folder)
    finally:
        (server.folder / mutant.path).write_text(original, encoding="utf-8")


def sample_mutants(path: Path, size: int, random_places: random.Random) -> list[Mutant]:
    files = sorted((ROOT / path).rglob("*.py")) if (ROOT / path).is_dir() else [ROOT / path]
    all_mutants = [mutant for file in files for mutant in mutants(file)]
    return random_places.sample(all_mutants, min(size, len(all_mutants)))


def try_mutants(
    path: Path, sample: list[Mutant], paths: tuple[str, ...], servers: list[MutantServer], *, package_only: bool
) -> int:
    """Try a sample of mutants of a path; print each outcome and return how many survive."""
    tests = RecordedTests.record(servers, path, paths)
    free_servers: SimpleQueue[MutantServer] = SimpleQueue()
    for server in servers:
        free_servers.put(server)

    def attempt(mutant: Mutant) -> str | None:
        server = free_servers.get()
        try:
            return find_killer(server, tests, mutant, package_only=package_only)
        finally:
            free_servers.put(server)

    survived = 0
    with ThreadPoolExecutor(len(servers)) as pool:
        for mutant, failed_test in zip(sample, pool.map(attempt, sample), strict=True):
            survived += failed_test is None
            outcome = "SURVIVED" if failed_test is None else f"caught by {failed_test}"
            print(f"{mutant.path}:{mutant.line}: {mutant.right!r} -> {mutant.wrong!r}: {outcome}", flush=True)  # noqa: T201
    return survived


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("paths", nargs="+", type=Path, help="packages or modules, such as darrm/loss")
    parser.add_argument("--sample", type=int, default=20, help="changes for each path (default 20)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tests", nargs="+", default=(), help="tests to record, instead of those of the package")
    parser.add_argument("--package-only", action="store_true", help="only the recorded tests, not all quick ones")
    options = parser.parse_args()
    random_places = random.Random(options.seed)  # noqa: S311 (a sample, no secret)
    num_survived = 0
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / str(job) for job in range(options.jobs)]
        for folder in folders:
            shutil.copytree(ROOT, folder, ignore=NOT_COPIED)
        servers = [MutantServer(folder) for folder in folders]
        for path in options.paths:
            sample = sample_mutants(path, options.sample, random_places)
            paths = tuple(options.tests or nearest_tests(path))
            survived = try_mutants(path, sample, paths, servers, package_only=options.package_only)
            num_survived += survived
            print(f"{path}: {len(sample) - survived} of {len(sample)} caught")  # noqa: T201
        for server in servers:
            server.close()
    return int(num_survived > 0)


if __name__ == "__main__":
    sys.exit(main())
