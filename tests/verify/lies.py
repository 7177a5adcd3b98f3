"""Folders of honest files, lies about them, and honest changes.

A liar knows the formats, and computes checksums and hashes again. Only the digest of a ledger in a receipt, copied
earlier, is out of reach. `test_many_lies` changes the fields of JSON files.
"""
# ruff: noqa: S608 (statements are a test's own words)

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
PLAIN = Voters(12, PrivacyParams("inf"), overlap=1)
THREE = Workload(PLAIN, 10, PrivacyParams(4, "1e-4"), classes=3)
TWO = Workload(Voters(11, PrivacyParams("inf"), overlap=1), 20, PrivacyParams(3, "1e-4"))
# a total that no model of ε = 1 keeps alone, and no ten labels
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
# of voters with resampled examples: classes, mechanism, and how people are drawn
DRAWN = {
    "drawn": (2, "lnmax", Subsampling(Fraction(1, 20))),
    "drawn table": (3, "optimal", Subsampling(Fraction(1, 50), records=2)),
    "drawn gnmax": (3, "gnmax", Subsampling(Fraction(1, 50))),
    "drawn exponential": (3, "exponential", Subsampling(Fraction(1, 20))),
    "drawn flip": (3, "permute-and-flip", Subsampling(Fraction(1, 20))),
    "fixed": (2, "gnmax", Subsampling(Fraction(1, 20), "fixed")),
}


@dataclass(frozen=True)
class Case:
    """A change of a folder: a lie, or an honest one.

    ``unknown`` is part of a claim that may be *unknown* or *assumed*; empty where a lie must be *false*.
    """

    folder: str
    name: str
    change: Change
    unknown: str = ""

    def __str__(self) -> str:
        return f"{self.folder}: {self.name}"


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
    """A plan of two classes and non-private voters, with labels that it released."""
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
    """A plan for voters that draw their examples again, with labels that it released."""
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
    **{name: partial(made_mechanism, *how) for name, how in MECHANISMS.items()},
    **{name: partial(made_drawn, *how) for name, how in DRAWN.items()},
    "differing": made_differing,
    "parquet": partial(made_parquet, ("a.parquet", "b.parquet")),
    "nested": partial(made_parquet, ("year=1/a.parquet", "year=2/a.parquet")),
}


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
    """Compute the checksum of a table's file again."""
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


def forged(*statements: str) -> Change:
    """Change a ledger, and compute all that protects it again."""
    return lambda folder: relink(folder / "ledger.sqlite", *statements)


def without_receipts(*changes: Change) -> Change:
    """Change a folder after the receipts are gone."""

    def change(folder: Path) -> None:
        _without("*.receipt.json", folder)
        for step in changes:
            step(folder)

    return change


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


def lies_in_plans() -> Iterator[Case]:
    """Change what plans claim, and the parameters of what releases."""
    for folder in ("plan", "models", "plurality", *MECHANISMS):
        # what two classes claim is a table's too; to change that in each folder would say the same seven times
        for name, (where, value) in IN_A_PLAN.items():
            unknown = "answers as planned are" if name in CLOSE_TOTALS else ""
            yield Case(folder, name, partial(changed, "plan.json", where, value), unknown)
    for folder, parameters in PARAMETERS.items():
        for name in parameters:
            for factor in (0.5, 0.999, 1.001, 2.0):
                where = f"mechanism/{name}"
                yield Case(folder, f"{name} times {factor:g}", partial(changed, "plan.json", where, times(factor)))
        for name, (where, value) in OF_VOTERS.items():
            yield Case(folder, name, partial(changed, "plan.json", where, value))
    kind = "mechanism/kind"
    yield Case("exponential", "it is another mechanism", partial(changed, "plan.json", kind, "PermuteAndFlip"))
    yield Case("flip", "it is another mechanism", partial(changed, "plan.json", kind, "ExponentialMechanism"))


