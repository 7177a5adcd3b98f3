"""Make folders of honest files, lies about them, and honest changes.

A liar knows the formats and recomputes checksums and hashes. A liar cannot change the digest of a ledger in a receipt
that was copied earlier. `test_many_lies` changes the fields of JSON files.
"""
# ruff: noqa: S608 (the statements are constants of tests)

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
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
from tests.planned import made_of
from tests.relinked import relink

Json = dict[str, Any]
Change = Callable[[Path], object]
NON_PRIVATE = Voters(12, PrivacyParams("inf"), overlap=1)
THREE_CLASSES = Workload(NON_PRIVATE, 10, PrivacyParams(4, "1e-4"), classes=3)
TWO_CLASSES = Workload(Voters(11, PrivacyParams("inf"), overlap=1), 20, PrivacyParams(3, "1e-4"))
# neither one model of ε = 1 nor ten labels fit this total without the joint bound
MODELS = Workload(Voters(11, PrivacyParams("1", "1e-6"), overlap=1, models=True), 10, PrivacyParams("0.6", "1e-5"))
# mechanisms of three classes, and compositions of their ledgers
MECHANISMS = {
    "gnmax": ("gnmax", "renyi"),
    "lnmax": ("lnmax", "planned"),
    "shaped": ("asymmetric", "planned"),
    "exponential": ("exponential", "adaptive"),
    "flip": ("permute-and-flip", "one"),
}
PARAMETERS = {
    "gnmax": ("sigma",),
    "lnmax": ("gamma",),
    "shaped": ("right", "left", "right_power", "left_power"),
    "exponential": ("epsilon",),
    "flip": ("epsilon",),
}
# voters with resampled examples: classes, mechanism, and sampling
RESAMPLED = {
    "drawn": (2, "lnmax", Subsampling(Fraction(1, 20))),
    "drawn table": (3, "optimal", Subsampling(Fraction(1, 50), records=2)),
    "drawn gnmax": (3, "gnmax", Subsampling(Fraction(1, 50))),
    "drawn exponential": (3, "exponential", Subsampling(Fraction(1, 20))),
    "drawn flip": (3, "permute-and-flip", Subsampling(Fraction(1, 20))),
    "fixed": (2, "gnmax", Subsampling(Fraction(1, 20), "fixed")),
}


@dataclass(frozen=True)
class Case:
    """A change of a folder: a lie or an honest change.

    ``unknown`` is part of a claim that may be *unknown* or *assumed*. If it is empty, a lie must be *false*.
    """

    folder: str
    name: str
    change: Change
    unknown: str = ""

    def __str__(self) -> str:
        return f"{self.folder}: {self.name}"


def make_majority(folder: Path) -> None:
    """Make a table of private voters, two files of labels and a numbered stream, all paid by one ledger."""
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.2", "1e-5")), "1.5")
    optimize_table(problem, prior=Dirichlet()).save(folder / "table.json")
    table, rng = Table.load(folder / "table.json"), np.random.default_rng(3)
    ledger = PrivacyLedger.create(folder / "ledger.sqlite", PrivacyParams(20, "1e-2"), population="ward 7")
    for name, queries in (("labels.csv", 20), ("more.npy", 9)):
        release_debited(Release(table), rng.integers(0, 2, (queries, 3)), ledger=ledger, output=folder / name)
    with open_release(table, ledger) as release:
        answers = [release.answer(row) for row in rng.integers(0, 2, (24, 3))]
    (folder / "answers.csv").write_text("".join(f"{n},{label}\n" for n, label in enumerate(answers, 1)))


def make_plan(folder: Path) -> None:
    """Make a plan of two classes and non-private voters, with released labels."""
    made_of(TWO_CLASSES, "rdp-optimal", Dirichlet()).save(folder / "plan.json")
    _release(folder, TWO_CLASSES, "one")


def make_models(folder: Path) -> None:
    """Make a plan for models, trained once, with released labels."""
    made_of(MODELS, "rdp-optimal", Dirichlet()).save(folder / "plan.json")
    _release(folder, MODELS, "one")


