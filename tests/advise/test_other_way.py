"""How much a wanted share of right labels leaves room for: what is found was planned, and has the share."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest

from darrm.advise import affordable
from darrm.advise.__main__ import main
from darrm.errors import PlanError
from darrm.plan import plan
from darrm.privacy import PrivacyParams
from darrm.problem import MOST_QUERIES, Voters, Workload
from darrm.system.command_line import run

PLAIN = PrivacyParams("inf")
WORK = Workload(Voters(11, PLAIN, overlap=1), 5, PrivacyParams(2))


def share(work: Workload) -> float:
    """A made-up share: it grows with voters and ε, and falls with queries."""
    value = work.voters.K * work.total.epsilon / work.queries
    return value / (1.0 + value)


def pretend(monkeypatch: pytest.MonkeyPatch, right: Callable[[Workload], float]) -> None:
    """Let a plan have a share that the test knows."""
    monkeypatch.setattr(
        "darrm.advise.other_way.plan", lambda work, **_: SimpleNamespace(best=SimpleNamespace(right=right(work)))
    )


@pytest.mark.parametrize("right", [0.3, 0.9, 0.99])
def test_the_last_number_that_gives_the_share_is_found(right: float, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, share)
    needed = right / (1.0 - right)  # of K·ε/Q
    for what, best in (
        ("queries", 22 / needed),
        ("voters", needed * 2.5),
        ("epsilon", needed / 2.2),
    ):
        if what == "queries" and best < 1.0:
            with pytest.raises(PlanError, match="no queries up to 1 gives"):
                affordable(WORK, right, what)
            continue
        asked = affordable(WORK, right, what)
        value = {"queries": asked.queries, "voters": asked.voters.K, "epsilon": asked.total.epsilon}[what]
        assert share(asked) >= right
        slack = 1.0 if what != "epsilon" else 0.0
        assert abs(value - best) <= 0.02 * max(value, best) + slack, what


@pytest.mark.slow
def test_a_real_plan_has_the_share_and_one_query_more_has_not() -> None:
    found = affordable(WORK, 0.8)
    more = Workload(WORK.voters, found.queries + 1, WORK.total)
    assert plan(found).best.right >= 0.8 > plan(more).best.right


def test_where_nothing_is_needed_the_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, lambda _: 1.0)
    assert affordable(WORK, 0.9).queries == MOST_QUERIES


def test_what_cannot_be_looked_for_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, word in (
        (["--find", "voters"], "--find says what is looked for with --right"),
        (["--right", "1.5"], "right must be"),
        (["--right", "x"], "--right must be"),
        (["--epsilon", "0.1,0.2", "--right", "0.9", "--find", "voters"], "these voters are told apart"),
    ):
        assert run(partial(main, [*arguments, "--total", "1,1e-5"])) == 2
        assert word in capsys.readouterr().err


@pytest.mark.slow
def test_the_answer_stands_before_the_advice(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--K", "11", "--voters", "plain", "--overlap", "1", "--total", "2,0", "--queries", "5"]
    assert run(lambda: main([*flags, "--right", "0.8"])) == 0
    first, _, rest = capsys.readouterr().out.partition("\n\n")
    queries = affordable(WORK, 0.8).queries
    assert f"at most {queries} queries" in first
    assert rest.startswith(f"Which aggregator for {queries} majority votes?")


@pytest.mark.parametrize("calls", [1, 4])
def test_a_search_that_is_stopped_returns_the_hardest_that_was_enough(
    calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def tiring(work: Workload) -> float:
        asked.append(work.queries)
        if len(asked) > calls:
            raise KeyboardInterrupt
        return 1.0 if work.queries <= 30 else 0.0  # of 5, 10, 20 and 40 the first three

    pretend(monkeypatch, tiring)
    with pytest.raises(KeyboardInterrupt):
        affordable(WORK, 0.9)
    asked.clear()
    with pytest.warns(UserWarning, match="stopped early"):
        assert affordable(WORK, 0.9, stoppable=True).queries == {1: 5, 4: 20}[calls]
    asked[:] = [0] * calls  # at once
    with pytest.raises(PlanError, match="give it more time"):
        affordable(WORK, 0.9, stoppable=True)
