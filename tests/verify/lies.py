"""Folders of files that are honest, and lies about them: each a change of one statement, digests made to fit.

Whoever lies here knows what a file holds and how it is protected: checksums, seals and links are computed anew. Only
the head of a ledger that somebody copied earlier, in a receipt, is out of reach.
"""
# ruff: noqa: S608 (statements are a test's own words)

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import product
from operator import itemgetter
from pathlib import Path
from shutil import copy, copytree
from typing import Any

import numpy as np

from darrm import (
    NoiseFunction,
    PrivacyLedger,
    PrivacyParams,
    Problem,
    Release,
    Table,
    Voters,
    Votes,
    Workload,
    certify,
    open_release,
    optimize_table,
    release_debited,
)
from darrm.aggregator import load_release
from darrm.errors import TableError
from darrm.optimize.plurality import optimize_plurality
from darrm.priors import Dirichlet
from darrm.subsampling import Subsampling
from darrm.verify.audit import Audit, audit
from darrm.verify.verdicts import ASSUMED, FALSE, UNKNOWN
from tests.planned import made_of
from tests.relinked import relink

Json = dict[str, Any]
MISSED = "missed"
PLAIN = Voters(12, PrivacyParams("inf"), overlap=1)
THREE = Workload(PLAIN, 10, PrivacyParams(4, "1e-4"), classes=3)
TWO = Workload(Voters(11, PrivacyParams("inf"), overlap=1), 20, PrivacyParams(3, "1e-4"))
MECHANISMS = {
    "gnmax": ("gnmax", ("sigma",)),
    "lnmax": ("lnmax", ("gamma",)),
    "shaped": ("asymmetric", ("right", "left", "right_power", "left_power")),
    "exponential": ("exponential", ("epsilon",)),
    "flip": ("permute-and-flip", ("epsilon",)),
}
# a total that no model of ε = 1 keeps alone, and no ten labels
MODELS = Workload(Voters(11, PrivacyParams("1", "1e-6"), overlap=1, models=True), 10, PrivacyParams("0.6", "1e-5"))
# of voters that draw their examples anew: classes, family, and how people are drawn
DRAWN = {
    "drawn": (2, "lnmax", Subsampling(Fraction(1, 20))),
    "drawn table": (3, "optimal", Subsampling(Fraction(1, 50), records=2)),
    "drawn gnmax": (3, "gnmax", Subsampling(Fraction(1, 50))),
    "drawn exponential": (3, "exponential", Subsampling(Fraction(1, 20))),
    "drawn flip": (3, "permute-and-flip", Subsampling(Fraction(1, 20))),
    "fixed": (2, "gnmax", Subsampling(Fraction(1, 20), "fixed")),
}
KINDS = {"gnmax": "renyi", "lnmax": "planned", "shaped": "planned", "exponential": "adaptive", "flip": "one"}


@dataclass(frozen=True)
class Lie:
    """A change that makes a statement of a folder untrue.

    ``unknown`` is part of a claim that may be *unknown* or *assumed*; empty where nothing but *false* will do.
    """

    folder: str
    name: str
    tell: Callable[[Path], object]
    unknown: str = ""

    def __str__(self) -> str:
        return f"{self.folder}: {self.name}"


@dataclass(frozen=True)
class Honest:
    """A change after which every statement is as true as before."""

    folder: str
    name: str
    make: Callable[[Path], object]

    def __str__(self) -> str:
        return f"{self.folder}: {self.name}"


def sorted_as(found: Audit, unknown: str) -> str:
    """Return how an audit answers a lie: false, cannot be known, or not at all."""
    if any(one.verdict == FALSE for one in found.verdicts):
        return FALSE
    doubted = unknown and any(one.verdict in {UNKNOWN, ASSUMED} and unknown in one.claim for one in found.verdicts)
    return UNKNOWN if doubted else MISSED


# ------------------------------------------------------------------------------------------------ honest folders


def made_majority(folder: Path) -> None:
    """A proven table of private voters, two files of labels and a numbered stream, paid by one ledger."""
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.2", "1e-5")), "1.5")
    optimize_table(problem, prior=Dirichlet()).save(folder / "table.json")
    table, rng = Table.load(folder / "table.json"), np.random.default_rng(3)
    ledger = PrivacyLedger.create(folder / "ledger.sqlite", PrivacyParams(20, "1e-2"), population="ward 7")
    for name, queries in (("labels.csv", 20), ("more.npy", 9)):
        release_debited(Release(table), rng.integers(0, 2, (queries, 3)), ledger=ledger, output=folder / name)
    with open_release(table, ledger) as release:
        answers = [release.answer(row) for row in rng.integers(0, 2, (24, 3))]
    (folder / "answers.csv").write_text("".join(f"{n},{label}\n" for n, label in enumerate(answers, 1)))