def make_plurality(folder: Path) -> None:
    """Make a plan of three classes by a table, with released labels, and an unused table of private voters."""
    made_of(THREE_CLASSES, "rdp-optimal", Dirichlet()).save(folder / "plan.json")
    _release(folder, THREE_CLASSES, "planned")
    optimize_plurality(Problem(Voters(3, PrivacyParams("0.5")), PrivacyParams("0.8"), classes=3)).save(
        folder / "unused.json"
    )


def make_mechanism(mechanism: str, composition: str, folder: Path) -> None:
    """Make a plan of three classes by a mechanism, with released labels."""
    made_of(THREE_CLASSES, mechanism, Dirichlet()).save(folder / "plan.json")
    _release(folder, THREE_CLASSES, composition)


def make_resampled(classes: int, mechanism: str, sampling: Subsampling, folder: Path) -> None:
    """Make a plan for voters with resampled examples, with released labels."""
    voters = Voters(8, PrivacyParams("inf"), sampling.records, sampled=sampling)
    workload = Workload(voters, 20, PrivacyParams(2, "1e-5"), classes=classes)
    made_of(workload, mechanism, Dirichlet()).save(folder / "plan.json")
    _release(folder, workload, "one")


def make_different_voters(folder: Path) -> None:
    """Make a table of voters with different guarantees, with released labels."""
    voters = Voters.of([PrivacyParams("0.1"), PrivacyParams("0.2", "1e-6"), PrivacyParams("0.5", "1e-6")])
    certify(Problem(voters, PrivacyParams("0.4", "1e-5")), NoiseFunction(3, [0.2, 0.4])).save(folder / "table.json")
    votes = np.random.default_rng(4).integers(0, 2, (12, 3))
    ledger = PrivacyLedger.create(folder / "ledger.sqlite", PrivacyParams(9, "1e-3"))
    release_debited(load_release(folder / "table.json"), votes, ledger=ledger, output=folder / "labels.csv")


def make_parquet(names: tuple[str, ...], folder: Path) -> None:
    """Make labels in two Parquet files, from votes in Parquet files of a hidden folder."""
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


def _release(folder: Path, workload: Workload, composition: str) -> None:
    """Release the labels of a plan in two debits."""
    rng, K, C = np.random.default_rng(2), workload.voters.K, workload.classes
    release = load_release(folder / "plan.json")
    total = workload.total if composition in {"one", "planned"} else PrivacyParams(40, "1e-2")
    ledger = PrivacyLedger.create(folder / "ledger.sqlite", total, composition=composition, population="ward 7")
    first_queries = workload.queries - 3
    for name, queries in (("labels.csv", first_queries), ("more.csv", 3)):
        votes = Votes.from_counts(rng.multinomial(K, [1 / C] * C, queries))
        release_debited(release, votes, ledger=ledger, output=folder / name)


FOLDERS: dict[str, Callable[[Path], None]] = {
    "majority": make_majority,
    "plan": make_plan,
    "models": make_models,
    "plurality": make_plurality,
    **{name: partial(make_mechanism, *how) for name, how in MECHANISMS.items()},
    **{name: partial(make_resampled, *how) for name, how in RESAMPLED.items()},
    "differing": make_different_voters,
    "parquet": partial(make_parquet, ("a.parquet", "b.parquet")),
    "nested": partial(make_parquet, ("year=1/a.parquet", "year=2/a.parquet")),
}


def change_field(name: str, path: str, value: object, folder: Path) -> None:
    """Change one field of a JSON file; a function computes the new value, None deletes the field."""
    data = json.loads((folder / name).read_text())
    *steps, last_step = path.split("/")
    container = data
    for place in steps:
        container = container[int(place)] if isinstance(container, list) else container[place]
    key: Any = int(last_step) if isinstance(container, list) else last_step
    if value is None:
        del container[key]
    else:
        container[key] = value(container[key]) if callable(value) else value
    (folder / name).write_text(json.dumps(update_checksum(data)))