IN_A_PLURALITY = {
    "a weight": ("weights/0/0", plus(-(2**40))),
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
    "a workload of non-private voters": ("plan/workload/each/epsilon", "inf"),
    "a number less": ("gamma/0", times(0.99)),
    "a number more": ("gamma/4", times(1.01)),
}


def lies_in_tables() -> Iterator[Case]:
    """Change tables of three classes, of voters that differ, and of models; the checksum is computed again."""
    yield Case("majority", "a table with a smaller overlap", partial(changed, "table.json", "problem/overlap", 1))
    yield Case("majority", "another format", partial(changed, "table.json", "format", "darrm plurality table"))
    for name, (where, value) in IN_A_PLURALITY.items():
        yield Case("plurality", f"a table with {name}", partial(changed, "unused.json", where, value))
    for name, (where, value) in OF_DIFFERING.items():
        yield Case("differing", f"a table with {name}", partial(changed, "table.json", where, value))
    for name, (where, value) in OF_MODELS.items():
        yield Case("models", name, partial(changed, "plan.json", where, value))
    yield Case("plan", "another number", partial(changed, "plan.json", "gamma/0", times(1.01)))
    yield Case("plurality", "another weight", partial(changed, "plan.json", "weights/0/0", plus(-(2**40))))


CHEAP = '{"guarantee":["0.000001","0"],"profile":null,"renyi":null}'
CHEAP_KIND = f"INSERT INTO costs VALUES (9, '{CHEAP}', 'DaRRM over 3 voters', 0, '', '')"
SEQUENCE = "UPDATE state SET last_entry = (SELECT count(*) FROM entries)"
NOT_CUT = "the ledger was not truncated"


def set_entry(number: int, **columns: object) -> str:
    values = ", ".join(f"{name} = {value}" for name, value in columns.items())
    return f"UPDATE entries SET {values} WHERE id = {number}"