def made_plan(folder: Path) -> None:
    """A plan of two classes and plain voters, with labels that it released."""
    made_of(TWO, "rdp-optimal", Dirichlet()).save(folder / "plan.json")
    _released(folder, TWO, "one")


def made_models(folder: Path) -> None:
    """A plan for models, trained once, with labels that it released."""
    made_of(MODELS, "rdp-optimal", Dirichlet()).save(folder / "plan.json")
    _released(folder, MODELS, "one")


def made_plurality(folder: Path) -> None:
    """A plan of three classes that is a proven table, with labels; and a table of private voters that is unused."""
    made_of(THREE, "rdp-optimal", Dirichlet()).save(folder / "plan.json")
    _released(folder, THREE, "planned")
    optimize_plurality(Problem(Voters(3, PrivacyParams("0.5")), PrivacyParams("0.8"), classes=3)).save(
        folder / "unused.json"
    )


def made_mechanism(family: str, kinds: str, folder: Path) -> None:
    """A plan of three classes by a mechanism, with labels that it released."""
    made_of(THREE, family, Dirichlet()).save(folder / "plan.json")
    _released(folder, THREE, kinds)


def made_drawn(classes: int, family: str, sampling: Subsampling, folder: Path) -> None:
    """A plan for voters that draw their examples anew, with labels that it released."""
    voters = Voters(8, PrivacyParams("inf"), sampling.records, sampled=sampling)
    workload = Workload(voters, 20, PrivacyParams(2, "1e-5"), classes=classes)
    made_of(workload, family, Dirichlet()).save(folder / "plan.json")
    _released(folder, workload, "one")


def made_differing(folder: Path) -> None:
    """A table of voters that promise different things, with the labels of a ledger."""
    voters = Voters.of([PrivacyParams("0.1"), PrivacyParams("0.2", "1e-6"), PrivacyParams("0.5", "1e-6")])
    certify(Problem(voters, PrivacyParams("0.4", "1e-5")), NoiseFunction(3, [0.2, 0.4])).save(folder / "table.json")
    votes = np.random.default_rng(4).integers(0, 2, (12, 3))
    ledger = PrivacyLedger.create(folder / "ledger.sqlite", PrivacyParams(9, "1e-3"))
    release_debited(load_release(folder / "table.json"), votes, ledger=ledger, output=folder / "labels.csv")


def made_parquet(names: tuple[str, ...], folder: Path) -> None:
    """Labels in two Parquet files, drawn from votes in Parquet files that are not in the folder."""
    import pyarrow as pa
    from pyarrow import parquet

    from darrm.release.partitions import release_partitions

    rng = np.random.default_rng(5)
    for name in names:
        (folder / ".votes" / name).parent.mkdir(parents=True, exist_ok=True)
        votes = rng.integers(0, 2, (30, 3), dtype=np.int8)
        parquet.write_table(pa.table({f"v{k}": votes[:, k] for k in range(3)}), folder / ".votes" / name)
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.02")), 3)
    certify(problem, NoiseFunction(3, [0, 0.05])).save(folder / "table.json")
    ledger = PrivacyLedger.create(folder / "ledger.sqlite", PrivacyParams(9, "1e-2"))
    release = load_release(folder / "table.json")
    release_partitions(release, folder / ".votes", ledger=ledger, output=folder / "labels")


def _released(folder: Path, workload: Workload, kinds: str) -> None:
    """Release the labels of a plan in two debits."""
    rng, K, C = np.random.default_rng(2), workload.voters.K, workload.classes
    release = load_release(folder / "plan.json")
    total = workload.total if kinds in {"one", "planned"} else PrivacyParams(40, "1e-2")
    ledger = PrivacyLedger.create(folder / "ledger.sqlite", total, composition=kinds, population="ward 7")
    first = workload.queries - 3
    for name, queries in (("labels.csv", first), ("more.csv", 3)):
        votes = Votes.of_counts(rng.multinomial(K, [1 / C] * C, queries))
        release_debited(release, votes, ledger=ledger, output=folder / name)


FOLDERS: dict[str, Callable[[Path], None]] = {
    "majority": made_majority,
    "plan": made_plan,
    "models": made_models,
    "plurality": made_plurality,
    **{name: partial(made_mechanism, family, KINDS[name]) for name, (family, _) in MECHANISMS.items()},
    **{name: partial(made_drawn, *how) for name, how in DRAWN.items()},
    "differing": made_differing,
    "parquet": partial(made_parquet, ("a.parquet", "b.parquet")),
    "nested": partial(made_parquet, ("year=1/a.parquet", "year=2/a.parquet")),
}


# ------------------------------------------------------------------------------------------------ changes of files


