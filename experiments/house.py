"""Draw the house from its imports, a floor for each depth of imports: docs/pictures/house.svg, when the site is built.

    python -m experiments.house

A room is a package of darrm or a module beside them. Its floor is one above the highest room that it imports from, and
it names the rooms that it stands on: those that it imports from and that no other such room stands on already.
"""

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from textwrap import wrap

from darrm.system.command_line import CommandLine, run
from darrm.system.files import write_text

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "docs" / "pictures" / "house.svg"
FACE = {"darrm", "darrm.__main__"}  # they name the others
_WIDTH, _MARGIN, _LINE = 520, 8, 19
_LETTERS = 66  # of a line
_STYLE = """
    text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #222 }
    .name { font: bold 15px ui-monospace, "DejaVu Sans Mono", monospace }
    .on { fill: #555 }
    .room { fill: #fff; stroke: #767676 }
    .door { fill: #d9ecf7; stroke: #0072b2; stroke-width: 2 }"""


def room_of(module: str) -> str:
    """Return the package or module beside the packages that a module belongs to."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "darrm" else parts[0]


def rooms() -> dict[str, set[str]]:
    """Return the rooms that each room imports from, anywhere in its modules."""
    found: dict[str, set[str]] = {}
    for package in ("darrm", "lp_models"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            room = room_of(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
            if room not in FACE:
                found.setdefault(room, set()).update(_imported(path.read_text(encoding="utf-8")))
    return {room: {name for name in names if name in found and name != room} for room, names in found.items()}


def floors(needs: Mapping[str, set[str]]) -> list[list[str]]:
    """Put rooms on floors, from the ground up.

    >>> floors({"attic": {"hall"}, "hall": {"cellar"}, "shed": set(), "cellar": set()})
    [['cellar', 'shed'], ['hall'], ['attic']]
    """

    @cache
    def floor(room: str) -> int:
        return 1 + max(map(floor, needs[room]), default=-1)

    return [sorted(room for room in needs if floor(room) == height) for height in range(1 + max(map(floor, needs)))]


def stands_on(room: str, needs: Mapping[str, set[str]]) -> list[str]:
    """Name the rooms below that no other room below stands on.

    >>> stands_on("attic", {"attic": {"hall", "cellar"}, "hall": {"cellar"}, "cellar": set()})
    ['hall']
    """

    @cache
    def below(name: str) -> frozenset[str]:
        return frozenset(needs[name]).union(*map(below, needs[name]))

    return sorted(name for name in needs[room] if not any(name in below(other) for other in needs[room] - {name}))


def drawing(needs: Mapping[str, set[str]]) -> str:
    """Draw the rooms as SVG, the highest floor on top."""
    parts, top = [], _MARGIN
    for level in reversed(floors(needs)):
        for room in level:
            below = ", ".join(short(name) for name in stands_on(room, needs))
            lines = [("", line) for line in wrap(_about(room), _LETTERS)]
            lines += [(' class="on"', line) for line in wrap(f"on {below}" if below else "", _LETTERS)]
            height = 12 + _LINE * (1 + len(lines))
            kind = "door" if (_folder(room) / "__main__.py").is_file() else "room"
            parts.append(f'<rect class="{kind}" x="8" y="{top}" width="{_WIDTH - 16}" height="{height}" rx="6"/>')
            parts.append(f'<text class="name" x="18" y="{top + 20}">{short(room)}</text>')
            for place, (style, line) in enumerate(lines, start=1):
                parts.append(f'<text{style} x="18" y="{top + 20 + _LINE * place}">{escape(line)}</text>')
            top += height + 4
        top += 10
    return "\n  ".join(_framed(parts, top)) + "\n</svg>\n"


def short(room: str) -> str:
    """Return the name of a room without the house's."""
    return room.removeprefix("darrm.")


def draw(output: Path = OUTPUT) -> None:
    """Draw the rooms as they are today."""
    write_text(output, drawing(rooms()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw."""
    parser = CommandLine(prog="python -m experiments.house", description=str(__doc__))
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="FILE", help="where to (default the page's own)")
    draw(parser.parse_args(arguments).output)
    return 0


def _framed(parts: Sequence[str], height: int) -> Iterator[str]:
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">'
    yield '<title id="title">The rooms of darrm by floors: each imports from floors below it only.</title>'
    yield f"<style>{_STYLE}\n  </style>"
    yield f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="#fbfbfb"/>'
    yield from parts


def _folder(room: str) -> Path:
    return ROOT / Path(*room.split("."))


def _about(room: str) -> str:
    """Return the first sentence of a room's docstring."""
    folder = _folder(room)
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].replace("`", "").split())


def _imported(text: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(text)))
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    froms = [
        f"{node.module}.{alias.name}" for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    return {room_of(name) for name in [*plain, *froms]}


if __name__ == "__main__":
    sys.exit(run(main))
