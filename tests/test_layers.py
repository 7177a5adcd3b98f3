"""The layers of the project: imports go down the list only, there are no circles, and each library has its packages."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = (  # from the bottom; a module imports from lower layers and from its own package; a command may lie higher
    "lp_models darrm.errors",
    "darrm.util",
    "darrm.numerics",
    "darrm.privacy",
    "darrm.subsampling",
    "darrm.problem",
    "darrm.votes",
    "darrm.commands darrm.priors",
    "darrm.loss",
    "darrm.majority",
    "darrm.plurality",
    "darrm.open_set",
    "darrm.noisy_max darrm.random_dp",
    "darrm.table",
    "darrm.optimize darrm.pate",
    "darrm.aggregator",
    "darrm.account",
    "darrm.ledger",
    "darrm.account.__main__ darrm.release darrm.training",
    "darrm.prompts",
    "darrm.plan",
    "darrm.verify",
    "darrm.estimators darrm.serve darrm.show",
    "darrm darrm.__main__",
    "experiments",
)
LAYER = {package: layer for layer, packages in enumerate(LAYERS) for package in packages.split()}
LIBRARIES = {  # the packages that may import a library
    "torch": ("darrm.training", "experiments"),
    "highspy": ("lp_models",),
    "cvxpy": ("lp_models",),
    "sqlite3": ("darrm.ledger", "darrm.verify", "darrm.serve"),
    "lp_models": ("lp_models", "darrm.majority", "darrm.open_set", "darrm.optimize"),
    "starlette": ("darrm.serve",),
    "uvicorn": ("darrm.serve",),
}


@cache
def read_sources() -> dict[str, str]:
    texts = {}
    for package in ("darrm", "lp_models", "experiments"):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            texts[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    return texts


@cache
def _imported_names(text: str) -> tuple[str, ...]:
    nodes = list(ast.walk(ast.parse(text)))
    whole = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    parts = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module is not None]
    return (*whole, *(f"{node.module}.{alias.name}" for node in parts for alias in node.names))


def find_imports(text: str, modules: set[str]) -> set[str]:
    """Return the modules of the project, and the roots of libraries, that a text imports anywhere."""
    names = set()
    for name in _imported_names(text):
        while name not in modules and "." in name:
            name = name.rpartition(".")[0]  # noqa: PLW2901 (from the imported name to its module)
        names.add(name)
    return names


def package_of(module: str) -> str:
    """Return the longest listed name that a module starts with; ``darrm`` only for itself."""
    name = module
    while name and (name not in LAYER or (name == "darrm" and module != "darrm")):
        name = name.rpartition(".")[0]
    return name


def find_faults(texts: dict[str, str]) -> list[str]:
    modules, faults, graph = set(texts), [], {}
    for module, text in texts.items():
        if not (package := package_of(module)):
            faults.append(f"{module} is in no layer")
            continue
        names = find_imports(text, modules)
        graph[module] = (names & modules) - {module, "darrm"}
        for name in sorted(names & modules):
            target = package_of(name)
            if target != package and LAYER.get(target, -1) >= LAYER[package]:
                faults.append(f"{module} imports {name}, which is not below it")
        roots = {name.partition(".")[0] for name in names}
        faults += [
            f"{module} imports {library}, which only {', '.join(packages)} may import"
            for library, packages in LIBRARIES.items()
            if library in roots and package not in packages
        ]
    graph.pop("darrm", None)  # it loads the others when they are used
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        faults.append(f"a circle: {' -> '.join(error.args[1])}")
    return faults


def test_imports_go_down_only_and_a_new_package_needs_a_layer() -> None:
    assert find_faults({**read_sources(), "darrm.attic.box": ""}) == ["darrm.attic.box is in no layer"]


def test_every_package_is_listed_once() -> None:
    listed = [package for packages in LAYERS for package in packages.split() if package.count(".") < 2]
    top = {".".join(module.split(".")[:2]) for module in read_sources() if module.startswith("darrm.")}
    assert sorted(listed) == sorted({"lp_models", "experiments", "darrm"} | top)


@pytest.mark.parametrize(
    ("module", "line", "fault"),
    [
        ("darrm.privacy", "from darrm.table.table import Table", "which is not below it"),
        ("darrm.majority.corners", "from darrm.optimize.optimizer import optimize_table", "which is not below it"),
        ("darrm.ledger.ledger", "import darrm.release.delivery", "which is not below it"),
        ("darrm.noisy_max.mechanisms", "    from darrm.random_dp import draws", "which is not below it"),
        ("darrm.table.table", "from darrm import certify", "which is not below it"),
        ("darrm.majority.noise_function", "from darrm.majority.certify import prove", "a circle"),
        ("darrm.table.release", "import torch", "only darrm.training"),
        ("lp_models.highs", "from darrm.util import checks", "which is not below it"),
    ],
)
def test_a_forbidden_import_is_a_fault(module: str, line: str, fault: str) -> None:
    texts = dict(read_sources())
    texts[module] += "\n" + (f"def planted():\n{line}" if line.startswith(" ") else line) + "\n"
    assert any(module in text and fault in text for text in find_faults(texts))
