"""The mutation tester changes what it says, one place at a time, and writes the file back."""

import ast
from pathlib import Path

import pytest

from tests.mutants import ROOT, change_node, mutants, nearest_tests

MODULE = Path("darrm/numerics/bisection.py")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("a < b", "a <= b"),
        ("a == b", "a != b"),
        ("a + b", "a - b"),
        ("a / b", "a * b"),
        ("-a", "a"),
        ("not a", "a"),
        ("a and b", "a or b"),
        ("True", "False"),
        ("3", "4"),
        ("0.0", "1.0"),
        ("np.minimum", "np.maximum"),
        *((kept, None) for kept in ("'text'", "a", "a @ b", "a < b < c", "None")),
    ],
)
def test_each_kind_of_expression_is_changed_and_others_are_kept(right: str, wrong: str | None) -> None:
    mutant = change_node(ast.parse(right, mode="eval").body)
    assert (None if mutant is None else ast.unparse(mutant)) == wrong


def test_each_mutant_of_a_module_is_another_program(tmp_path: Path) -> None:
    before = (ROOT / MODULE).read_text(encoding="utf-8")
    file = tmp_path / MODULE
    file.parent.mkdir(parents=True)
    texts = set()
    found = mutants(ROOT / MODULE)
    for mutant in found:
        file.write_text(before, encoding="utf-8")
        assert mutant.write(tmp_path) == before
        texts.add(ast.unparse(ast.parse(file.read_text(encoding="utf-8"))))
    assert len(texts) == len(found) > 10
    assert ast.unparse(ast.parse(before)) not in texts


def test_the_nearest_tests_a_module_come_before_those_of_its_package() -> None:
    module = "darrm/loss/composition.py"
    assert nearest_tests(Path(module)) == [module, "tests/loss/test_composition.py", "tests/loss"]
    assert nearest_tests(Path("darrm/priors.py")) == ["darrm/priors.py", "tests/test_priors.py"]
