"""The ledger: what it admits, what it refuses, and what it says about files that it cannot trust."""

import os
import random
import sqlite3
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from darrm.errors import BudgetExceededError, LedgerError
from darrm.ledger import transaction
from darrm.ledger.chain import Entry
from darrm.ledger.ledger import PrivacyLedger, StreamCursor
from darrm.ledger.sqlite import SQLiteDatabase
from darrm.loss.composition import compose_optimal
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve
from darrm.majority.noise_function import NoiseFunction
from darrm.privacy import PrivacyParams, at_least
from darrm.problem import Problem, Voters
from darrm.table.release import describe_cost
from darrm.table.table import certify
from darrm.util import files
from tests.ledger.common import BUDGET, OTHER, PARAMS, QUERY, edit


def test_the_budget_admits_what_the_composition_admits(place: str) -> None:
    ledger = PrivacyLedger.create(place, BUDGET)
    fit = ledger.queries_that_fit(QUERY)
    assert compose_optimal(PARAMS, fit, 1e-3).epsilon <= 3.0
    assert compose_optimal(PARAMS, fit + 1, 1e-3).epsilon > 3.0
    ledger.debit(QUERY.repeat(fit - 2), note="first")
    with pytest.raises(BudgetExceededError) as caught:
        ledger.debit(QUERY.repeat(5))
    error = caught.value
    assert error.queries_that_fit == 2
    assert error.requested == "5 queries of majority of 11"
    left = 3.0 - compose_optimal(PARAMS, fit - 2, 1e-3).epsilon
    assert error.remaining == f"epsilon {at_least(left, 6)} of 3 at delta 0.001"
    assert "2 still fit" in str(error)
    assert [entry.count for entry in ledger.entries()] == [fit - 2]  # nothing changed
    ledger.debit(QUERY.repeat(2), note="the rest")
    with pytest.raises(BudgetExceededError) as caught:
        ledger.debit(QUERY)
    assert caught.value.queries_that_fit == 0
    spent = ledger.spent
    assert spent.queries == fit
    assert spent.epsilon == pytest.approx(compose_optimal(PARAMS, fit, 1e-3).epsilon)
    assert [entry.number for entry in ledger.entries()] == [1, 2]  # no number was lost


def test_a_delta_that_is_used_up_is_said(path: Path) -> None:
    ledger = PrivacyLedger.create(path, PrivacyParams(10, "2.5e-6"))
    ledger.debit(QUERY.repeat(2))
    with pytest.raises(BudgetExceededError, match="one more would fail with more than that delta, whatever epsilon"):
        ledger.debit(QUERY)
    small = PrivacyLedger.create(":memory:", PrivacyParams("0.1", "1e-3"))
    with pytest.raises(BudgetExceededError) as caught:
        small.debit(QUERY.repeat(50))
    assert "one more would fail" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", ["one", "planned", "adaptive"])
def test_a_second_query_of_private_models_is_refused(kinds: str, path: Path) -> None:
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.1"), models=True), 1)
    cost = describe_cost(certify(problem, NoiseFunction(3, [1.0, 1 / 3])))
    ledger = PrivacyLedger.create(path, PrivacyParams("0.2", "1e-3"), composition=kinds)
    for asked, fit in ((cost.repeat(2), 1), (cost, 0)):
        with pytest.raises(BudgetExceededError, match="share the randomness of their training") as caught:
            PrivacyLedger(path).debit(asked)  # opened again: the file remembers what does not add up
        assert caught.value.queries_that_fit == fit
        assert "\n" not in str(caught.value)
        if fit:
            ledger.debit(cost)
    assert ledger.spent.queries == 1
    assert ledger.spent.epsilon == pytest.approx(0.1, rel=0.02)
    assert ledger.queries_that_fit(cost) == 0


def test_the_log(place: str) -> None:
    ledger = PrivacyLedger.create(place, BUDGET, composition="planned", population="ward 7")
    note = "Grüße — '; DROP TABLE entries; --"
    ledger.debit(QUERY.repeat(3), note=note)
    ledger.debit(OTHER)
    first, second = PrivacyLedger(place).entries()
    assert first == Entry(first.time, "majority of 11", 3, note, number=1, kind=1)
    assert second == Entry(second.time, "majority of 5", 1, "", number=2, kind=2)
    assert first.time <= second.time
    assert first.time.endswith("+00:00")
    again = PrivacyLedger(place)
    assert (again.budget, again.composition, again.population) == (BUDGET, "planned", "ward 7")
    assert (again.identity, again.digest(), again.digest(1).number) == (ledger.identity, ledger.digest(), 1)
    assert again.accountant().costs == (QUERY.repeat(3), OTHER)
    assert again.spent == ledger.spent


