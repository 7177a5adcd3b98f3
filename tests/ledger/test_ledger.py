"""The contract of all storages of a ledger: what a debit admits, keeps, shares and refuses."""

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.account.accountant import COMPOSITIONS, PrivacyAccountant
from darrm.account.admission import MOST_QUERIES, Admission
from darrm.errors import BudgetExceededError, DeliveryError, LedgerError
from darrm.ledger import ledger as ledger_module
from darrm.ledger.chain import Entry
from darrm.ledger.ledger import PrivacyLedger, StreamCursor
from darrm.loss.composition import compose_optimal
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import RenyiCurve
from darrm.privacy import PrivacyParams, at_least
from darrm.problem import Voters
from darrm.votes.labels_file import labels_digest
from tests.ledger.support import BUDGET, FREE, OTHER, PARAMS, QUERY, edit, run_python, start_python


def test_budget_admits_what_the_composition_admits(any_place: str) -> None:
    ledger = PrivacyLedger.create(any_place, BUDGET)
    fit = ledger.queries_that_fit(QUERY)
    assert compose_optimal(PARAMS, fit, 1e-3).epsilon <= 3.0 < compose_optimal(PARAMS, fit + 1, 1e-3).epsilon
    ledger.debit(QUERY.repeat(fit - 2))
    with pytest.raises(BudgetExceededError, match="2 still fit") as error:
        ledger.debit(QUERY.repeat(5))
    left = 3.0 - compose_optimal(PARAMS, fit - 2, 1e-3).epsilon
    assert (error.value.queries_that_fit, error.value.requested) == (2, "5 queries of majority of 11")
    assert error.value.remaining == f"epsilon {at_least(left, 6)} of 3 at delta 0.001"
    ledger.debit(QUERY.repeat(2))
    with pytest.raises(BudgetExceededError, match="0 still fit"):
        ledger.debit(QUERY)
    assert [(entry.number, entry.count) for entry in ledger.entries()] == [(1, fit - 2), (2, 2)]
    assert ledger.spent.queries == fit
    assert ledger.spent.epsilon == pytest.approx(compose_optimal(PARAMS, fit, 1e-3).epsilon)


def test_refusal_says_whether_delta_or_epsilon_is_used_up() -> None:
    ledger = PrivacyLedger.create(":memory:", PrivacyParams(10, "2.5e-6"))
    ledger.debit(QUERY.repeat(2))
    with pytest.raises(BudgetExceededError, match="one more would fail with more than that delta, whatever epsilon"):
        ledger.debit(QUERY)
    with pytest.raises(BudgetExceededError) as error:
        PrivacyLedger.create(":memory:", PrivacyParams("0.1", "1e-3")).debit(QUERY.repeat(50))
    assert "one more would fail" not in str(error.value)


def test_adaptive_composition_uses_the_filter() -> None:
    planned, adaptive = (
        PrivacyLedger.create(":memory:", BUDGET, composition=composition) for composition in ("planned", "adaptive")
    )
    assert 0 < adaptive.queries_that_fit(QUERY) < planned.queries_that_fit(QUERY)
    adaptive.debit(QUERY.repeat(10))
    adaptive.debit(OTHER.repeat(2))
    assert adaptive.spent.bound == "filter"
    with pytest.raises(BudgetExceededError):
        adaptive.debit(QUERY.repeat(planned.queries_that_fit(QUERY) - 12))


@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_second_query_of_private_models_is_refused(composition: str, path: Path) -> None:
    each = PrivacyParams("0.1")
    cost = PrivacyCost("models", guarantee=each, voters=Voters(3, each, models=True))
    ledger = PrivacyLedger.create(path, PrivacyParams("0.2", "1e-3"), composition=composition)
    for refused, fit in ((cost.repeat(2), 1), (cost, 0)):
        with pytest.raises(BudgetExceededError, match="share the randomness of their training") as error:
            PrivacyLedger(path).debit(refused)  # the file records that these costs do not add up
        assert error.value.queries_that_fit == fit
        if fit:
            ledger.debit(cost)
    assert ledger.spent.queries == 1
    assert ledger.spent.epsilon == pytest.approx(0.1, rel=0.02)
    assert ledger.queries_that_fit(cost) == 0


def test_number_of_queries_is_bounded(path: Path) -> None:
    ledger = PrivacyLedger.create(path, BUDGET, composition="planned")
    with pytest.raises(ValueError, match="the number of queries in a cost must be at most"):
        ledger.debit(FREE.repeat(2**62))
    ledger.debit(FREE.repeat(5))
    assert ledger.queries_that_fit(FREE, most=2**60) == MOST_QUERIES - 5
    ledger.debit(FREE.repeat(MOST_QUERIES - 6))
    ledger.debit(QUERY)
    with pytest.raises(ValueError, match="the number of queries in a ledger must be at most"):
        ledger.debit(QUERY)
    assert PrivacyLedger(path).accountant().queries == MOST_QUERIES