def changed(name: str, where: str, value: object, folder: Path) -> None:
    """Change one field of a JSON file; a function computes the new value, None takes the field out."""
    data = json.loads((folder / name).read_text())
    *places, last = where.split("/")
    inside = data
    for place in places:
        inside = inside[int(place)] if isinstance(inside, list) else inside[place]
    key: Any = int(last) if isinstance(inside, list) else last
    if value is None:
        del inside[key]
    else:
        inside[key] = value(inside[key]) if callable(value) else value
    (folder / name).write_text(json.dumps(signed(data)))


def signed(data: Json) -> Json:
    """Compute the checksum of a table's file anew."""
    if "checksum" not in data:
        return data
    numbers = {name: data[name] for name in ("problem", "gamma", "weights") if name in data}
    text = json.dumps(numbers, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return {**data, "checksum": hashlib.sha256(text.encode()).hexdigest()}


def times(factor: float) -> Callable[[Any], Any]:
    """Multiply a number, spelled as it was."""
    return lambda old: repr(float(old) * factor) if isinstance(old, str) else old * factor


def plus(step: float) -> Callable[[Any], Any]:
    return lambda old: old + step


def forged(*statements: str) -> Callable[[Path], None]:
    """Change a ledger, and compute all that protects it anew."""
    return lambda folder: relink(folder / "ledger.sqlite", *statements)


def without_receipts(lie: Callable[[Path], object]) -> Callable[[Path], None]:
    """Tell a lie where nobody kept a head."""

    def tell(folder: Path) -> None:
        _without("*.receipt.json", folder)
        lie(folder)

    return tell


def _without(pattern: str, folder: Path) -> None:
    """Delete files."""
    for path in folder.rglob(pattern):
        path.unlink()


def lines(name: str, edit: Callable[[list[str]], list[str]], folder: Path) -> None:
    """Change the lines of a file of labels."""
    (folder / name).write_text("".join(edit((folder / name).read_text().splitlines(keepends=True))))


def other(label: str) -> str:
    """Return another label than that of a line."""
    number, comma, value = label.strip().rpartition(",")
    return f"{number}{comma}{1 if value == '0' else 0}\n"


def swapped(first: str, second: str, folder: Path) -> None:
    """Exchange two files."""
    one, two = (folder / first).read_bytes(), (folder / second).read_bytes()
    (folder / first).write_bytes(two)
    (folder / second).write_bytes(one)


def in_array(name: str, edit: Callable[[Any], Any], folder: Path) -> None:
    np.save(folder / name, edit(np.load(folder / name)))


def in_parquet(name: str, edit: Callable[[Any], Any], folder: Path) -> None:
    """Change the labels of a Parquet file."""
    import pyarrow as pa
    from pyarrow import parquet

    table = parquet.read_table(folder / name)
    labels = edit(table.column(table.num_columns - 1).to_numpy())
    parquet.write_table(pa.table({table.column_names[-1]: labels}), folder / name)


# ------------------------------------------------------------------------------------------------ lies

IN_A_PLAN: dict[str, tuple[str, object]] = {
    "a total of half": ("plan/spent/epsilon", times(0.5)),
    "a total less by 1 %": ("plan/spent/epsilon", times(0.99)),
    "a total less by 2 ‰": ("plan/spent/epsilon", times(0.998)),
    "a total of nothing": ("plan/spent/epsilon", 0.0),
    "a total beyond the budget": ("plan/spent/epsilon", times(1.01)),
    "a smaller δ of the total": ("plan/spent/delta", times(0.1)),
    "one more query": ("plan/workload/queries", plus(1)),
    "twice the queries": ("plan/workload/queries", lambda old: 2 * old),
    "another K": ("plan/workload/K", plus(1)),
    "a person reaches fewer": ("plan/workload/overlap", plus(1)),
    "private voters": ("plan/workload/each/epsilon", "0.9"),
    "another number of classes": ("plan/workload/classes", plus(1)),
    "a smaller budget": ("plan/workload/total/epsilon", times(0.95)),
    "a smaller δ": ("plan/workload/total/delta", times(0.5)),
    "no workload": ("plan/workload", None),
    "a list": ("plan", [1]),
    "a total that is no number": ("plan/spent/epsilon", True),
}
# no bound of the verifier is so close that it refutes these; it does not prove them either
CLOSE_TOTALS = {"a total less by 1 %", "a total less by 2 ‰", "one more query"}
OF_VOTERS = {"another K of it": ("voters/K", plus(1)), "other classes of it": ("classes", plus(1)),
             "it reaches two": ("mechanism/reached", 2), "voters reach two": ("voters/overlap", 2),
             "a note": ("note", "proved in Lean"), "another version": ("version", 2)}  # fmt: skip


def lies_in_plans() -> Iterator[Lie]:
    """Change what plans claim, and the parameters of what releases."""
    for folder in ("plan", "models", "plurality", *MECHANISMS):
        # what two classes claim is a table's too; to change that in each folder would say the same seven times
        for name, (where, value) in IN_A_PLAN.items():
            unknown = "answers as planned are" if name in CLOSE_TOTALS else ""
            yield Lie(folder, name, partial(changed, "plan.json", where, value), unknown)
    for folder, (_, parameters) in MECHANISMS.items():
        for name in parameters:
            for factor in (0.5, 0.999, 1.001, 2.0):
                where = f"mechanism/{name}"
                yield Lie(folder, f"{name} times {factor:g}", partial(changed, "plan.json", where, times(factor)))
        for name, (where, value) in OF_VOTERS.items():
            yield Lie(folder, name, partial(changed, "plan.json", where, value))
    kind = "mechanism/kind"
    yield Lie("exponential", "it is another mechanism", partial(changed, "plan.json", kind, "PermuteAndFlip"))
    yield Lie("flip", "it is another mechanism", partial(changed, "plan.json", kind, "ExponentialMechanism"))


IN_A_TABLE: dict[str, tuple[str, object]] = {
    "a number": ("gamma/0", times(1.01)),
    "a number less": ("gamma/1", times(0.99)),
    "a smaller worst cost": ("certificate/worst_cost", times(1 - 1e-12)),
    "a larger budget": ("certificate/budget", times(1 + 1e-12)),
    "no method": ("certificate/method", None),
    "no worst cost": ("certificate/worst_cost", None),
    "no budget": ("certificate/budget", None),
    "no rows": ("certificate/rows", None),
    "a scale": ("certificate/scale", 2.0),
    "a note on the proof": ("certificate/note", "proved in Lean"),
    "a note on the optimum": ("optimality/note", "proved in Lean"),
    "a note on the problem": ("problem/note", "proved in Lean"),
    "a smaller error": ("optimality/value", times(0.9)),
    "a larger error": ("optimality/value", times(1.1)),
    "a better bound": ("optimality/bound", times(1.1)),
    "a negative multiplier": (
        "optimality/multipliers/0",
        lambda old: [-7, *old[1:]] if isinstance(old, list) else -7.0,
    ),
    "a smaller ε": ("problem/target/epsilon", times(0.5)),
    "a smaller δ": ("problem/target/delta", times(0.5)),
    "less private voters": ("problem/each/epsilon", times(2)),
    "more voters": ("problem/K", 5),
    "a person reaches one": ("problem/overlap", 1),
    "another format": ("format", "darrm plurality table"),
    "another version": ("version", 99),
    "a note": ("note", "(0.001, 0)-private"),
}
IN_A_PLURALITY = {
    "a weight": ("weights/0/0", lambda old: old - 2**40),
    "a smaller ε": ("problem/target/epsilon", times(0.5)),
    "less private voters": ("problem/each/epsilon", times(2)),
    "another number of classes": ("problem/classes", 4),
    "a note": ("note", "(0.001, 0)-private"),
}
OF_DIFFERING = {
    "a voter is more private": ("problem/own/0/epsilon", times(0.5)),
    "a smaller ε": ("problem/target/epsilon", times(0.7)),
    "a number": ("gamma/0", times(1.01)),
}

OF_MODELS: dict[str, tuple[str, object]] = {
    "a workload of fresh voters": ("plan/workload/models", None),
    "a table for fresh voters": ("problem/models", None),
    "a workload of plain voters": ("plan/workload/each/epsilon", "inf"),
    "a number less": ("gamma/0", times(0.99)),
    "a number more": ("gamma/4", times(1.01)),
}


def lies_in_tables() -> Iterator[Lie]:
    """Change proven tables, their checksum written anew."""
    for name, (where, value) in IN_A_TABLE.items():
        tell = partial(changed, "table.json", where, value)
        yield Lie("majority", f"a table with {name}", tell)
        yield Lie("majority", f"alone, a table with {name}", alone("table.json", tell))
    for name, (where, value) in IN_A_PLURALITY.items():
        yield Lie("plurality", f"a table with {name}", partial(changed, "unused.json", where, value))
    for name, (where, value) in OF_DIFFERING.items():
        yield Lie("differing", f"a table with {name}", partial(changed, "table.json", where, value))
    for name, (where, value) in OF_MODELS.items():
        yield Lie("models", name, partial(changed, "plan.json", where, value))
    yield Lie("plan", "another number", partial(changed, "plan.json", "gamma/0", times(1.01)))
    yield Lie("plurality", "another weight", partial(changed, "plan.json", "weights/0/0", lambda old: old - 2**40))


CHEAP = '{"guarantee":["0.000001","0"],"profile":null,"renyi":null}'
CHEAP_KIND = f"INSERT INTO costs VALUES (9, '{CHEAP}', 'DaRRM over 3 voters', 0, '', '')"
SEQUENCE = "UPDATE state SET last_entry = (SELECT count(*) FROM entries)"
IN_A_LEDGER: dict[str, tuple[str, ...]] = {
    "a budget twice as large": ("UPDATE budget SET epsilon = '41'",),
    "a smaller budget": ("UPDATE budget SET epsilon = '0.3'",),
    "a larger δ": ("UPDATE budget SET delta = '0.02'",),
    "kinds": ("UPDATE budget SET composition = CASE composition WHEN 'renyi' THEN 'adaptive' ELSE 'renyi' END",),
    "another identity": (f"UPDATE budget SET identity = '{'ab' * 16}'",),
    "another population": ("UPDATE budget SET population = 'ward 8'",),
    "a later beginning": ("UPDATE budget SET created = '2999-01-01T00:00:00.000+00:00'",),
    "an earlier beginning": ("UPDATE budget SET created = '2001-01-01T00:00:00.000+00:00'",),
    "a cheap entry": (CHEAP_KIND, "UPDATE entries SET cost = 9 WHERE id = 1"),
    "a cheap last entry": (CHEAP_KIND, "UPDATE entries SET cost = 9 WHERE id = 2"),
    "other words for what it paid for": ("UPDATE costs SET what = 'a survey'",),
    "a smaller count": ("UPDATE entries SET count = count - 1 WHERE id = 1",),
    "a larger count": ("UPDATE entries SET count = count + 1 WHERE id = 1",),
    "another release": ("UPDATE entries SET table_digest = 'ab' WHERE id = 1",),
    "no release": ("UPDATE entries SET table_digest = '' WHERE id = 1",),
    "other labels": ("UPDATE entries SET labels_digest = 'ab' WHERE id = 1",),
    "no labels": ("UPDATE entries SET labels_digest = '' WHERE id = 1",),
    "another note": ("UPDATE entries SET note = 'a trial' WHERE id = 1",),
    "another time": ("UPDATE entries SET time = '1999-01-01T00:00:00.000+00:00' WHERE id = 1",),
    "no last entry": ("DELETE FROM entries WHERE id = (SELECT max(id) FROM entries)", SEQUENCE),
    "no first entry": ("DELETE FROM entries WHERE id = 1", "UPDATE entries SET id = id - 1", SEQUENCE),
    "no entries": ("DELETE FROM entries", SEQUENCE),
    "two entries exchanged": (
        "UPDATE entries SET id = 99 WHERE id = 1",
        "UPDATE entries SET id = 1 WHERE id = 2",
        "UPDATE entries SET id = 2 WHERE id = 99",
    ),
}
# of the ledger that pays for two files and a stream, of which the last answer waits; false without a head, too
FORGED: dict[str, tuple[str, ...]] = {
    **{
        f"entry {n} costs nearly nothing": (
            CHEAP_KIND,
            f"UPDATE entries SET cost = 9 WHERE id = {n}",
        )
        for n in (3, 14, 26)
    },
    **{
        f"of {kinds} kinds, entry 1 costs nearly nothing": (
            CHEAP_KIND,
            "UPDATE entries SET cost = 9 WHERE id = 1",
            f"UPDATE budget SET composition = '{kinds}'",
        )
        for kinds in ("planned", "adaptive")
    },
    **{
        f"entry {n} has the time {time!r}": (f"UPDATE entries SET time = '{time}' WHERE id = {n}",)
        for n, time in product(
            (1, 2, 9),
            ("1999-01-01T00:00:00.000+00:00", "soon", "2026-02-30T00:00:00.000+00:00", "", "2026-11-23T08:00:00.000"),
        )
    },
    "a small entry beside an equal one": (
        "UPDATE entries SET labels_digest = (SELECT labels_digest FROM entries WHERE id = 1), count = 2 WHERE id = 2",
    ),
    "other labels wait": ("UPDATE entries SET labels = x'00' WHERE id = 26",),
    "no labels wait": ("UPDATE entries SET labels = x'' WHERE id = 26",),
    "more labels wait": ("UPDATE entries SET count = 2 WHERE id = 26",),
}
_WHOLE = "the ledger was not truncated"
# the budget and what nobody else repeats: no file but a head shows it
_WITHOUT_HEAD = {"a budget twice as large", "a larger δ", "another identity", "another population",
                 "an earlier beginning", "another note", "kinds", "no release", "no labels", "a later beginning",
                 "other words for what it paid for", "another time", "two entries exchanged"}  # fmt: skip


def lies_in_ledgers() -> Iterator[Lie]:
    """Change ledgers, everything linked anew: with receipts beside them, and without."""
    for folder in ("majority", "gnmax"):
        for name, statements in IN_A_LEDGER.items():
            yield Lie(folder, f"a ledger with {name}", forged(*statements))
    for name, statements in IN_A_LEDGER.items():
        unknown = _WHOLE if name in _WITHOUT_HEAD else ""
        tell = without_receipts(forged(*statements))
        yield Lie("majority", f"without a head, a ledger with {name}", tell, unknown)
    for name, statements in FORGED.items():
        unknown = "it was debited from" if "1999" in name else ""  # a clock may have been set back
        yield Lie("majority", f"forged, {name}", without_receipts(forged(*statements)), unknown)
    yield Lie(
        "majority",
        "a stream's last answer is gone, and so is its line",
        _forgotten,
        "the ledger was not truncated after entry",
    )


def _forgotten(folder: Path) -> None:
    """Delete the last answer of a stream from ledger and labels."""
    relink(folder / "ledger.sqlite", "DELETE FROM entries WHERE id = (SELECT max(id) FROM entries)", SEQUENCE)
    lines("answers.csv", lambda old: old[:-1], folder)


EDITS: dict[str, Callable[[list[str]], list[str]]] = {
    "the first label turned": lambda old: [other(old[0]), *old[1:]],
    "the last label turned": lambda old: [*old[:-1], other(old[-1])],
    "a label more": lambda old: [*old, old[0]],
    "a label less": lambda old: old[:-1],
    "the first label gone": lambda old: old[1:],
    "all labels equal": lambda old: [line.strip()[:-1] + "1\n" for line in old],
    "labels in order": lambda old: sorted(old) if sorted(old) != old else sorted(old)[::-1],
    "a label of no class": lambda old: [*old[:-1], old[-1].rpartition(",")[0] * 0 + "7\n"],
    "another release's labels": lambda old: [other(line) for line in old],
}


def lower(where: str, factor: float) -> Callable[[Json], object]:
    """Understate a part of a query's cost: numbers of a list of lists, of which the first is the grid."""

    def edit(cost: Json) -> None:
        name, place = where.split("/")
        values = cost[name][int(place)]
        lowered = [repr(float(values) * factor)] if isinstance(values, str) else [factor * value for value in values]
        cost[name][int(place)] = lowered[0] if isinstance(values, str) else lowered

    return edit


def in_costs(edit: Callable[[Json], object], folder: Path) -> None:
    """Change what every query of a ledger costs, and compute all that protects it anew."""
    path = folder / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        costs = connection.execute("SELECT id, cost FROM costs").fetchall()
    statements = []
    for number, text in costs:
        cost = json.loads(text)
        edit(cost)
        written = json.dumps(cost, sort_keys=True, separators=(",", ":"))
        assert written != text
        statements.append(f"UPDATE costs SET cost = '{written}' WHERE id = {number}")
    relink(path, *statements)


def _half_rate(sampled: Json) -> Json:
    return {**sampled, "rate": repr(float(sampled["rate"]) / 2)}


def _other_scheme(sampled: Json) -> Json:
    return {**sampled, "scheme": "fixed" if sampled["scheme"] == "poisson" else "poisson"}


OF_SAMPLING: dict[str, object] = {
    "half the rate": _half_rate,
    "another scheme": _other_scheme,
    "one record each": lambda sampled: {name: value for name, value in sampled.items() if name != "records"},
    "nobody drawn anew": None,
}


def lies_about_sampling() -> Iterator[Lie]:
    """Change how people come into a question: in the file, in the ledger, in both, and what it costs."""
    for folder, (classes, family, sampling) in DRAWN.items():
        is_table = family == "optimal" or (classes == 2 and family not in {"gnmax", "lnmax"})
        place = "problem/sampled" if is_table else "voters/sampled"
        for name, value in OF_SAMPLING.items():
            if sampling.records == 1 and "record" in name:
                continue
            alone, planned = (partial(changed, "plan.json", where, value) for where in (place, "plan/workload/sampled"))
            charged = partial(in_costs, partial(_sampled_as, value))
            yield Lie(folder, f"{name} in the file", without_receipts(alone))
            yield Lie(folder, f"{name} in the plan", without_receipts(planned))
            yield Lie(folder, f"{name} in the file and its plan", without_receipts(partial(_all, (alone, planned))))
            yield Lie(folder, f"{name} in the ledger", without_receipts(charged))
            everywhere = partial(_all, (alone, planned, charged, _named_anew))
            # who was drawn, no file shows: a rate that all files repeat is an assumption
            yield Lie(folder, f"{name} everywhere", without_receipts(everywhere), "drawn with probability")
        parts = {"guarantee": "guarantee/0", "curve": "renyi/1", "profile": "profile/1", "other direction": "profile/2"}
        for name, where in parts.items():
            tell = without_receipts(partial(_understated, where))
            unknown = "of a query is at least what it costs" if folder == "drawn flip" else ""  # no bound is attained
            yield Lie(folder, f"a lower {name} in the ledger", tell, unknown)


def _understated(where: str, folder: Path) -> None:
    """Lower a part of the costs; where they have none of it, the count of queries."""
    try:
        in_costs(lower(where, 0.9), folder)
    except (TypeError, IndexError):
        relink(folder / "ledger.sqlite", "UPDATE entries SET count = count - 1 WHERE id = 1")


def _named_anew(folder: Path) -> None:
    """Let the entries of a ledger name the release as it is now, where it can be read."""
    with suppress(TableError):
        release = load_release(folder / "plan.json")
        digest = release.table.digest if isinstance(release, Release) else release.digest
        relink(folder / "ledger.sqlite", f"UPDATE entries SET table_digest = '{digest}'")


def _sampled_as(value: Any, cost: Json) -> None:
    """Change or take out how people are drawn, in a cost."""
    if value is None:
        del cost["sampled"]
    else:
        cost["sampled"] = value(cost["sampled"])


def _all(lies: Sequence[Callable[[Path], object]], folder: Path) -> None:
    for lie in lies:
        lie(folder)


def lies_in_labels() -> Iterator[Lie]:
    """Change labels of every format."""
    for folder in ("majority", "gnmax", "plurality", "differing"):
        for name, edit in EDITS.items():
            yield Lie(folder, name, partial(lines, "labels.csv", edit))
    turned: dict[str, Callable[[Any], Any]] = {
        "a label turned": lambda old: np.concatenate([1 - old[:1], old[1:]]),
        "a label less": lambda old: old[:-1],
        "a label more": lambda old: np.concatenate([old, old[:1]]),
        "all turned": lambda old: 1 - old,
    }
    for name, edit in turned.items():
        yield Lie("majority", f"an array with {name}", partial(in_array, "more.npy", edit))
        lie = partial(in_parquet, "labels/a.parquet", edit)
        yield Lie("parquet", f"a Parquet file with {name}", lie)
        yield Lie("parquet", f"without a head, a Parquet file with {name}", without_receipts(lie))
    for name in ("the first label turned", "the last label turned", "all labels equal", "another release's labels"):
        yield Lie("majority", f"a stream with {name}", partial(lines, "answers.csv", EDITS[name]))
    for first in (-7, 0, 2, 3, 24, 25, 1000):
        tell = partial(lines, "answers.csv", partial(_later, first - 1))
        yield Lie("majority", f"a stream numbered from {first}", tell)
    tell = partial(in_parquet, "labels/year=2/a.parquet", turned["a label turned"])
    yield Lie("nested", "a label turned", tell)
    yield Lie("parquet", "files exchanged", partial(swapped, "labels/a.parquet", "labels/b.parquet"))
    yield Lie("parquet", "a file gone", lambda folder: (folder / "labels" / "b.parquet").unlink())
    yield Lie("majority", "labels of the other file", lambda folder: copy(folder / "more.npy", folder / "labels.npy")
              and (folder / "labels.csv").write_text("0\n" * 20))  # fmt: skip


def _later(step: int, old: list[str]) -> list[str]:
    """Number answers by so much more."""
    return [f"{int(line.split(',')[0]) + step},{line.split(',')[1]}" for line in old]


IN_A_RECEIPT: dict[str, tuple[str, object]] = {
    "another count": ("entry/count", plus(-1)),
    "another time": ("entry/time", "1999-01-01T00:00:00.000+00:00"),
    "other words": ("entry/what", "a survey"),
    "another release": ("entry/table", "ab" * 32),
    "other labels": ("entry/labels", "ab" * 32),
    "another cost": ("entry/cost", CHEAP),
    "no cost": ("entry/cost", None),
    "another number": ("ledger_digest/number", plus(1)),
    "fewer queries": ("ledger_digest/queries", plus(-1)),
    "a larger budget": ("ledger_digest/budget/epsilon", "99"),
    "another population": ("ledger_digest/population", "ward 8"),
    "another identity": ("ledger_digest/identity", "ab" * 16),
    "another link": ("ledger_digest/entry_hash", "ab" * 32),
    "a note": ("note", "fine"),
}


def lies_in_receipts() -> Iterator[Lie]:
    """Change receipts, or put them beside other labels."""
    for name, (where, value) in IN_A_RECEIPT.items():
        lie = partial(changed, "labels.csv.receipt.json", where, value)
        yield Lie("majority", f"a receipt with {name}", lie)
        yield Lie("exponential", f"a receipt with {name}", lie)
    names = ("labels.csv.receipt.json", "more.csv.receipt.json")
    yield Lie("gnmax", "two receipts exchanged", partial(swapped, *names))


def alone(pattern: str, lie: Callable[[Path], object]) -> Callable[[Path], None]:
    """Tell a lie where no other file is."""

    def tell(folder: Path) -> None:
        for path in folder.iterdir():
            if not path.match(pattern):
                path.unlink()
        lie(folder)

    return tell


def all_lies() -> list[Lie]:
    """List every lie."""
    kinds = (lies_in_plans, lies_in_tables, lies_in_ledgers, lies_in_labels, lies_in_receipts)
    return [lie for kind in (*kinds, lies_about_sampling) for lie in kind()]


# ------------------------------------------------------------------------------------------------ honest variations

MARK = b"\xef\xbb\xbf"


def _rewritten(name: str, write: Callable[[bytes], bytes], folder: Path) -> None:
    (folder / name).write_bytes(write((folder / name).read_bytes()))


def _renamed(old: str, new: str, folder: Path) -> None:
    (folder / old).rename(folder / new)


def _again(**settings: Any) -> Callable[[bytes], bytes]:
    return lambda old: json.dumps(json.loads(old), **settings).encode()


WRITTEN: dict[str, Callable[[bytes], bytes]] = {
    "a byte order mark": lambda old: MARK + old,
    "a spreadsheet's line ends": lambda old: old.replace(b"\n", b"\r\n"),
    "no last line end": lambda old: old.removesuffix(b"\n"),
}
FORMATTED = {
    "no indent": _again(),
    "a large indent": _again(indent=7),
    "sorted keys": _again(sort_keys=True),
    "letters beyond ASCII": _again(ensure_ascii=False),
    "a byte order mark and line ends": lambda old: MARK + old.replace(b"\n", b"\r\n"),
}


def honest_variations() -> list[Honest]:
    """List changes that are none of what a file says."""
    return [
        *(Honest(name, "as it was made", lambda _folder: None) for name in FOLDERS),
        *(
            Honest(folder, f"labels with {name}", partial(_rewritten, "labels.csv", write))
            for folder in ("majority", "gnmax", "differing")
            for name, write in WRITTEN.items()
        ),
        *(
            Honest("majority", f"a stream with {name}", partial(_rewritten, "answers.csv", write))
            for name, write in WRITTEN.items()
        ),
        *(
            Honest(folder, f"{file} with {name}", partial(_rewritten, file, write))
            for folder, file in (
                *((name, "plan.json") for name in ("plan", "plurality", "shaped", "flip")),
                ("majority", "table.json"),
                ("majority", "labels.csv.receipt.json"),
            )
            for name, write in FORMATTED.items()
        ),
        Honest("majority", "a renamed table", partial(_renamed, "table.json", "law.json")),
        Honest("majority", "a renamed ledger", partial(_renamed, "ledger.sqlite", "paid.db")),
        Honest("majority", "a renamed stream", partial(_renamed, "answers.csv", "b.csv")),
        Honest("gnmax", "renamed labels", partial(_renamed, "more.csv", "second.csv")),
        Honest("parquet", "a renamed folder", partial(_renamed, "labels", "drawn")),
        Honest("majority", "a copy of the ledger", lambda at: copy(at / "ledger.sqlite", at / "backup.sqlite")),
        Honest("gnmax", "a copy of the plan", lambda at: copy(at / "plan.json", at / "plan (1).json")),
        Honest("majority", "a copy of labels", lambda at: copy(at / "labels.csv", at / "labels (1).csv")),
        Honest("majority", "no labels", partial(_without, "*.csv")),
        Honest("majority", "no ledger", lambda at: (at / "ledger.sqlite").unlink()),
        Honest("gnmax", "no plan", lambda at: (at / "plan.json").unlink()),
        Honest("plan", "no receipts", partial(_without, "*.receipt.json")),
        Honest("lnmax", "one file of labels gone", lambda at: (at / "more.csv").unlink()),
        Honest("majority", "notes beside it", lambda at: (at / "notes.txt").write_text("ask Ada\n")),
        *(
            Honest("majority", f"a part of its stream, {part}", partial(lines, "answers.csv", itemgetter(part)))
            for part in (slice(0, 9), slice(5, 24), slice(23, 24))
        ),
        Honest("majority", "its stream backwards", partial(lines, "answers.csv", lambda old: old[::-1])),
        Honest("plan", "without what was planned", partial(changed, "plan.json", "plan", None)),
        Honest("majority", "a second debit after the receipts", _debited_again),
    ]


def _debited_again(folder: Path) -> None:
    """Release once more."""
    votes = np.random.default_rng(9).integers(0, 2, (5, 3))
    ledger = PrivacyLedger(folder / "ledger.sqlite")
    release_debited(load_release(folder / "table.json"), votes, ledger=ledger, output=folder / "third.csv")


def audited(made: Path, to: Path, change: Callable[[Path], object]) -> Audit:
    """Judge a copy of a folder, after a change."""
    folder = Path(copytree(made, to))
    change(folder)
    return audit([folder])
