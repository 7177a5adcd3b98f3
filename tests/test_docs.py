"""Pages name existing tests and files, and formulas and drawings are set."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType

import pytest

from experiments import layers
from tests.test_layers import LAYER

ROOT = Path(__file__).parent.parent


def test_tests_and_files_named_by_the_pages_exist() -> None:
    pages = ("sharp-edges.md", "develop/architecture.md")
    edges, architecture = ((ROOT / "docs" / page).read_text("utf-8") for page in pages)
    tests, files = (
        set(re.findall(r"`(test_\w+)`", edges)),
        set(re.findall(r"`((?:darrm|tests|docs|experiments)/[\w./-]+)`", architecture)),
    )
    assert len(tests) >= 10
    assert len(files) >= 15
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert {name for name in tests if f"def {name}(" not in code} == set()
    assert {name for name in files if not (ROOT / name).exists()} == set()


@pytest.fixture
def typesetting(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("sphinx")
    pytest.importorskip("latex2mathml")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return __import__("typesetting")


def test_every_formula_is_set(typesetting: ModuleType) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
    formulas = [
        block for text in texts for block in re.findall(r"^```math\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]
    assert len(formulas) > 30
    for latex in formulas:
        mathml = typesetting.formula(latex)
        words = "".join(ET.fromstring(f"<all>{mathml}</all>").itertext())  # noqa: S314 (ours)
        assert not re.search(r"[\\_&]", words), latex


def test_superscripts_and_subscripts_are_shifted(typesetting: ModuleType) -> None:
    def mark(text: str) -> str:
        marks = {"superscript": "↑", "subscript": "↓"}
        return "".join(marks.get(type(node).__name__, "") + node.astext() for node in typesetting.shifted(text))

    assert mark("e^{x_i} − α_l, γ_opt(s), (1 − δ)^k·D") == "e↑xi − α↓l, γ↓opt(s), (1 − δ)↑k·D"
    assert mark("∫_1^∞ u^{−α−1} and 2σ^2") == "∫↓1↑∞ u↑−α−1 and 2σ↑2"
    assert mark("p_const and T_jk of n_jobs, max_iter, X_public") == "p↓const and T↓jk of n_jobs, max_iter, X_public"
    assert mark("optimize_table, test_a_b, --create_x, 10^-5") == "optimize_table, test_a_b, --create_x, 10^-5"


def test_the_drawing_has_every_package_above_its_imports() -> None:
    imports = layers.find_imports()
    assert set(imports) == {name for name in LAYER if not name.endswith("__main__")} - {"darrm", "experiments"}
    assert all(
        LAYER[below] < LAYER.get(f"{name}.__main__", LAYER[name])
        for name in imports
        for below in layers.find_direct_imports(name, imports)
    )
    drawing = ET.fromstring(layers.draw_svg(imports))  # noqa: S314 (ours)
    names = [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text") if text.get("class") == "name"]
    heights = {name: height for height, name in enumerate(names)}
    assert all(
        heights[layers.shorten_name(name)] < heights[layers.shorten_name(below)]
        for name in imports
        for below in imports[name]
    )
