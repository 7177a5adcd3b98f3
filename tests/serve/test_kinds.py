"""Every kind of deployment that `serve start` takes, asked over HTTP: classes by number and name, open answers."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra serve")
pytest.importorskip("httpx", reason="needs the extra serve")
from darrm import PrivacyLedger, PrivacyParams, Problem, Voters
from darrm.aggregator import save_release
from darrm.noisy_max.mechanisms import GNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.optimize import optimize_table
from darrm.problem import OPEN
from darrm.serve.__main__ import make_deployment, start
from darrm.table.release import Release
from tests.doors import typed
from tests.serve.deployments import paid, table
from tests.serve.test_app import Endpoint

PLAIN = Voters(3, PrivacyParams("inf"), overlap=1)
NAMED = "flu,cold,o\u2028dd"  # any text but control characters


def release_of(kind: str) -> Any:
    if kind == "two":
        return Release(table())
    problem = Problem(PLAIN, PrivacyParams("0.5"), OPEN if "open" in kind else 3)
    if kind.startswith("table"):
        return Release(optimize_table(problem))
    return NoisyMaximum(GNMax(2.0), PLAIN, problem.classes, threshold=12 if "open" in kind else None)


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize(
    ("kind", "flags", "votes", "bad"),
    [
        ("two", ["--classes", "no,yes", "--missing", "coin"], ["no", "yes", "no"], ["", "NA", "yes\0", 1]),
        ("table three", [], [0, 2, 2], [3, "2"]),
        ("table open", ["--missing", "blank"], ["flu", "NA", "flu"], ["", "a\n", 1]),
        ("noise three", ["--missing", "coin"], [0, 2, 2], [-1, "NA"]),
        ("noise open", ["--classes", "open"], ["flu", "cold", "flu"], ["", "\0", 2]),
        ("two", [], [0, 1, 1], [2, "1", True]),
        ("two", ["--missing", "coin"], [0, 1, 1], [2, ""]),
        ("table three", ["--classes", NAMED, "--missing", "coin"], ["flu", "cold", "flu"], ["Flu", "", 0]),
        ("noise three", ["--classes", NAMED], ["flu", "flu", "flu"], ["fl", "flu\0"]),
        ("noise open", ["--missing", "blank"], ["flu", "cold", "flu"], ["", "\u0085", 2]),
    ],
)
def test_a_deployment_answers_over_http(
    tmp_path: Path, kind: str, flags: list[str], votes: list[Any], bad: list[Any]
) -> None:
    release = release_of(kind)
    save_release(tmp_path / "t.json", release)
    PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(1000, "0.1"))
    words = ["--table", tmp_path / "t.json", "--ledger", tmp_path / "l.sqlite", "--clients", "c.json", *flags]
    read = typed(start, words)
    taken = ("table", "ledger", "state", "stream", "classes", "missing")
    what = make_deployment(**{name: read[name] for name in taken})
    server = Endpoint(tmp_path, what=what)
    try:
        server.call("study", "POST", "/questions", {"id": "q", "seconds": 3600})
        for vote in bad:
            assert server.call("voter1", "PUT", "/questions/q/vote", {"vote": vote}).status_code == 400
        for n, vote in enumerate(votes, 1):
            assert server.call(f"voter{n}", "PUT", "/questions/q/vote", {"vote": vote}).status_code == 201
        ids = ["q", "given"]
        one = server.call("study", "GET", "/questions/q?wait=20").json()
        several = [{"id": "given", "votes": votes}]
        if "--missing" in flags:
            several += [{"id": "gap", "votes": [votes[0], None, votes[2]]}, {"id": "none", "votes": [None] * 3}]
            ids.append("gap")
        else:
            gap = server.call("study", "POST", "/ask", [{"id": "gap", "votes": [votes[0], None, votes[2]]}])
            assert gap.status_code == 400
        if "open" not in kind:
            several.append({"id": "counts", "counts": [3, 0] if kind == "two" else [1, 0, 2]})
            ids.append("counts")
        else:
            assert server.call("study", "POST", "/ask", [{"id": "c", "counts": [3]}]).status_code == 400
        rows = [one, *server.call("study", "POST", "/ask", several).json()]
        labels = range(3 if "three" in kind else 2)
        names = flags[1].split(",") if "," in "".join(flags[:2]) else [*votes, None] if "open" in kind else labels
        for row in rows:
            assert row["state"] == ("expired" if row["id"] == "none" else "answered")
            assert row["id"] == "none" or row["label"] in names
        assert sorted(paid(what)) == sorted(ids)
    finally:
        server.close()