# what a ledger keeps


def test_log_is_the_same_when_the_ledger_is_opened_again(place: str) -> None:
    ledger = PrivacyLedger.create(place, BUDGET, composition="planned", population="ward 7")
    note = "Grüße\u00a0— '; DROP TABLE entries; --"
    ledger.debit(QUERY.repeat(3), note=note)
    ledger.debit(OTHER)
    reopened = PrivacyLedger(place)
    first, second = reopened.entries()
    assert first == Entry(first.time, "majority of 11", 3, note, table=QUERY.table, number=1, kind=1)
    assert second == Entry(second.time, "majority of 5", 1, "", number=2, kind=2)
    assert first.time <= second.time
    assert first.time.endswith("+00:00")
    assert (reopened.budget, reopened.composition, reopened.population) == (BUDGET, "planned", "ward 7")
    assert (reopened.identity, reopened.digest()) == (ledger.identity, ledger.digest())
    assert reopened.digest(1).number == 1
    assert reopened.accountant().costs == (QUERY.repeat(3), OTHER)
    assert reopened.spent == ledger.spent


@pytest.mark.quick_cases(1)
def test_labels_stay_in_the_ledger_until_they_are_delivered(place: str, tmp_path: Path) -> None:
    ledger = PrivacyLedger.create(place, BUDGET)
    labels, output = np.array(["no", "yes", "no"]), tmp_path / "labels.csv"
    number = ledger.debit(QUERY.repeat(3), labels=labels, output=output)
    with pytest.raises(DeliveryError, match="no space; the budget is spent and the labels are kept"):
        ledger.raise_if_paid(OSError("no space"), after=number - 1)
    with pytest.raises(ValueError, match=r"were paid for already and are not delivered yet \(entry 1"):
        ledger.debit(QUERY.repeat(3), labels=labels, output=output)
    reopened = PrivacyLedger(place)
    assert reopened.kept_labels(1).tolist() == labels.tolist()
    with pytest.raises(ValueError, match="the entry must be one of 1, got 2"):
        reopened.kept_labels(2)
    digest = ledger.digest()
    reopened.forget_labels(1)
    assert ledger.undelivered() == ()
    assert ledger.digest() == digest  # a delivery is no entry
    with pytest.raises(ValueError, match="the entry must be undelivered, and none is, got 1"):
        ledger.kept_labels(1)


def test_run_keeps_at_most_its_labels() -> None:
    ledger, cost = PrivacyLedger.create(":memory:", BUDGET), replace(QUERY, labels=2, count=2)
    ledger.debit(cost, labels=np.array([1, 0, 1]))
    assert ledger.kept_labels(1).tolist() == [1, 0, 1]
    for shape in ((5,), (2, 2)):
        with pytest.raises(ValueError, match=r"labels must be \(4,\)"):
            ledger.debit(cost, labels=np.zeros(shape, dtype=np.int64))


def test_stream_keeps_its_last_labels_and_the_ids_of_its_questions(place: str) -> None:
    ledger = PrivacyLedger.create(place, BUDGET)
    labels = np.zeros(2, dtype=np.int64)
    ledger.debit(QUERY)
    ledger.debit(QUERY.repeat(2), labels=labels, cursor=StreamCursor("-wards", 0, ("a", "b")))
    ledger.debit(QUERY, labels=labels[:1], cursor=StreamCursor.of("wards", 2))
    assert [entry.questions for entry in PrivacyLedger(place).entries()] == [(), ("a", "b"), ()]
    assert [entry.number for entry in ledger.undelivered()] == [3]
    with pytest.raises(ValueError, match=r"another process answers this stream \(entry 3 of the ledger\)"):
        PrivacyLedger(place).debit(QUERY, labels=labels[:1], cursor=StreamCursor.of("wards", 2))


def test_costs_have_any_length(place: str) -> None:
    orders = np.linspace(2, 500, 2_000)
    long = PrivacyCost("a curve", renyi=RenyiCurve(orders, orders / 3e6))
    short = PrivacyCost("small", renyi=RenyiCurve(np.array([2.0, 8.0]), np.array([1e-4, 4e-4])))
    ledger = PrivacyLedger.create(place, BUDGET, composition="renyi")
    assert [ledger.debit(cost) for cost in (long, long, short)] == [1, 2, 3]
    assert [cost.count for cost in PrivacyLedger(place).costs().values()] == [2, 1]


# what is refused