def test_entries_name_questions_where_they_have_some(path: Path) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    ledger.debit(QUERY)
    labels = np.zeros(2, dtype=np.int64)
    ledger.debit(QUERY.repeat(2), labels=labels, cursor=StreamCursor("-", 0, ("a", "b")))
    ledger.debit(QUERY, labels=labels[:1], cursor=StreamCursor("-", 2))
    assert [entry.questions for entry in PrivacyLedger(path).entries()] == [(), ("a", "b"), ()]
    with pytest.raises(ValueError, match="the ids of questions must be 2, one for each query of the cost, or none"):
        ledger.debit(QUERY.repeat(2), labels=labels, cursor=StreamCursor("-", 3, ("a",)))


def test_one_kind_only_unless_declared(path: Path) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    ledger.debit(QUERY)
    with pytest.raises(ValueError, match="queries of one kind, 'majority of 11', and 'majority of 5'"):
        ledger.debit(OTHER)
    assert ledger.spent.queries == 1


def test_adaptive_kinds_use_the_filter(path: Path) -> None:
    planned = PrivacyLedger.create(":memory:", BUDGET, composition="planned")
    adaptive = PrivacyLedger.create(path, BUDGET, composition="adaptive")
    assert 0 < adaptive.queries_that_fit(QUERY) < planned.queries_that_fit(QUERY)
    adaptive.debit(QUERY.repeat(10))
    adaptive.debit(OTHER.repeat(2))
    assert adaptive.spent.bound == "filter"
    with pytest.raises(BudgetExceededError):
        adaptive.debit(QUERY.repeat(planned.queries_that_fit(QUERY) - 12))


@pytest.mark.parametrize(
    "cost",
    [
        QUERY,
        PrivacyCost("x", renyi=RenyiCurve(np.array([2.0, 3.5]), np.array([0.1, np.inf]))),
        PrivacyCost("x", profile=PrivacyProfile((0.0, 0.1), (0.3, 1e-300))),
        PrivacyCost("x", guarantee=PrivacyParams("1/3", "1e-9"), renyi=RenyiCurve.from_pure(1.0 / 3.0)),
    ],
)
def test_charges_survive_being_text(cost: PrivacyCost) -> None:
    again = PrivacyCost.from_text(cost.to_text(), what=cost.what)
    assert again == cost
    assert hash(again) == hash(cost)
    with pytest.raises(ValueError, match="no stored cost"):
        PrivacyCost.from_text("{}", what="x")


