"""Pages for people say what is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_tests_named_by_the_sharp_edges_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "sharp-edges.md").read_text(encoding="utf-8")))
    assert len(named) >= 10
    written = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert {name for name in named if f"def {name}(" not in written} == set()
