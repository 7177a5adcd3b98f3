"""Draw the packages of darrm with a row for each layer of imports: docs/pictures/layers.svg.

    python -m experiments layers  # also when the site is built

A package is one layer above the highest package that it imports from. Each box lists the imports of its package, except
those that another of its imports already needs. Commands (`__main__`) are above all packages.
"""

import ast
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from textwrap import wrap

from darrm.util.files import write_text
from experiments.pages import CommandLine

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "docs" / "pictures" / "layers.svg"
FACE = {"darrm"}  # it imports every other package
_WIDTH, _MARGIN, _LINE = 520, 8, 19
_LETTERS = 66  # characters per line
_STYLE = """
    text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #222 }
    .name { font: bold 15px ui-monospace, "DejaVu Sans Mono", monospace }
    .imports { fill: #555 }
    .package { fill: #fff; stroke: #767676 }
    .command { fill: #d9ecf7; stroke: #0072b2; stroke-width: 2 }"""


def package_of(module: str) -> str:
    """Return the package of a module: ``darrm.majority``, or ``lp_models``."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "darrm" else parts[0]


def imports() -> dict[str, set[str]]:
    """Return the packages that each package imports from, in all its modules except its command."""
    needs: dict[str, set[str]] = {}
    for root in ("darrm", "lp_models"):
        for path in sorted((ROOT / root).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            package = package_of(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
            if package not in FACE and path.name != "__main__.py":
                needs.setdefault(package, set()).update(_imported(path.read_text(encoding="utf-8")))
    return {package: {name for name in names if name in needs and name != package} for package, names in needs.items()}


def layers(needs: Mapping[str, set[str]]) -> list[list[str]]:
    """Sort packages into layers, the lowest first.

    >>> layers({"commands": {"tables"}, "tables": {"errors"}, "files": set(), "errors": set()})
    [['errors', 'files'], ['tables'], ['commands']]
    """

    @cache
    def layer(package: str) -> int:
        return 1 + max(map(layer, needs[package]), default=-1)

    return [sorted(name for name in needs if layer(name) == height) for height in range(1 + max(map(layer, needs)))]


def direct(package: str, needs: Mapping[str, set[str]]) -> list[str]:
    """Return the imports of a package that none of its other imports needs.

    >>> direct("commands", {"commands": {"tables", "errors"}, "tables": {"errors"}, "errors": set()})
    ['tables']
    """

    @cache
    def below(name: str) -> frozenset[str]:
        return frozenset(needs[name]).union(*map(below, needs[name]))

    return sorted(name for name in needs[package] if not any(name in below(other) for other in needs[package] - {name}))


def drawing(needs: Mapping[str, set[str]]) -> str:
    boxes, top = [], _MARGIN
    for layer in reversed(layers(needs)):
        for package in layer:
            names = ", ".join(short(name) for name in direct(package, needs))
            lines = [("", line) for line in wrap(_first_sentence(package), _LETTERS)]
            lines += [(' class="imports"', line) for line in wrap(f"imports {names}" if names else "", _LETTERS)]
            height = 12 + _LINE * (1 + len(lines))
            kind = "command" if (_folder(package) / "__main__.py").is_file() else "package"
            boxes.append(f'<rect class="{kind}" x="8" y="{top}" width="{_WIDTH - 16}" height="{height}" rx="6"/>')
            boxes.append(f'<text class="name" x="18" y="{top + 20}">{short(package)}</text>')
            for place, (style, line) in enumerate(lines, start=1):
                boxes.append(f'<text{style} x="18" y="{top + 20 + _LINE * place}">{escape(line)}</text>')
            top += height + 4
        top += 10
    size = f'viewBox="0 0 {_WIDTH} {top}" width="{_WIDTH}" height="{top}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">',
        '<title id="title">The packages of darrm by layers: each imports from lower layers only.</title>',
        f"<style>{_STYLE}\n  </style>",
        f'<rect width="{_WIDTH}" height="{top}" rx="8" fill="#fbfbfb"/>',
    ]
    return "\n  ".join([*head, *boxes]) + "\n</svg>\n"


def short(package: str) -> str:
    """Return the name of a package without ``darrm.``."""
    return package.removeprefix("darrm.")


def draw(output: Path = OUTPUT) -> None:
    write_text(output, drawing(imports()))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = CommandLine("experiments layers", __doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="FILE", help="where to (default the page's own)")
    draw(parser.parse_args(arguments).output)
    return 0


def _folder(package: str) -> Path:
    return ROOT / Path(*package.split("."))


def _first_sentence(package: str) -> str:
    folder = _folder(package)
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].replace("`", "").split())


def _imported(text: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(text)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [f"{node.module}.{one.name}" for node in nodes if isinstance(node, ast.ImportFrom) for one in node.names]
    return set(map(package_of, names))