NOTES = ("a\nb", "\x1b[2J", "caf\udce9", "a\x00b", "a\u2028b", "\u202eabc")
TWO: dict[str, Any] = {"labels": np.zeros(2, dtype=np.int64)}
REFUSED_CREATIONS: list[tuple[dict[str, Any], str]] = [
    ({"composition": "two"}, "composition"),
    ({"timeout": 0}, "timeout"),
    ({"timeout": float("nan")}, "timeout"),
    ({"budget": PrivacyParams(0, 0.1)}, "budget_epsilon"),
    ({"population": "a\nb"}, "population must be printable text"),
    ({"population": "x" * 101}, "population must be printable text"),
]
REFUSED_DEBITS: list[tuple[PrivacyCost, dict[str, Any], str]] = [
    *((QUERY, {"note": note}, "note must be printable Unicode text on one line") for note in NOTES),
    (PrivacyCost("a\nb", guarantee=PARAMS), {}, "the cost's words must be printable"),
    (OTHER, {}, "queries of one kind, 'majority of 11', and 'majority of 5'"),
    (QUERY.repeat(3), TWO, r"labels must be \(3,\), one for each query"),
    (
        QUERY.repeat(2),
        {**TWO, "cursor": StreamCursor("-", 0, ("a",))},
        "the ids of questions must be 2, one for each query",
    ),
]


@pytest.mark.parametrize(("options", "message"), REFUSED_CREATIONS)
def test_create_refuses_bad_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrivacyLedger.create(":memory:", **{"budget": BUDGET, **options})


@pytest.mark.parametrize(("cost", "options", "message"), REFUSED_DEBITS)
def test_debit_refuses_bad_arguments(cost: PrivacyCost, options: dict[str, Any], message: str) -> None:
    ledger = PrivacyLedger.create(":memory:", BUDGET)
    ledger.debit(QUERY)
    with pytest.raises(ValueError, match=message):
        ledger.debit(cost, **options)
    assert ledger.accountant().queries == 1
    assert ledger.queries_that_fit(OTHER) == 0


def test_kept_labels_refuses_changed_labels(path: Path) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    ledger.debit(QUERY.repeat(2), **TWO)
    edit(path, "UPDATE entries SET labels = zeroblob(10)")
    with pytest.raises(LedgerError, match="the labels that wait in it were changed"):
        ledger.kept_labels(1)


# threads and processes


