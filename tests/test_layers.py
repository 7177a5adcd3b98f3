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


def sources() -> dict[str, str]:
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


def imported(text: str, modules: set[str]) -> set[str]:
    """The modules of the project, and the roots of libraries, that a text imports anywhere in it."""
    names = set()
    for name in _imported_names(text):
        while name not in modules and "." in name:
            name = name.rpartition(".")[0]  # noqa: PLW2901 (from the imported name to its module)
        names.add(name)
    return names


def package_of(module: str) -> str:
    """Return the longest listed name that a module starts with; ``darrm`` only for the face itself."""
    name = module
    while name and (name not in LAYER or (name == "darrm" and module != "darrm")):
        name = name.rpartition(".")[0]
    return name


def faults(texts: dict[str, str]) -> list[str]:
    modules, wrong, graph = set(texts), [], {}
    for module, text in texts.items():
        if not (package := package_of(module)):
            wrong.append(f"{module} is in no layer")
            continue
        names = imported(text, modules)
        graph[module] = (names & modules) - {module, "darrm"}
        for name in sorted(names & modules):
            target = package_of(name)
            if target != package and LAYER.get(target, -1) >= LAYER[package]:
                wrong.append(f"{module} imports {name}, which is not below it")
        roots = {name.partition(".")[0] for name in names}
        wrong += [
            f"{module} imports {library}, which only {', '.join(packages)} may import"
            for library, packages in LIBRARIES.items()
            if library in roots and package not in packages
        ]
    graph.pop("darrm", None)  # the face names the others and loads them when they are used
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        wrong.append(f"a circle: {' -> '.join(error.args[1])}")
    return wrong


def test_imports_go_down_only_and_a_new_package_needs_a_layer() -> None:
    assert faults({**sources(), "darrm.attic.box": ""}) == ["darrm.attic.box is in no layer"]


def test_every_package_is_listed_once() -> None:
    listed = [package for packages in LAYERS for package in packages.split() if package.count(".") < 2]
    top = {".".join(module.split(".")[:2]) for module in sources() if module.startswith("darrm.")}
    assert sorted(listed) == sorted({"lp_models", "experiments", "darrm"} | top)


@pytest.mark.parametrize(
    ("module", "line", "complaint"),
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
def test_a_planted_import_is_caught(module: str, line: str, complaint: str) -> None:
    texts = sources()
    texts[module] += "\n" + (f"def planted():\n{line}" if line.startswith(" ") else line) + "\n"
    assert any(module in fault and complaint in fault for fault in faults(texts))