def update_checksum(data: Json) -> Json:
    """Recompute the checksum of a table's file."""
    if "checksum" not in data:
        return data
    numbers = {name: data[name] for name in ("problem", "gamma", "weights") if name in data}
    text = json.dumps(numbers, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return {**data, "checksum": hashlib.sha256(text.encode()).hexdigest()}


def multiply(factor: float) -> Callable[[Any], Any]:
    """Return a function that multiplies a number, or a number in a string."""
    return lambda old: repr(float(old) * factor) if isinstance(old, str) else old * factor


def add_to(step: float) -> Callable[[Any], Any]:
    return lambda old: old + step


def forge(*statements: str) -> Change:
    """Change a ledger, and recompute its hashes and checksums."""
    return lambda folder: relink(folder / "ledger.sqlite", *statements)


def drop_receipts(*changes: Change) -> Change:
    """Delete the receipts, then change the folder."""

    def change(folder: Path) -> None:
        _delete("*.receipt.json", folder)
        for step in changes:
            step(folder)

    return change


def _delete(pattern: str, folder: Path) -> None:
    """Delete files."""
    for path in folder.rglob(pattern):
        path.unlink()


def edit_lines(name: str, edit: Callable[[list[str]], list[str]], folder: Path) -> None:
    """Change the lines of a file of labels."""
    (folder / name).write_text("".join(edit((folder / name).read_text().splitlines(keepends=True))))


def flip_label(label: str) -> str:
    """Return the line with the other label."""
    number, comma, value = label.strip().rpartition(",")
    return f"{number}{comma}{1 if value == '0' else 0}\n"


def swap_files(first: str, second: str, folder: Path) -> None:
    """Exchange two files."""
    first_bytes, second_bytes = (folder / first).read_bytes(), (folder / second).read_bytes()
    (folder / first).write_bytes(second_bytes)
    (folder / second).write_bytes(first_bytes)


def edit_array(name: str, edit: Callable[[Any], Any], folder: Path) -> None:
    np.save(folder / name, edit(np.load(folder / name)))


def edit_parquet(name: str, edit: Callable[[Any], Any], folder: Path) -> None:
    """Change the labels of a Parquet file."""
    import pyarrow as pa
    from pyarrow import parquet

    table = parquet.read_table(folder / name)
    labels = edit(table.column(table.num_columns - 1).to_numpy())
    parquet.write_table(pa.table({table.column_names[-1]: labels}), folder / name)


PLAN_LIES: dict[str, tuple[str, object]] = {
    "a total of half": ("plan/spent/epsilon", multiply(0.5)),
    "a total less by 1 %": ("plan/spent/epsilon", multiply(0.99)),
    "a total less by 2 ‰": ("plan/spent/epsilon", multiply(0.998)),
    "a total of nothing": ("plan/spent/epsilon", 0.0),
    "a total beyond the budget": ("plan/spent/epsilon", multiply(1.01)),
    "a smaller δ of the total": ("plan/spent/delta", multiply(0.1)),
    "one more query": ("plan/workload/queries", add_to(1)),
    "twice the queries": ("plan/workload/queries", lambda old: 2 * old),
    "another K": ("plan/workload/K", add_to(1)),
    "a person reaches fewer": ("plan/workload/overlap", add_to(1)),
    "private voters": ("plan/workload/each/epsilon", "0.9"),
    "another number of classes": ("plan/workload/classes", add_to(1)),
    "a smaller budget": ("plan/workload/total/epsilon", multiply(0.95)),
    "a smaller δ": ("plan/workload/total/delta", multiply(0.5)),
    "no workload": ("plan/workload", None),
    "a list": ("plan", [1]),
    "a total that is no number": ("plan/spent/epsilon", True),
}
# the verifier's bounds are not tight enough to refute these; it does not prove them either
CLOSE_TOTALS = {"a total less by 1 %", "a total less by 2 ‰", "one more query"}
VOTER_LIES = {"another K of it": ("voters/K", add_to(1)), "other classes of it": ("classes", add_to(1)),
             "it reaches two": ("mechanism/reached", 2), "voters reach two": ("voters/overlap", 2),
             "a note": ("note", "proved in Lean"), "another version": ("version", 2)}  # fmt: skip


def list_plan_lies() -> Iterator[Case]:
    """Change the claims of plans, and the parameters of their mechanisms."""
    for folder in ("plan", "models", "plurality", *MECHANISMS):
        # the claims of plans; `list_table_lies` changes those of tables
        for name, (where, value) in PLAN_LIES.items():
            unknown = "answers as planned are" if name in CLOSE_TOTALS else ""
            yield Case(folder, name, partial(change_field, "plan.json", where, value), unknown)
    for folder, parameters in PARAMETERS.items():
        for name in parameters:
            for factor in (0.5, 0.999, 1.001, 2.0):
                where = f"mechanism/{name}"
                yield Case(
                    folder, f"{name} times {factor:g}", partial(change_field, "plan.json", where, multiply(factor))
                )
        for name, (where, value) in VOTER_LIES.items():
            yield Case(folder, name, partial(change_field, "plan.json", where, value))
    kind = "mechanism/kind"
    yield Case("exponential", "it is another mechanism", partial(change_field, "plan.json", kind, "PermuteAndFlip"))
    yield Case("flip", "it is another mechanism", partial(change_field, "plan.json", kind, "ExponentialMechanism"))


PLURALITY_LIES = {
    "a weight": ("weights/0/0", add_to(-(2**40))),
    "a smaller ε": ("problem/target/epsilon", multiply(0.5)),
    "less private voters": ("problem/each/epsilon", multiply(2)),
    "another number of classes": ("problem/classes", 4),
    "a note": ("note", "(0.001, 0)-private"),
}
DIFFERENT_VOTER_LIES = {
    "a voter is more private": ("problem/own/0/epsilon", multiply(0.5)),
    "a smaller ε": ("problem/target/epsilon", multiply(0.7)),
    "a number": ("gamma/0", multiply(1.01)),
}

MODEL_LIES: dict[str, tuple[str, object]] = {
    "a workload of fresh voters": ("plan/workload/models", None),
    "a table for fresh voters": ("problem/models", None),
    "a workload of non-private voters": ("plan/workload/each/epsilon", "inf"),
    "a number less": ("gamma/0", multiply(0.99)),
    "a number more": ("gamma/4", multiply(1.01)),
}


def list_table_lies() -> Iterator[Case]:
    """Change tables of three classes, of different voters, and of models; recompute the checksum."""
    yield Case("majority", "a table with a smaller overlap", partial(change_field, "table.json", "problem/overlap", 1))
    yield Case("majority", "another format", partial(change_field, "table.json", "format", "darrm plurality table"))
    for name, (where, value) in PLURALITY_LIES.items():
        yield Case("plurality", f"a table with {name}", partial(change_field, "unused.json", where, value))
    for name, (where, value) in DIFFERENT_VOTER_LIES.items():
        yield Case("differing", f"a table with {name}", partial(change_field, "table.json", where, value))
    for name, (where, value) in MODEL_LIES.items():
        yield Case("models", name, partial(change_field, "plan.json", where, value))
    yield Case("plan", "another number", partial(change_field, "plan.json", "gamma/0", multiply(1.01)))
    yield Case("plurality", "another weight", partial(change_field, "plan.json", "weights/0/0", add_to(-(2**40))))


CHEAP_COST = '{"guarantee":["0.000001","0"],"profile":null,"renyi":null}'
INSERT_CHEAP_COST = f"INSERT INTO costs VALUES (9, '{CHEAP_COST}', 'DaRRM over 3 voters', 0, '', '')"
UPDATE_LAST_ENTRY = "UPDATE state SET last_entry = (SELECT count(*) FROM entries)"
NOT_TRUNCATED = "the ledger was not truncated"


def set_entry(number: int, **columns: object) -> str:
    values = ", ".join(f"{name} = {value}" for name, value in columns.items())
    return f"UPDATE entries SET {values} WHERE id = {number}"


# these are false with and without a receipt
LEDGER_LIES: dict[str, tuple[str, ...]] = {
    "a smaller budget": ("UPDATE budget SET epsilon = '0.3'",),
    "a cheap entry": (INSERT_CHEAP_COST, set_entry(1, cost=9)),
    "a cheap last entry": (INSERT_CHEAP_COST, set_entry(2, cost=9)),
    "a smaller count": (set_entry(1, count="count - 1"),),
    "a larger count": (set_entry(1, count="count + 1"),),
    "another release": (set_entry(1, table_digest="'ab'"),),
    "other labels": (set_entry(1, labels_digest="'ab'"),),
    "no last entry": ("DELETE FROM entries WHERE id = (SELECT max(id) FROM entries)", UPDATE_LAST_ENTRY),
    "no first entry": ("DELETE FROM entries WHERE id = 1", "UPDATE entries SET id = id - 1", UPDATE_LAST_ENTRY),
    "no entries": ("DELETE FROM entries", UPDATE_LAST_ENTRY),
}
# the budget, and fields that no other file repeats: only a receipt's digest detects changes
UNDETECTED_LIES: dict[str, tuple[str, ...]] = {
    "a budget twice as large": ("UPDATE budget SET epsilon = '41'",),
    "a larger δ": ("UPDATE budget SET delta = '0.02'",),
    "another composition": (
        "UPDATE budget SET composition = CASE composition WHEN 'renyi' THEN 'adaptive' ELSE 'renyi' END",
    ),
    "another identity": (f"UPDATE budget SET identity = '{'ab' * 16}'",),
    "another population": ("UPDATE budget SET population = 'ward 8'",),
    "a later beginning": ("UPDATE budget SET created = '2999-01-01T00:00:00.000+00:00'",),
    "an earlier beginning": ("UPDATE budget SET created = '2001-01-01T00:00:00.000+00:00'",),
    "another name of its costs": ("UPDATE costs SET what = 'a survey'",),
    "no release": (set_entry(1, table_digest="''"),),
    "no labels": (set_entry(1, labels_digest="''"),),
    "another note": (set_entry(1, note="'a trial'"),),
    "another time": (set_entry(1, time="'1999-01-01T00:00:00.000+00:00'"),),
    "two entries exchanged": (set_entry(1, id=99), set_entry(2, id=1), set_entry(99, id=2)),
}
# for the ledger of two files and a stream; the stream's last answer is not yet delivered
FORGERIES: dict[str, tuple[str, ...]] = {
    "a middle entry costs nearly nothing": (INSERT_CHEAP_COST, set_entry(14, cost=9)),
    "a cheap entry of a planned ledger": (
        INSERT_CHEAP_COST,
        set_entry(1, cost=9),
        "UPDATE budget SET composition = 'planned'",
    ),
    **{
        f"entry {n} has the time {time!r}": (set_entry(n, time=f"'{time}'"),)
        for n, time in ((1, "soon"), (2, "2026-02-30T00:00:00.000+00:00"), (9, ""), (9, "2026-11-23T08:00:00.000"))
    },
    "a small entry with the labels of another": (
        set_entry(2, labels_digest="(SELECT labels_digest FROM entries WHERE id = 1)", count=2),
    ),
    "other labels wait": (set_entry(26, labels="x'00'"),),
    "no labels wait": (set_entry(26, labels="x''"),),
    "more labels wait": (set_entry(26, count=2),),
}


def list_ledger_lies() -> Iterator[Case]:
    """Change ledgers and recompute all hashes, with and without receipts."""
    for name, statements in {**LEDGER_LIES, **UNDETECTED_LIES}.items():
        yield Case("majority", f"a ledger with {name}", forge(*statements))
        unknown = NOT_TRUNCATED if name in UNDETECTED_LIES else ""
        yield Case("majority", f"without a receipt, {name}", drop_receipts(forge(*statements)), unknown)
    yield Case("gnmax", "a ledger with a budget twice as large", forge(*UNDETECTED_LIES["a budget twice as large"]))
    for name, statements in FORGERIES.items():
        yield Case("majority", f"forged, {name}", drop_receipts(forge(*statements)))
    yield Case(
        "majority",
        "a stream's last answer is gone, and so is its line",
        _forget_last_answer,
        f"{NOT_TRUNCATED} after entry",
    )
    names = ("labels.csv.receipt.json", "more.csv.receipt.json")
    yield Case("gnmax", "two receipts exchanged", partial(swap_files, *names))


def _forget_last_answer(folder: Path) -> None:
    """Delete the last answer of a stream from ledger and labels."""
    relink(folder / "ledger.sqlite", "DELETE FROM entries WHERE id = (SELECT max(id) FROM entries)", UPDATE_LAST_ENTRY)
    edit_lines("answers.csv", lambda old: old[:-1], folder)


LABEL_EDITS: dict[str, Callable[[list[str]], list[str]]] = {
    "the first label turned": lambda old: [flip_label(old[0]), *old[1:]],
    "the last label turned": lambda old: [*old[:-1], flip_label(old[-1])],
    "a label more": lambda old: [*old, old[0]],
    "a label less": lambda old: old[:-1],
    "the first label gone": lambda old: old[1:],
    "all labels equal": lambda old: [line.strip()[:-1] + "1\n" for line in old],
    "labels in order": lambda old: sorted(old) if sorted(old) != old else sorted(old)[::-1],
    "a label of no class": lambda old: [*old[:-1], old[-1].rpartition(",")[0] * 0 + "7\n"],
    "another release's labels": lambda old: [flip_label(line) for line in old],
}


def lower_part(where: str, factor: float) -> Callable[[Json], object]:
    """Understate a part of a query's cost: a list of numbers, or one number."""

    def edit(cost: Json) -> None:
        name, place = where.split("/")
        values = cost[name][int(place)]
        lowered = [repr(float(values) * factor)] if isinstance(values, str) else [factor * value for value in values]
        cost[name][int(place)] = lowered[0] if isinstance(values, str) else lowered

    return edit


def edit_costs(edit: Callable[[Json], object], folder: Path) -> None:
    """Change the cost of every query of a ledger, and recompute its hashes and checksums."""
    path = folder / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        costs = connection.execute("SELECT id, cost FROM costs").fetchall()
    statements = []
    for number, text in costs:
        cost = json.loads(text)
        edit(cost)
        new_text = json.dumps(cost, sort_keys=True, separators=(",", ":"))
        assert new_text != text
        statements.append(f"UPDATE costs SET cost = '{new_text}' WHERE id = {number}")
    relink(path, *statements)


def _half_rate(sampled: Json) -> Json:
    return {**sampled, "rate": repr(float(sampled["rate"]) / 2)}


def _other_scheme(sampled: Json) -> Json:
    return {**sampled, "scheme": "fixed" if sampled["scheme"] == "poisson" else "poisson"}


SAMPLING_LIES: dict[str, object] = {
    "half the rate": _half_rate,
    "another scheme": _other_scheme,
    "one record each": lambda sampled: {name: value for name, value in sampled.items() if name != "records"},
    "nobody drawn again": None,
}


def list_sampling_lies() -> Iterator[Case]:
    """Change the sampling and its costs in files, in the ledger, and in both."""
    for folder, (classes, mechanism, sampling) in RESAMPLED.items():
        is_table = mechanism == "optimal" or (classes == 2 and mechanism not in {"gnmax", "lnmax"})
        places = ("problem/sampled" if is_table else "voters/sampled", "plan/workload/sampled")
        for name, value in SAMPLING_LIES.items():
            if sampling.records == 1 and "record" in name:
                continue
            file_changes = [partial(change_field, "plan.json", where, value) for where in places]
            ledger_change = partial(edit_costs, partial(_edit_sampling, value))
            yield Case(folder, f"{name} in the file", drop_receipts(file_changes[0]))
            yield Case(folder, f"{name} in the plan", drop_receipts(file_changes[1]))
            yield Case(folder, f"{name} in the file and its plan", drop_receipts(*file_changes))
            yield Case(folder, f"{name} in the ledger", drop_receipts(ledger_change))
            # no file shows who was sampled, so a rate that all files repeat is an assumption
            everywhere = drop_receipts(*file_changes, ledger_change, _update_release_digest)
            yield Case(folder, f"{name} everywhere", everywhere, "drawn with probability")
        parts = {"guarantee": "guarantee/0", "curve": "renyi/1", "profile": "profile/1", "other direction": "profile/2"}
        for name, where in parts.items():
            # the bound on permute-and-flip is not tight
            unknown = "of a query is at least what it costs" if folder == "drawn flip" else ""
            change = drop_receipts(partial(_understate_costs, where))
            yield Case(folder, f"a lower {name} in the ledger", change, unknown)


def _understate_costs(where: str, folder: Path) -> None:
    """Lower a part of the costs, or the count of queries if they lack this part."""
    try:
        edit_costs(lower_part(where, 0.9), folder)
    except (TypeError, IndexError):
        relink(folder / "ledger.sqlite", "UPDATE entries SET count = count - 1 WHERE id = 1")


def _update_release_digest(folder: Path) -> None:
    """Write the digest of the changed release into the ledger."""
    with suppress(TableError):
        release = load_release(folder / "plan.json")
        digest = release.table.digest if isinstance(release, Release) else release.digest
        relink(folder / "ledger.sqlite", f"UPDATE entries SET table_digest = '{digest}'")


def _edit_sampling(edit: Any, cost: Json) -> None:
    """Change or delete the sampling in a cost."""
    if edit is None:
        del cost["sampled"]
    else:
        cost["sampled"] = edit(cost["sampled"])


def list_label_lies() -> Iterator[Case]:
    """Change labels of every format."""
    for folder in ("majority", "gnmax"):
        for name, edit in LABEL_EDITS.items():
            yield Case(folder, name, partial(edit_lines, "labels.csv", edit))
    array_edits: dict[str, Callable[[Any], Any]] = {
        "a label turned": lambda old: np.concatenate([1 - old[:1], old[1:]]),
        "a label less": lambda old: old[:-1],
        "a label more": lambda old: np.concatenate([old, old[:1]]),
        "all turned": lambda old: 1 - old,
    }
    for name, edit in array_edits.items():
        yield Case("majority", f"an array with {name}", partial(edit_array, "more.npy", edit))
        lie = partial(edit_parquet, "labels/a.parquet", edit)
        yield Case("parquet", f"a Parquet file with {name}", lie)
        yield Case("parquet", f"without a receipt, a Parquet file with {name}", drop_receipts(lie))
    for name in ("the first label turned", "the last label turned", "all labels equal", "another release's labels"):
        yield Case("majority", f"a stream with {name}", partial(edit_lines, "answers.csv", LABEL_EDITS[name]))
    for first_number in (0, 2, 25):
        change = partial(edit_lines, "answers.csv", partial(_renumber_answers, first_number - 1))
        yield Case("majority", f"a stream numbered from {first_number}", change)
    change = partial(edit_parquet, "labels/year=2/a.parquet", array_edits["a label turned"])
    yield Case("nested", "a label turned", change)
    yield Case("parquet", "files exchanged", partial(swap_files, "labels/a.parquet", "labels/b.parquet"))
    yield Case("parquet", "a file gone", lambda folder: (folder / "labels" / "b.parquet").unlink())
    yield Case("majority", "labels of the other file", lambda folder: copy(folder / "more.npy", folder / "labels.npy")
              and (folder / "labels.csv").write_text("0\n" * 20))  # fmt: skip


def _renumber_answers(step: int, old: list[str]) -> list[str]:
    """Add a step to the numbers of answers."""
    return [f"{int(line.split(',')[0]) + step},{line.split(',')[1]}" for line in old]


def list_lies() -> list[Case]:
    """List every lie."""
    return [*list_plan_lies(), *list_table_lies(), *list_ledger_lies(), *list_label_lies(), *list_sampling_lies()]


# ------------------------------------------------------------------------------------------------ honest variations

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def _rewrite(name: str, write: Callable[[bytes], bytes], folder: Path) -> None:
    (folder / name).write_bytes(write((folder / name).read_bytes()))


def _rename(old: str, new: str, folder: Path) -> None:
    (folder / old).rename(folder / new)


def _dump_json(**settings: Any) -> Callable[[bytes], bytes]:
    return lambda old: json.dumps(json.loads(old), **settings).encode()


LABEL_FORMATS: dict[str, Callable[[bytes], bytes]] = {
    "a byte order mark": lambda old: BYTE_ORDER_MARK + old,
    "a spreadsheet's line ends": lambda old: old.replace(b"\n", b"\r\n"),
    "no last line end": lambda old: old.removesuffix(b"\n"),
}
JSON_FORMATS = {
    "no indent": _dump_json(),
    "a large indent": _dump_json(indent=7),
    "sorted keys": _dump_json(sort_keys=True),
    "letters beyond ASCII": _dump_json(ensure_ascii=False),
    "a byte order mark and line ends": lambda old: BYTE_ORDER_MARK + old.replace(b"\n", b"\r\n"),
}


def list_honest_variations() -> list[Case]:
    """List changes of form, and not of content."""
    return [
        *(Case(name, "as it was made", lambda _folder: None) for name in FOLDERS),
        *(
            Case(folder, f"labels with {name}", partial(_rewrite, "labels.csv", write))
            for folder in ("majority", "gnmax", "differing")
            for name, write in LABEL_FORMATS.items()
        ),
        *(
            Case("majority", f"a stream with {name}", partial(_rewrite, "answers.csv", write))
            for name, write in LABEL_FORMATS.items()
        ),
        *(
            Case(folder, f"{file} with {name}", partial(_rewrite, file, write))
            for folder, file in (
                *((name, "plan.json") for name in ("plan", "plurality", "shaped", "flip")),
                ("majority", "table.json"),
                ("majority", "labels.csv.receipt.json"),
            )
            for name, write in JSON_FORMATS.items()
        ),
        Case("majority", "a renamed table", partial(_rename, "table.json", "law.json")),
        Case("majority", "a renamed ledger", partial(_rename, "ledger.sqlite", "paid.db")),
        Case("majority", "a renamed stream", partial(_rename, "answers.csv", "b.csv")),
        Case("gnmax", "renamed labels", partial(_rename, "more.csv", "second.csv")),
        Case("parquet", "a renamed folder", partial(_rename, "labels", "drawn")),
        Case("majority", "a copy of the ledger", lambda at: copy(at / "ledger.sqlite", at / "backup.sqlite")),
        Case("gnmax", "a copy of the plan", lambda at: copy(at / "plan.json", at / "plan (1).json")),
        Case("majority", "a copy of labels", lambda at: copy(at / "labels.csv", at / "labels (1).csv")),
        Case("majority", "no labels", partial(_delete, "*.csv")),
        Case("majority", "no ledger", lambda at: (at / "ledger.sqlite").unlink()),
        Case("gnmax", "no plan", lambda at: (at / "plan.json").unlink()),
        Case("plan", "no receipts", partial(_delete, "*.receipt.json")),
        Case("lnmax", "one file of labels gone", lambda at: (at / "more.csv").unlink()),
        Case("majority", "notes beside it", lambda at: (at / "notes.txt").write_text("ask Ada\n")),
        *(
            Case("majority", f"a part of its stream, {part}", partial(edit_lines, "answers.csv", itemgetter(part)))
            for part in (slice(0, 9), slice(5, 24), slice(23, 24))
        ),
        Case("majority", "its stream backwards", partial(edit_lines, "answers.csv", lambda old: old[::-1])),
        Case("plan", "without its plan", partial(change_field, "plan.json", "plan", None)),
        Case("majority", "a second debit after the receipts", _debit_again),
    ]


def _debit_again(folder: Path) -> None:
    """Release once more."""
    votes = np.random.default_rng(9).integers(0, 2, (5, 3))
    ledger = PrivacyLedger(folder / "ledger.sqlite")
    release_debited(load_release(folder / "table.json"), votes, ledger=ledger, output=folder / "third.csv")


def audit_copy(source: Path, target: Path, change: Change) -> Audit:
    """Audit a changed copy of a folder."""
    folder = Path(copytree(source, target))
    change(folder)
    return audit([folder])