# a receipt shows each of them; these are false without one, too
IN_A_LEDGER: dict[str, tuple[str, ...]] = {
    "a smaller budget": ("UPDATE budget SET epsilon = '0.3'",),
    "a cheap entry": (CHEAP_KIND, set_entry(1, cost=9)),
    "a cheap last entry": (CHEAP_KIND, set_entry(2, cost=9)),
    "a smaller count": (set_entry(1, count="count - 1"),),
    "a larger count": (set_entry(1, count="count + 1"),),
    "another release": (set_entry(1, table_digest="'ab'"),),
    "other labels": (set_entry(1, labels_digest="'ab'"),),
    "no last entry": ("DELETE FROM entries WHERE id = (SELECT max(id) FROM entries)", SEQUENCE),
    "no first entry": ("DELETE FROM entries WHERE id = 1", "UPDATE entries SET id = id - 1", SEQUENCE),
    "no entries": ("DELETE FROM entries", SEQUENCE),
}
# the budget, and fields that no other file repeats: only a digest shows them
UNSEEN: dict[str, tuple[str, ...]] = {
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
# of the ledger that pays for two files and a stream, of which the last answer waits
FORGED: dict[str, tuple[str, ...]] = {
    "a middle entry costs nearly nothing": (CHEAP_KIND, set_entry(14, cost=9)),
    "a cheap entry of a planned ledger": (
        CHEAP_KIND,
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


def lies_in_ledgers() -> Iterator[Case]:
    """Change ledgers and compute all hashes again: with receipts beside them, and without."""
    for name, statements in {**IN_A_LEDGER, **UNSEEN}.items():
        yield Case("majority", f"a ledger with {name}", forged(*statements))
        unknown = NOT_CUT if name in UNSEEN else ""
        yield Case("majority", f"without a receipt, {name}", without_receipts(forged(*statements)), unknown)
    yield Case("gnmax", "a ledger with a budget twice as large", forged(*UNSEEN["a budget twice as large"]))
    for name, statements in FORGED.items():
        yield Case("majority", f"forged, {name}", without_receipts(forged(*statements)))
    yield Case("majority", "a stream's last answer is gone, and so is its line", _forgotten, f"{NOT_CUT} after entry")
    names = ("labels.csv.receipt.json", "more.csv.receipt.json")
    yield Case("gnmax", "two receipts exchanged", partial(swapped, *names))


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
    """Understate a part of a query's cost: a list of numbers, or one number."""

    def edit(cost: Json) -> None:
        name, place = where.split("/")
        values = cost[name][int(place)]
        lowered = [repr(float(values) * factor)] if isinstance(values, str) else [factor * value for value in values]
        cost[name][int(place)] = lowered[0] if isinstance(values, str) else lowered

    return edit


def in_costs(edit: Callable[[Json], object], folder: Path) -> None:
    """Change what every query of a ledger costs, and compute all that protects it again."""
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
    "nobody drawn again": None,
}


def lies_about_sampling() -> Iterator[Case]:
    """Change how people are sampled, and the costs: in files, in the ledger, and in both."""
    for folder, (classes, family, sampling) in DRAWN.items():
        is_table = family == "optimal" or (classes == 2 and family not in {"gnmax", "lnmax"})
        places = ("problem/sampled" if is_table else "voters/sampled", "plan/workload/sampled")
        for name, value in OF_SAMPLING.items():
            if sampling.records == 1 and "record" in name:
                continue
            planned = [partial(changed, "plan.json", where, value) for where in places]
            charged = partial(in_costs, partial(_sampled_as, value))
            yield Case(folder, f"{name} in the file", without_receipts(planned[0]))
            yield Case(folder, f"{name} in the plan", without_receipts(planned[1]))
            yield Case(folder, f"{name} in the file and its plan", without_receipts(*planned))
            yield Case(folder, f"{name} in the ledger", without_receipts(charged))
            # who was drawn, no file shows: a rate that all files repeat is an assumption
            everywhere = without_receipts(*planned, charged, _named_again)
            yield Case(folder, f"{name} everywhere", everywhere, "drawn with probability")
        parts = {"guarantee": "guarantee/0", "curve": "renyi/1", "profile": "profile/1", "other direction": "profile/2"}
        for name, where in parts.items():
            # no bound on permute-and-flip is attained
            unknown = "of a query is at least what it costs" if folder == "drawn flip" else ""
            change = without_receipts(partial(_understated, where))
            yield Case(folder, f"a lower {name} in the ledger", change, unknown)


def _understated(where: str, folder: Path) -> None:
    """Lower a part of the costs, or the count of queries if they lack this part."""
    try:
        in_costs(lower(where, 0.9), folder)
    except (TypeError, IndexError):
        relink(folder / "ledger.sqlite", "UPDATE entries SET count = count - 1 WHERE id = 1")


def _named_again(folder: Path) -> None:
    """Write the digest of the changed release into the ledger."""
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


def lies_in_labels() -> Iterator[Case]:
    """Change labels of every format."""
    for folder in ("majority", "gnmax"):
        for name, edit in EDITS.items():
            yield Case(folder, name, partial(lines, "labels.csv", edit))
    turned: dict[str, Callable[[Any], Any]] = {
        "a label turned": lambda old: np.concatenate([1 - old[:1], old[1:]]),
        "a label less": lambda old: old[:-1],
        "a label more": lambda old: np.concatenate([old, old[:1]]),
        "all turned": lambda old: 1 - old,
    }
    for name, edit in turned.items():
        yield Case("majority", f"an array with {name}", partial(in_array, "more.npy", edit))
        lie = partial(in_parquet, "labels/a.parquet", edit)
        yield Case("parquet", f"a Parquet file with {name}", lie)
        yield Case("parquet", f"without a receipt, a Parquet file with {name}", without_receipts(lie))
    for name in ("the first label turned", "the last label turned", "all labels equal", "another release's labels"):
        yield Case("majority", f"a stream with {name}", partial(lines, "answers.csv", EDITS[name]))
    for first in (0, 2, 25):
        change = partial(lines, "answers.csv", partial(_later, first - 1))
        yield Case("majority", f"a stream numbered from {first}", change)
    change = partial(in_parquet, "labels/year=2/a.parquet", turned["a label turned"])
    yield Case("nested", "a label turned", change)
    yield Case("parquet", "files exchanged", partial(swapped, "labels/a.parquet", "labels/b.parquet"))
    yield Case("parquet", "a file gone", lambda folder: (folder / "labels" / "b.parquet").unlink())
    yield Case("majority", "labels of the other file", lambda folder: copy(folder / "more.npy", folder / "labels.npy")
              and (folder / "labels.csv").write_text("0\n" * 20))  # fmt: skip


def _later(step: int, old: list[str]) -> list[str]:
    """Add a step to the numbers of answers."""
    return [f"{int(line.split(',')[0]) + step},{line.split(',')[1]}" for line in old]


def all_lies() -> list[Case]:
    """List every lie."""
    return [*lies_in_plans(), *lies_in_tables(), *lies_in_ledgers(), *lies_in_labels(), *lies_about_sampling()]


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


def honest_variations() -> list[Case]:
    """List changes of form, and not of content."""
    return [
        *(Case(name, "as it was made", lambda _folder: None) for name in FOLDERS),
        *(
            Case(folder, f"labels with {name}", partial(_rewritten, "labels.csv", write))
            for folder in ("majority", "gnmax", "differing")
            for name, write in WRITTEN.items()
        ),
        *(
            Case("majority", f"a stream with {name}", partial(_rewritten, "answers.csv", write))
            for name, write in WRITTEN.items()
        ),
        *(
            Case(folder, f"{file} with {name}", partial(_rewritten, file, write))
            for folder, file in (
                *((name, "plan.json") for name in ("plan", "plurality", "shaped", "flip")),
                ("majority", "table.json"),
                ("majority", "labels.csv.receipt.json"),
            )
            for name, write in FORMATTED.items()
        ),
        Case("majority", "a renamed table", partial(_renamed, "table.json", "law.json")),
        Case("majority", "a renamed ledger", partial(_renamed, "ledger.sqlite", "paid.db")),
        Case("majority", "a renamed stream", partial(_renamed, "answers.csv", "b.csv")),
        Case("gnmax", "renamed labels", partial(_renamed, "more.csv", "second.csv")),
        Case("parquet", "a renamed folder", partial(_renamed, "labels", "drawn")),
        Case("majority", "a copy of the ledger", lambda at: copy(at / "ledger.sqlite", at / "backup.sqlite")),
        Case("gnmax", "a copy of the plan", lambda at: copy(at / "plan.json", at / "plan (1).json")),
        Case("majority", "a copy of labels", lambda at: copy(at / "labels.csv", at / "labels (1).csv")),
        Case("majority", "no labels", partial(_without, "*.csv")),
        Case("majority", "no ledger", lambda at: (at / "ledger.sqlite").unlink()),
        Case("gnmax", "no plan", lambda at: (at / "plan.json").unlink()),
        Case("plan", "no receipts", partial(_without, "*.receipt.json")),
        Case("lnmax", "one file of labels gone", lambda at: (at / "more.csv").unlink()),
        Case("majority", "notes beside it", lambda at: (at / "notes.txt").write_text("ask Ada\n")),
        *(
            Case("majority", f"a part of its stream, {part}", partial(lines, "answers.csv", itemgetter(part)))
            for part in (slice(0, 9), slice(5, 24), slice(23, 24))
        ),
        Case("majority", "its stream backwards", partial(lines, "answers.csv", lambda old: old[::-1])),
        Case("plan", "without its plan", partial(changed, "plan.json", "plan", None)),
        Case("majority", "a second debit after the receipts", _debited_again),
    ]


def _debited_again(folder: Path) -> None:
    """Release once more."""
    votes = np.random.default_rng(9).integers(0, 2, (5, 3))
    ledger = PrivacyLedger(folder / "ledger.sqlite")
    release_debited(load_release(folder / "table.json"), votes, ledger=ledger, output=folder / "third.csv")


def audited(made: Path, to: Path, change: Change) -> Audit:
    """Judge a copy of a folder, after a change."""
    folder = Path(copytree(made, to))
    change(folder)
    return audit([folder])
