"""The house keeps its shape: imports go down only, no circles, every library in its room."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# from the ground up; a module may import from lower floors and from its own room
FLOORS: tuple[tuple[str, ...], ...] = (
    ("darrm.errors", "lp_models"),
    ("darrm.probability",),
    ("darrm.privacy",),
    ("darrm.sampling",),
    ("darrm.problem",),
    ("darrm.system",),
    ("darrm.losses",),
    ("darrm.votes",),
    ("darrm.aggregator",),
    ("darrm.laws",),
    ("darrm.proof",),
    ("darrm.random_dp", "darrm.mechanisms"),
    ("darrm.pate",),
    ("darrm.optimize",),
    ("darrm.account",),
    ("darrm.release", "darrm.ensemble"),
    ("darrm.plan", "darrm.generate"),
    ("darrm.advise", "darrm.verify"),
    ("darrm.estimators", "darrm.serve"),
    ("darrm", "darrm.__main__"),
    ("experiments",),
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
AT_HOME = {  # which rooms may import a library
    "torch": ("darrm.ensemble", "experiments"),
    "highspy": ("lp_models",),
    "cvxpy": ("lp_models",),
    # an audit computes links from rows that it reads itself; a server keeps the questions that wait
    "sqlite3": ("darrm.account", "darrm.verify", "darrm.serve"),
    "lp_models": ("lp_models", "darrm.optimize"),
    "starlette": ("darrm.serve",),
    "uvicorn": ("darrm.serve",),
}

# rooms whose `__all__` names modules
CLOSED = ("darrm.laws", "darrm.losses", "darrm.mechanisms", "darrm.probability", "darrm.proof", "darrm.system")


def sources() -> dict[str, str]:
    """Every module of the project by its name, with its text."""
    found = {}
    for package in ("darrm", "lp_models", "experiments"):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    return found


@cache
def _imported_names(text: str) -> tuple[str, ...]:
    nodes = list(ast.walk(ast.parse(text)))
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module is not None]
    return (*plain, *(f"{node.module}.{alias.name}" for node in froms for alias in node.names))


def imported(text: str, modules: set[str]) -> set[str]:
    """The modules of the project, and the roots of libraries, that a text imports anywhere in it."""
    found: set[str] = set()
    for name in _imported_names(text):
        while name not in modules and "." in name:
            name = name.rpartition(".")[0]  # noqa: PLW2901 (from the imported name to its module)
        found.add(name)
    return found


def room_of(module: str) -> str:
    """The longest listed name that a module starts with; the face of the whole package only for itself."""
    name = module
    while name and (name not in FLOOR or (name == "darrm" and module != "darrm")):
        name = name.rpartition(".")[0]
    return name


def faults(texts: dict[str, str]) -> list[str]:
    """Say which imports break the rules."""
    modules, found, graph = set(texts), [], {}
    for module, text in texts.items():
        room = room_of(module)
        if not room:
            found.append(f"{module} stands on no floor")
            continue
        names = imported(text, modules)
        graph[module] = (names & modules) - {module}
        for name in sorted(names & modules):
            target = room_of(name)
            if target != room and FLOOR.get(target, -1) >= FLOOR[room]:
                found.append(f"{module} imports {name}, which is not below it")
        found += [
            f"{module} imports {library}, which belongs to {', '.join(rooms)}"
            for library, rooms in AT_HOME.items()
            if room not in rooms and library in {name.partition(".")[0] for name in names}
        ]
    graph.pop("darrm", None)  # it names the others without importing them
    try:
        list(TopologicalSorter({module: needs - {"darrm"} for module, needs in graph.items()}).static_order())
    except CycleError as error:
        found.append(f"a circle: {' -> '.join(error.args[1])}")
    return found


def misplaced(floors: tuple[tuple[str, ...], ...], modules: set[str]) -> list[str]:
    """Say which names on the floors are no room, or stand on two: a room is a package or a module beside them."""
    names = [name for floor in floors for name in floor]
    own = {"lp_models", "experiments", "darrm"}
    rooms = own | {".".join(module.split(".")[:2]) for module in modules if module.startswith("darrm.")}
    return sorted({name for name in names if names.count(name) > 1}) + sorted(set(names) ^ rooms)


def test_the_house_keeps_its_shape() -> None:
    texts = sources()
    assert faults(texts) == []
    assert misplaced(FLOORS, set(texts)) == []


@pytest.mark.parametrize("planted", ["darrm.account.__main__", "darrm.plan", "darrm.attic"])
def test_no_door_has_a_floor_of_its_own_and_no_room_two(planted: str) -> None:
    assert misplaced((*FLOORS, (planted,)), set(sources())) == [planted]


@pytest.mark.parametrize(
    ("module", "line", "complaint"),
    [
        ("darrm.privacy", "from darrm.proof.table import Table", "which is not below it"),
        ("darrm.proof.corners", "from darrm.optimize.optimizer import optimize_table", "which is not below it"),
        ("darrm.account.ledger", "import darrm.release.debited", "which is not below it"),
        ("darrm.mechanisms.noisy_max", "    from darrm.random_dp import draws", "which is not below it"),
        ("darrm.proof.table", "from darrm import certify", "which is not below it"),
        ("darrm.laws.sampled_error", "from darrm.laws.noise_function import NoiseFunction", "a circle"),
        ("darrm.plan.search", "from darrm.plan import Plan", "a circle"),
        ("darrm.mechanisms.release", "import torch", "belongs to darrm.ensemble"),
        ("lp_models.highs", "from darrm.errors import checks", "which is not below it"),
    ],
)
def test_a_planted_import_is_caught(module: str, line: str, complaint: str) -> None:
    texts = sources()
    texts[module] += "\n" + (f"def planted():\n{line}" if line.startswith(" ") else line) + "\n"
    assert any(module in fault and complaint in fault for fault in faults(texts))


def test_a_new_room_must_be_given_a_floor() -> None:
    assert faults({**sources(), "darrm.attic.box": ""}) == ["darrm.attic.box stands on no floor"]


def shown(texts: dict[str, str], room: str) -> set[str]:
    """What the `__all__` of a room names."""
    for node in ast.parse(texts[room]).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def trespasses(texts: dict[str, str]) -> list[str]:
    """Say which modules are imported from other rooms though `__all__` keeps them for the room's own use."""
    modules = set(texts)
    return [
        f"{module} imports {name}, which {room} keeps for itself"
        for module, text in texts.items()
        for name in imported(text, modules) & modules
        for room in [name.rpartition(".")[0]]
        if room in CLOSED and not module.startswith(room) and name.rpartition(".")[2] not in shown(texts, room)
    ]


def test_a_room_shows_what_others_may_use() -> None:
    texts = sources()
    assert trespasses(texts) == []
    named = {(room, name) for room in CLOSED for name in shown(texts, room) if f"{room}.{name}" not in texts}
    assert {(room, name) for room, name in named if not hasattr(import_module(room), name)} == set()
    texts["darrm.plan.budget"] += "\nfrom darrm.losses.label_laws import TwoClasses\n"
    assert trespasses(texts) == [
        "darrm.plan.budget imports darrm.losses.label_laws, which darrm.losses keeps for itself"
    ]