def test_create_never_forgets(path: Path, tmp_path: Path) -> None:
    PrivacyLedger.create(path, BUDGET).debit(QUERY)
    with pytest.raises(LedgerError, match="it exists already"):
        PrivacyLedger.create(path, PrivacyParams(100, 0.1))
    assert PrivacyLedger(path).spent.queries == 1
    with pytest.raises(LedgerError, match="cannot be created: No such file"):
        PrivacyLedger.create(tmp_path / "no" / "ledger", BUDGET)
    with pytest.raises(LedgerError, match="no such file"):
        PrivacyLedger(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()


def test_a_file_that_vanishes_in_the_last_moment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    path.unlink()
    monkeypatch.setattr(type(path), "is_file", lambda _: True)
    with pytest.raises(LedgerError, match="cannot be opened"):
        ledger.debit(QUERY)
    assert not path.exists()


def test_commits_are_durable(path: Path) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    with ledger._store.transaction(write=True) as tables:
        connection = cast("SQLiteDatabase", tables).connection
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


@pytest.mark.parametrize("name", ["a?b#c%20.sqlite", "ü ö.sqlite", "file:x?mode=memory", os.fsdecode(b"\xff?#%")])
def test_odd_names_lead_to_one_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = PrivacyLedger.create(name, BUDGET)
    monkeypatch.chdir("/")  # a relative path stays where it was
    ledger.debit(QUERY)
    ledger.recovery(1).encode()  # every terminal can show it
    assert (tmp_path / name).is_file()
    assert PrivacyLedger(tmp_path / name).spent.queries == 1


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b"\x00" * 8192, "no ledger"),
        (b"once upon a time " * 999, "corrupted"),
        (b"SQLite", "corrupted"),
    ],
)
def test_what_is_no_ledger(content: bytes, word: str, path: Path, tmp_path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(LedgerError, match=word):
        PrivacyLedger(path)
    edit(tmp_path / "other", "CREATE TABLE budget (epsilon REAL)")  # another program's database
    with pytest.raises(LedgerError, match="it is no ledger"):
        PrivacyLedger(tmp_path / "other")


def test_a_ledger_that_was_emptied_does_not_ask_for_a_new_budget(path: Path) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    ledger.debit(QUERY)
    path.write_bytes(b"")
    for use in (lambda: PrivacyLedger(path), lambda: ledger.debit(QUERY)):
        with pytest.raises(LedgerError, match=r"it is empty: restore a copy .* count its whole budget as spent\. If"):
            use()


def test_a_clock_that_was_set_back_does_not_order_entries_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    times = iter(["2001-01-01T00:00:00.000+00:00", "2101-02-03T04:05:06.789+00:00", "2101-02-03T04:00:00.000+00:00"])
    monkeypatch.setattr(transaction, "now", lambda: next(times))
    for _ in range(3):
        ledger.debit(QUERY)
    latest = "2101-02-03T04:05:06.789+00:00"
    assert [entry.time for entry in ledger.entries()] == [ledger.created, latest, latest]


def test_no_flipped_byte_brings_budget_back(path: Path) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    for count in (3, 1, 7):
        ledger.debit(QUERY.repeat(count))
    whole = path.read_bytes()
    used = [index for index, byte in enumerate(whole) if byte]
    generator = random.Random(20261121)  # noqa: S311 (places to damage, no secrets)
    noticed = 0
    for index in generator.sample(used, 400):
        broken = bytearray(whole)
        broken[index] ^= 1 << generator.randrange(8)
        path.write_bytes(bytes(broken))
        try:
            spent = PrivacyLedger(path)
            assert spent.budget == BUDGET, index
            assert spent.accountant().queries == 11, index
            assert spent.accountant().costs[0] == QUERY.repeat(11), index
        except LedgerError:
            noticed += 1
    assert noticed > 100


def test_another_process_holds_the_lock(path: Path) -> None:
    PrivacyLedger.create(path, BUDGET)
    ledger = PrivacyLedger(path, timeout=0.05)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="another process kept it locked"):
        ledger.debit(QUERY)
    holder.execute("ROLLBACK")
    holder.close()
    ledger.debit(QUERY)
    assert ledger.spent.queries == 1