def test_threads_share_a_budget(any_place: str) -> None:
    ledger = PrivacyLedger.create(any_place, PrivacyParams(1, "1e-3"))
    fit = ledger.queries_that_fit(QUERY)
    ledger.debit(QUERY)
    numbers: list[int | None] = []

    def debit_many() -> None:
        for _ in range(fit // 2):
            try:
                numbers.append(ledger.debit(QUERY))
            except BudgetExceededError:
                numbers.append(None)
            with pytest.raises(ValueError, match="queries of one kind"):
                ledger.debit(OTHER)

    threads = [threading.Thread(target=debit_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(numbers) == 4 * (fit // 2)
    assert sorted(number for number in numbers if number is not None) == list(range(2, fit + 1))
    assert [entry.number for entry in ledger.entries()] == list(range(1, fit + 1))


@pytest.mark.parametrize(
    ("processes", "debits", "fit"), [(2, 15, 20), pytest.param(8, 200, 400, marks=pytest.mark.slow)]
)
def test_processes_share_a_budget(processes: int, debits: int, fit: int, place: str) -> None:
    epsilon = compose_optimal(PARAMS, fit, 1e-3).epsilon  # a budget that admits exactly so many queries
    PrivacyLedger.create(place, PrivacyParams(epsilon, 1e-3))
    script = """
        num_paid = 0
        for _ in range(int(sys.argv[2])):
            try:
                num_paid += ledger.debit(query) > 0
            except BudgetExceededError:
                pass
        print(num_paid)
    """
    running = [start_python(script, place, debits) for _ in range(processes)]
    outputs, errors = zip(*(process.communicate() for process in running), strict=True)
    assert "".join(errors) == ""
    assert sum(map(int, outputs)) == fit
    ledger = PrivacyLedger(place)
    assert ledger.accountant().queries == len(ledger.entries()) == fit


@pytest.mark.slow
def test_forked_child_shares_the_ledger_but_not_its_connection_or_memory(place: str) -> None:
    PrivacyLedger.create(place, BUDGET)
    script = """
        in_memory = PrivacyLedger.create(":memory:", PrivacyParams(1, "1e-3"))
        ledger.debit(query)
        if os.fork() == 0:
            ledger.debit(query)
            try:
                in_memory.debit(query)
            except LedgerError as error:
                print("refused:", error, flush=True)
            os._exit(0)
        os.wait()
        ledger.debit(query)
        print(ledger.spent.queries)
    """
    output = run_python(script, place)
    assert "refused: ledger ':memory:': a ledger in memory belongs to the process that made it" in output
    assert output.split()[-1] == "3"


# bounds are computed while the lock is free


def test_bounds_are_computed_while_the_lock_is_free(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    fit = ledger.queries_that_fit(QUERY)
    admits, calls = PrivacyAccountant.admits, list[int]()

    def lock_and_admit(self: PrivacyAccountant, budget: PrivacyParams, *, adaptive: bool = False) -> bool:
        other = sqlite3.connect(path, isolation_level=None, timeout=0)
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
        other.close()
        calls.append(self.queries)
        return admits(self, budget, adaptive=adaptive)

    monkeypatch.setattr(PrivacyAccountant, "admits", lock_and_admit)
    for _ in range(fit):
        ledger.debit(QUERY)
    with pytest.raises(BudgetExceededError):
        ledger.debit(QUERY)
    assert len(calls) < 4 * np.log2(fit) + 4  # and not one for each debit


def test_debits_of_others_meanwhile_are_counted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = PrivacyLedger.create(path, BUDGET).queries_that_fit(QUERY)
    ledger, other = PrivacyLedger(path), PrivacyLedger(path)
    other.debit(QUERY.repeat(fit - 3))
    other.debit(QUERY)
    admits = PrivacyAccountant.admits

    def debit_and_admit(self: PrivacyAccountant, budget: PrivacyParams, *, adaptive: bool = False) -> bool:
        monkeypatch.undo()
        other.debit(QUERY.repeat(2))
        return admits(self, budget, adaptive=adaptive)

    monkeypatch.setattr(PrivacyAccountant, "admits", debit_and_admit)
    with pytest.raises(BudgetExceededError):
        ledger.debit(QUERY)
    assert ledger.accountant().queries == fit


def test_debit_that_is_always_overtaken_is_decided_under_the_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, other = PrivacyLedger.create(path, BUDGET), PrivacyLedger(path)
    make_room = Admission.make_room

    def debit_and_make_room(self: Admission, account: PrivacyAccountant, cost: PrivacyCost) -> None:
        if self is ledger._admission:
            other.debit(QUERY.repeat(3))
            self._reserve = 0
        make_room(self, account, cost)

    monkeypatch.setattr(Admission, "make_room", debit_and_make_room)
    ledger.debit(QUERY)
    assert ledger.accountant().queries == 3 * ledger_module._ATTEMPTS + 1


def test_debit_never_mixes_the_counts_of_two_accounts(path: Path) -> None:
    """Another thread may replace the admitted account between the comparisons of two kinds."""
    one, other = (PrivacyCost(name, guarantee=PrivacyParams(name)) for name in ("1", "2"))
    ledger = PrivacyLedger.create(path, PrivacyParams(4), composition="planned")
    ledger.debit(one.repeat(2))
    admitted, later = (PrivacyAccountant(costs=costs) for costs in ([one.repeat(2), other], [other.repeat(2)]))

    class Replaced(dict[PrivacyCost, int]):
        def get(self, kind: PrivacyCost, default: int = 0) -> int:  # type: ignore[override]
            ledger._admission._admitted_account = later  # within the budget, as the admitted one is
            return super().get(kind, default)

    admitted._counts = Replaced(admitted._counts)
    ledger._admission._admitted_account = admitted
    with pytest.raises(BudgetExceededError):
        ledger.debit(other.repeat(2))
    assert ledger.spent.epsilon == 2.0


class Interrupted:
    """A connection that presses Ctrl-C before or after its first commit."""

    def __init__(self, connection: sqlite3.Connection, *, after: bool) -> None:
        self.connection, self.after = connection, after

    def __getattr__(self, name: str) -> object:
        return getattr(self.connection, name)

    def execute(self, statement: str, *arguments: Any) -> object:
        if statement != "COMMIT":
            return self.connection.execute(statement, *arguments)
        if self.after:
            self.connection.execute(statement)
        raise KeyboardInterrupt


@pytest.mark.parametrize("after", [False, True])
def test_interrupt_around_the_commit_says_whether_labels_are_paid(
    after: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect
    labels, connections = np.array([1, 0]), list[Any]()

    def connect_interrupted(*arguments: Any, **options: Any) -> Any:
        connections.append(connect(*arguments, **options))
        # the first transaction bounds, the second one writes
        return Interrupted(connections[-1], after=after) if len(connections) == 2 else connections[-1]

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect_interrupted)
        with pytest.raises(DeliveryError if after else KeyboardInterrupt) as error:
            ledger.debit(QUERY.repeat(2), labels=labels)
    entries = PrivacyLedger(path).undelivered()
    assert len(entries) == after
    if after:
        assert "interrupted; the budget is spent and the labels are kept" in str(error.value)
        assert (entries[0].labels, entries[0].table) == (labels_digest(labels), QUERY.table)
        assert ledger.kept_labels(1).tolist() == [1, 0]
