"""Draw the packages of darrm, sorted by layers of imports: docs/pictures/layers.svg.

    python -m experiments layers  # also when the site is built

A package is one layer above the highest package that it imports. Each box lists the imports of its package, except
those that another listed import needs as well. Commands (`__main__`) are above all packages.
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
_LINE_LENGTH = 66  # characters per line
_STYLE = """
    text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #222 }
    .name { font: bold 15px ui-monospace, "DejaVu Sans Mono", monospace }
    .imports { fill: #555 }
    .package { fill: #fff; stroke: #767676 }
    .command { fill: #d9ecf7; stroke: #0072b2; stroke-width: 2 }"""


def find_package(module: str) -> str:
    """Return the package of a module: ``darrm.majority``, or ``lp_models``."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "darrm" else parts[0]


def shorten_name(package: str) -> str:
    """Return the name of a package without ``darrm.``."""
    return package.removeprefix("darrm.")


def find_imports() -> dict[str, set[str]]:
    """Map each package to the packages that its modules import; its command does not count."""
    imports: dict[str, set[str]] = {}
    for path in sorted(path for root in ("darrm", "lp_models") for path in (ROOT / root).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        package = find_package(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
        if package not in FACE and path.name != "__main__.py":
            names = imports.setdefault(package, set())
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    names.update(find_package(alias.name) for alias in node.names)
                elif isinstance(node, ast.ImportFrom):
                    names.update(find_package(f"{node.module}.{alias.name}") for alias in node.names)
    return {package: {name for name in names if name in imports} - {package} for package, names in imports.items()}


def sort_layers(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Sort packages into layers, the lowest first.

    >>> sort_layers({"commands": {"tables"}, "tables": {"errors"}, "files": set(), "errors": set()})
    [['errors', 'files'], ['tables'], ['commands']]
    """

    @cache
    def rank(package: str) -> int:
        return 1 + max(map(rank, imports[package]), default=-1)

    return [sorted(name for name in imports if rank(name) == height) for height in range(1 + max(map(rank, imports)))]


def find_direct_imports(package: str, imports: Mapping[str, set[str]]) -> list[str]:
    """Return the imports of a package that its other imports do not need.

    >>> find_direct_imports("commands", {"commands": {"tables", "errors"}, "tables": {"errors"}, "errors": set()})
    ['tables']
    """

    @cache
    def list_all(name: str) -> frozenset[str]:
        return frozenset(imports[name]).union(*map(list_all, imports[name]))

    return sorted(
        name for name in imports[package] if not any(name in list_all(other) for other in imports[package] - {name})
    )


def draw_svg(imports: Mapping[str, set[str]]) -> str:
    boxes, y = [], _MARGIN
    for layer in reversed(sort_layers(imports)):
        for package in layer:
            names = ", ".join(map(shorten_name, find_direct_imports(package, imports)))
            folder = ROOT / Path(*package.split("."))
            lines = [("", line) for line in wrap(_read_first_sentence(folder), _LINE_LENGTH)]
            lines += [(' class="imports"', line) for line in wrap(f"imports {names}" if names else "", _LINE_LENGTH)]
            height = 12 + _LINE * (1 + len(lines))
            kind = "command" if (folder / "__main__.py").is_file() else "package"
            boxes.append(f'<rect class="{kind}" x="8" y="{y}" width="{_WIDTH - 16}" height="{height}" rx="6"/>')
            boxes.append(f'<text class="name" x="18" y="{y + 20}">{shorten_name(package)}</text>')
            for place, (style, line) in enumerate(lines, start=1):
                boxes.append(f'<text{style} x="18" y="{y + 20 + _LINE * place}">{escape(line)}</text>')
            y += height + 4
        y += 10
    size = f'viewBox="0 0 {_WIDTH} {y}" width="{_WIDTH}" height="{y}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">',
        '<title id="title">The packages of darrm by layers: each imports from lower layers only.</title>',
        f"<style>{_STYLE}\n  </style>",
        f'<rect width="{_WIDTH}" height="{y}" rx="8" fill="#fbfbfb"/>',
    ]
    return "\n  ".join([*head, *boxes]) + "\n</svg>\n"


def draw(output: Path = OUTPUT) -> None:
    write_text(output, draw_svg(find_imports()))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = CommandLine("experiments layers", __doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="FILE", help="where to (default the page's own)")
    draw(parser.parse_args(arguments).output)
    return 0


def _read_first_sentence(folder: Path) -> str:
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].replace("`", "").split())