def test_threads_share_a_ledger(place: str) -> None:
    for where in (":memory:", place):
        ledger = PrivacyLedger.create(where, PrivacyParams(1, "1e-3"))
        fit = ledger.queries_that_fit(QUERY)
        came: list[int | None] = []

        def debit_many(ledger: PrivacyLedger = ledger, came: list[int | None] = came, times: int = fit) -> None:
            for _ in range(times // 2):
                try:
                    came.append(ledger.debit(QUERY))
                except BudgetExceededError:
                    came.append(None)
                with pytest.raises(ValueError, match="queries of one kind"):
                    ledger.debit(OTHER)

        ledger.debit(QUERY)
        threads = [threading.Thread(target=debit_many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ledger.spent.queries == fit
        numbers = [number for number in came if number is not None]
        assert len(came) == 4 * (fit // 2)
        assert sorted(numbers) == list(range(2, fit + 1))  # none twice
        assert [entry.number for entry in ledger.entries()] == [1, *sorted(numbers)]


PRELUDE = """
import os, resource, sys
from darrm.loss.privacy_cost import PrivacyCost
from darrm.ledger.ledger import PrivacyLedger, StreamCursor
from darrm.errors import LedgerError
from darrm.privacy import PrivacyParams, at_least
query = PrivacyCost("q", guarantee=PrivacyParams("0.1", "1e-6"))
ledger = PrivacyLedger(sys.argv[1])
"""


def run_python(script: str, path: Path | str) -> str:
    """What a process prints that runs the script with the ledger at a path."""
    whole = PRELUDE + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", whole, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_forked_child_shares_the_ledger_but_not_its_connection_or_memory(place: str) -> None:
    PrivacyLedger.create(place, BUDGET)
    script = """
        own = PrivacyLedger.create(":memory:", PrivacyParams(1, "1e-3"))
        ledger.debit(query)
        if os.fork() == 0:
            ledger.debit(query)
            try:
                own.debit(query)
            except LedgerError as error:
                print("refused:", error, flush=True)
            os._exit(0)
        os.wait()
        ledger.debit(query)
        print(ledger.spent.queries)
    """
    out = run_python(script, place)
    assert "refused: ledger ':memory:': a ledger in memory belongs to the process that made it" in out
    assert out.split()[-1] == "3"


@pytest.mark.slow
def test_children_that_are_forked_while_threads_debit_do_not_wait_for_themselves(path: Path) -> None:
    PrivacyLedger.create(path, BUDGET)
    script = """
        import threading, warnings
        warnings.simplefilter("ignore")  # later Pythons warn of forks beside threads, which this is about
        free, stop = PrivacyCost("free", guarantee=PrivacyParams(0)), threading.Event()
        def work(call):
            while not stop.is_set():
                call()
        calls = (lambda: ledger.debit(free), ledger.entries)
        threads = [threading.Thread(target=work, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        ended = []
        for _ in range(10):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    PrivacyLedger(sys.argv[1], timeout=10).debit(free)
                    status = 0
                finally:
                    os._exit(status)
            ended.append(os.waitpid(child, 0)[1])
        stop.set()
        for thread in threads:
            thread.join()
        print(ended)
    """
    assert run_python(script, path) == f"{[0] * 10}\n"


def test_files_are_opened_and_closed_under_the_lock_that_forks_wait_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, closed = list[bool](), list[bool]()  # whether this thread held it; else a child keeps SQLite's locks
    connect = sqlite3.connect
    lock: Any = files.between_transactions

    class Seen(sqlite3.Connection):
        def close(self) -> None:
            closed.append(lock._is_owned())
            super().close()

    def seen(*arguments: Any, **how: Any) -> sqlite3.Connection:
        opened.append(lock._is_owned())
        return connect(*arguments, factory=Seen, **how)

    monkeypatch.setattr(sqlite3, "connect", seen)
    PrivacyLedger.create(path, BUDGET).debit(QUERY)
    assert PrivacyLedger(path).accountant().queries == 1
    assert len(opened) == len(closed) >= 3
    assert all(opened + closed)


def test_a_full_disk_loses_nothing(path: Path) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    ledger.debit(QUERY.repeat(3))
    script = """
        size = os.path.getsize(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        for attempt in range(3):
            try:
                ledger.debit(query, note="x" * 100_000)
            except LedgerError as error:
                print(error)
        print(ledger.accountant().queries)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        ledger.debit(query, note="x" * 100_000)
        print(ledger.accountant().queries)
    """
    out = run_python(script, path).splitlines()
    assert len(out) == 5
    assert all("disk" in line and str(path) in line for line in out[:3])
    assert out[3:] == ["3", "4"]
    assert [entry.count for entry in PrivacyLedger(path).entries()] == [3, 1]


def test_a_read_only_file_is_reported(path: Path) -> None:
    PrivacyLedger.create(path, BUDGET).debit(QUERY)
    for parent in (path.parent, *path.parent.parents):  # the test's own folders must be open to the user below
        if parent.stat().st_uid == os.getuid() and "pytest-of-" in str(parent):
            parent.chmod(0o755)
    path.chmod(0o444)
    script = """
        if os.getuid() == 0:
            os.setuid(65534)  # root may write anything
        try:
            ledger.debit(query)
        except LedgerError as error:
            print(error)
        print(ledger.accountant().queries)
    """
    out = run_python(script, path).splitlines()
    assert "cannot be written, so nothing was debited" in out[0]
    assert out[1] == "1"


@pytest.mark.parametrize(
    ("options", "word"),
    [({"composition": "two"}, "composition"), ({"timeout": 0}, "timeout"), ({"timeout": float("nan")}, "timeout")],
)
def test_bad_arguments(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        PrivacyLedger.create(":memory:", BUDGET, **options)
    with pytest.raises(ValueError, match="budget_epsilon"):
        PrivacyLedger.create(":memory:", PrivacyParams(0, 0.1))


def test_sqlite_reports_a_full_database(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    connect = sqlite3.connect

    def tiny(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.execute("PRAGMA max_page_count = 1")  # clamped to the present size
        return connection

    monkeypatch.setattr(sqlite3, "connect", tiny)
    with pytest.raises(LedgerError, match="the disk is full: nothing was debited"):
        ledger.debit(QUERY, note="x" * 100_000)
    monkeypatch.undo()
    assert ledger.entries() == ()


def test_truncated(path: Path) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    for _ in range(20):
        ledger.debit(QUERY, note="x" * 500)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LedgerError, match="corrupted"):
        PrivacyLedger(path)
