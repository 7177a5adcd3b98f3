"""The mutation tester: one change at a time, and the tests that run the changed line."""

import ast
import shutil
from pathlib import Path

import pytest

from tests.mutant_server import TIME_LIMIT, MutantServer
from tests.mutants import ROOT, RecordedTests, change_node, find_killer, mutants, nearest_tests

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


def test_the_doctests_and_the_folder_of_a_package_are_its_tests() -> None:
    module = "darrm/loss/composition.py"
    assert nearest_tests(Path(module)) == [module, "tests/loss"]
    assert nearest_tests(Path("darrm/loss")) == ["darrm/loss", "tests/loss"]
    assert nearest_tests(Path("darrm/priors.py")) == ["darrm/priors.py", "tests/test_priors.py"]


PROGRAM = """def largest(values):
    result = values[0]
    for value in values:
        if value > result:
            result = value
    return result


def count_down(number):
    while number > 0:
        number = number - 1
    return number
"""
TESTS = """from darrm.program import count_down, largest


def test_largest():
    assert largest([2, 5, 3]) == 5


def test_count_down():
    assert count_down(3) == 0
"""


@pytest.mark.slow
def test_a_mutant_runs_the_tests_of_its_line_in_a_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, text in (("darrm/program.py", PROGRAM), ("tests/test_program.py", TESTS), ("tests/__init__.py", "")):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n", encoding="utf-8")
    shutil.copy(ROOT / "tests/mutant_server.py", tmp_path / "tests")
    monkeypatch.setattr("tests.mutants._MIN_LIMIT_SECONDS", 5.0)
    server, program = MutantServer(tmp_path), Path("darrm/program.py")
    tests = RecordedTests.record([server], program, ("tests/test_program.py",))
    largest, count_down = "tests/test_program.py::test_largest", "tests/test_program.py::test_count_down"
    killers = set()
    for mutant in mutants(tmp_path / program, tmp_path):
        assert tests.choose(mutant)[0] == [largest if mutant.line < 9 else count_down]
        killers.add((mutant.right, mutant.wrong, find_killer(server, tests, mutant, package_only=True)))
    server.close()
    assert killers == {
        ("0", "1", None),  # the test's list has its largest value there
        ("0", "1", count_down),
        ("1", "2", count_down),
        ("number - 1", "number + 1", TIME_LIMIT),
        ("number > 0", "number >= 0", count_down),
        ("value > result", "value >= result", None),  # the same program
    }
    assert (tmp_path / program).read_text(encoding="utf-8") == PROGRAM
