"""List lies: changes of honest folders that the verifier must not accept.

A liar knows the formats and recomputes checksums and hashes. A liar cannot change the digest of a ledger in a receipt
that was copied earlier, and has no signing key.
"""
# ruff: noqa: S608 (the statements are constants of tests)

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from shutil import copy
from typing import Any

import numpy as np

from darrm import NoiseFunction, PrivacyLedger, Release
from darrm.aggregator import load_release
from darrm.errors import TableError
from darrm.ledger.chain import SigningKey, new_signing_key
from darrm.priors import Dirichlet
from tests.relinked import relink
from tests.verify.folders import MECHANISMS, RESAMPLED

Json = dict[str, Any]
Change = Callable[[Path], object]


@dataclass(frozen=True)
class Lie:
    """A change of a folder, and a part of the verdict that must be false.

    No file refutes some lies: then a verdict with the claim may be unknown or assumed instead.
    """

    folder: str
    name: str
    change: Change
    claim: str
    is_refutable: bool = True

    def __str__(self) -> str:
        return f"{self.folder}: {self.name}"


# ------------------------------------------------------------------------------------------------ changes of files


def change_fields(name: str, changes: dict[str, object], folder: Path) -> None:
    """Change fields of a JSON file by path, and the checksum; a function computes the value, None deletes the field."""
    data = json.loads((folder / name).read_text())
    for path, value in changes.items():
        *steps, last_step = path.split("/")
        container = data
        for step in steps:
            container = container[int(step)] if isinstance(container, list) else container[step]
        key: Any = int(last_step) if isinstance(container, list) else last_step
        if value is None:
            del container[key]
        else:
            container[key] = value(container[key]) if callable(value) else value
    (folder / name).write_text(json.dumps(data if "checksum" in changes else update_checksum(data)))


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


def add(step: float) -> Callable[[Any], Any]:
    return lambda old: old + step


def forge(*statements: str) -> Change:
    """Change a ledger, and recompute its hashes and checksums."""
    return lambda folder: relink(folder / "ledger.sqlite", *statements)


def tamper(*statements: str) -> Change:
    """Change a ledger, and nothing else."""

    def change(folder: Path) -> None:
        with closing(sqlite3.connect(folder / "ledger.sqlite", isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    return change


def drop_receipts(*changes: Change) -> Change:
    """Delete the receipts, then change the folder."""

    def change(folder: Path) -> None:
        for path in folder.rglob("*.receipt.json"):
            path.unlink()
        for step in changes:
            step(folder)

    return change


def edit_lines(name: str, edit: Callable[[list[str]], list[str]], folder: Path) -> None:
    (folder / name).write_text("".join(edit((folder / name).read_text().splitlines(keepends=True))))


def edit_array(name: str, edit: Callable[[Any], Any], folder: Path) -> None:
    np.save(folder / name, edit(np.load(folder / name)))


def edit_parquet(name: str, edit: Callable[[Any], Any], folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    table = parquet.read_table(folder / name)
    labels = edit(table.column(table.num_columns - 1).to_numpy())
    parquet.write_table(pa.table({table.column_names[-1]: labels}), folder / name)


def swap_files(first: str, second: str, folder: Path) -> None:
    first_bytes, second_bytes = (folder / first).read_bytes(), (folder / second).read_bytes()
    (folder / first).write_bytes(second_bytes)
    (folder / second).write_bytes(first_bytes)


# ------------------------------------------------------------------------------------------------ fields of JSON files

FORMAT, DIGEST = "it holds what its format says", "queries were answered with this"
TOTAL, BUDGET, WORKLOAD = "answers as planned are", "that is within the budget", "it is for"
MALFORMED, LABEL = "it states a workload and its cost", "one label is"
PLANS = ("plan", "models", "plurality", *MECHANISMS)
PARAMETERS = {
    "gnmax": ("sigma",),
    "lnmax": ("gamma",),
    "shaped": ("right", "left", "right_power", "left_power"),
    "exponential": ("epsilon",),
    "flip": ("epsilon",),
}
FALLING = NoiseFunction(3, [0.3, 0.2])
FieldLie = tuple[str, dict[str, object], str]  # name, changes by path, claim
FIELD_LIES: dict[tuple[tuple[str, ...], str], list[FieldLie]] = {
    (PLANS, "plan.json"): [
        ("a total of half", {"plan/spent/epsilon": multiply(0.5)}, TOTAL),
        ("a total of nothing", {"plan/spent/epsilon": 0.0}, TOTAL),
        ("a total beyond the budget", {"plan/spent/epsilon": multiply(1.01)}, BUDGET),
        ("a smaller δ of the total", {"plan/spent/delta": multiply(0.1)}, BUDGET),
        ("twice the queries", {"plan/workload/queries": multiply(2)}, TOTAL),
        ("another K", {"plan/workload/K": add(1)}, WORKLOAD),
        ("another overlap", {"plan/workload/overlap": add(1)}, WORKLOAD),
        ("voters of another ε", {"plan/workload/each/epsilon": "0.9"}, WORKLOAD),
        ("another number of classes", {"plan/workload/classes": add(1)}, WORKLOAD),
        ("a smaller budget", {"plan/workload/total/epsilon": multiply(0.95)}, BUDGET),
        ("a smaller δ", {"plan/workload/total/delta": multiply(0.5)}, BUDGET),
        ("no workload", {"plan/workload": None}, MALFORMED),
        ("a list", {"plan": [1]}, MALFORMED),
        ("a total that is no number", {"plan/spent/epsilon": True}, MALFORMED),
    ],
    (tuple(MECHANISMS), "plan.json"): [
        ("a mechanism for another K", {"voters/K": add(1)}, WORKLOAD),
        ("a mechanism for other classes", {"classes": add(1)}, WORKLOAD),
        ("a mechanism for two votes of a person", {"mechanism/reached": 2}, DIGEST),
        ("voters with an overlap of two", {"voters/overlap": 2}, FORMAT),
        ("a note", {"note": "proved in Lean"}, FORMAT),
        ("another version", {"version": 2}, FORMAT),
    ],
    (("exponential",), "plan.json"): [("another mechanism", {"mechanism/kind": "PermuteAndFlip"}, DIGEST)],
    (("flip",), "plan.json"): [("another mechanism", {"mechanism/kind": "ExponentialMechanism"}, DIGEST)],
    (("plan",), "plan.json"): [("another number of γ", {"gamma/0": multiply(1.01)}, DIGEST)],
    (("models",), "plan.json"): [
        ("a workload of fresh voters", {"plan/workload/models": None}, WORKLOAD),
        ("a table for fresh voters", {"problem/models": None}, WORKLOAD),
        ("a workload of non-private voters", {"plan/workload/each": {"epsilon": "inf", "delta": "0"}}, WORKLOAD),
        ("a smaller number of γ", {"gamma/0": multiply(0.99)}, DIGEST),
        ("a larger number of γ", {"gamma/4": multiply(1.01)}, DIGEST),
    ],
    (("plurality",), "plan.json"): [
        ("another weight", {"weights/0/0": add(-(2**40))}, FORMAT),
        ("half the worst cost", {"certificate/worst_cost": multiply(0.5)}, "no pair of neighbors costs more"),
    ],
    (("plurality",), "unused.json"): [
        ("an unused table with another weight", {"weights/0/0": add(-(2**40))}, FORMAT),
        ("an unused table with a smaller ε", {"problem/target/epsilon": multiply(0.5)}, LABEL),
        ("an unused table of less private voters", {"problem/each/epsilon": multiply(2)}, LABEL),
        ("an unused table of four classes", {"problem/classes": 4}, FORMAT),
        ("an unused table with a note", {"note": "(0.001, 0)-private"}, FORMAT),
    ],
    (("differing",), "table.json"): [
        ("a more private voter", {"problem/own/0/epsilon": multiply(0.5)}, DIGEST),
        ("a smaller ε", {"problem/target/epsilon": multiply(0.7)}, "the budget of a label is at least"),
        ("a larger number of γ", {"gamma/0": multiply(1.01)}, DIGEST),
    ],
    (("majority",), "table.json"): [
        ("a table with a smaller overlap", {"problem/overlap": 1}, DIGEST),
        ("another format", {"format": "darrm plurality table"}, FORMAT),
        ("a wrong checksum", {"checksum": "ab" * 32}, "it was changed"),
        (
            "a γ that is too large by 1e-11",
            {"gamma": lambda old: [min(1.0, value * (1 + 1e-11)) for value in old], "optimality": lambda _: None},
            "one label is (0.3, 1.5e-05)-DP",
        ),
        ("a smaller error", dict.fromkeys(("optimality/value", "optimality/bound"), add(-1e-9)), "expected error is"),
        (
            "a prior from 0.9 to 0.6",
            {"optimality/prior": {"kind": "uniform", "low": "0.9", "high": "0.6"}},
            "0.9 to 0.6",
        ),
        ("a proof with four of three voters", {"optimality/multipliers/0/1": 4}, "a row has other voters"),
        (
            "a falling γ that is called monotone",
            {
                "gamma": FALLING.half.tolist(),
                "optimality/value": FALLING.expected_error(Dirichlet()),
                "optimality/bound": 0.0,
                "optimality/shape": "monotone",
            },
            "γ never falls",
        ),
    ],
    (("signed",), "labels.csv.receipt.json"): [
        ("another signature", {"signature": lambda old: old.replace("a", "b")}, "the holder of a key signed"),
        ("a signature in words", {"signature": "none"}, "it is a receipt"),
        ("an empty signature", {"signature": ""}, "it is a receipt"),
    ],
    (("scale", "safe"), ""): [
        ("a smaller ε", {"epsilon": multiply(0.999)}, "its parts"),
        ("a smaller δ", {"delta": multiply(0.5)}, "its parts"),
        ("no ε", {"epsilon": lambda _: None}, "it is a published figure"),
        ("a larger order", {"order": multiply(1.5)}, "it is a published figure"),
        ("another conversion", {"conversion": "none"}, "it is a published figure"),
        ("a negative noisy part", {"noisy_cost": -0.1}, "it is a published figure"),
        ("a smaller probability", {"failure_probability": multiply(0.5)}, "too small with probability"),
        ("more safety than its probability", {"run/parameters/safety": 0.1}, "too small with probability"),
        ("a negative safety", {"run/parameters/safety": -1.0}, "it is a published figure"),
        ("no questions", {"run/queries": 0}, "it is a published figure"),
        ("free checks", {"run/check": "free"}, "it is a published figure"),
        ("no run", {"run": {}}, "it is a published figure"),
        ("another guarantee", {"guarantee": "(0.1, 0)-private"}, "it is a published figure"),
        ("a δ of 0", {"delta": 0.0}, "it is a published figure"),
        ("a δ of 1", {"delta": 1.0}, "it is a published figure"),
    ],
    (("scale",), ""): [
        ("less noise", {"run/parameters/deviation": 3.0}, "publishing it"),
        ("checks that depend on the data", {"run/check": "data-dependent"}, "it is a published figure"),
    ],
    (("smooth",), ""): [
        ("less noise", {"run/parameters/noise_scale": 5.0}, "publishing it"),
        ("less smoothness", {"run/parameters/smoothness": 0.5}, "it is a published figure"),
        ("noise of both kinds", {"run/parameters/deviation": 1e3}, "it is a published figure"),
        ("negative noise", {"run/parameters/noise_scale": -15.0}, "it is a published figure"),
    ],
}
FIGURES = ("scale", "smooth", "safe")


def list_field_lies() -> Iterator[Lie]:
    for (folders, file), lies in FIELD_LIES.items():
        for folder in folders:
            path = file or f"{folder}.json"
            for name, changes, claim in lies:
                where, prefix = ("figures", f"{folder}, ") if folder in FIGURES else (folder, "")
                yield Lie(where, f"{prefix}{name}", partial(change_fields, path, changes), claim)


def list_parameter_lies() -> Iterator[Lie]:
    """Change the parameters of mechanisms, and figures that depend on others."""
    # the verifier's bounds are not tight enough to refute these; it does not prove them either
    for folder in PLANS:
        for path, value in (("spent/epsilon", multiply(0.99)), ("spent/epsilon", multiply(0.998)),
                            ("workload/queries", add(1))):  # fmt: skip
            change = partial(change_fields, "plan.json", {f"plan/{path}": value})
            yield Lie(folder, f"a slightly better total, {path}", change, TOTAL, is_refutable=False)
    for folder, parameters in PARAMETERS.items():
        for name in parameters:
            for factor in (0.5, 0.999, 1.001, 2.0):
                change = partial(change_fields, "plan.json", {f"mechanism/{name}": multiply(factor)})
                yield Lie(folder, f"{name} times {factor:g}", change, DIGEST)
    for figure in ("scale", "safe"):
        yield Lie("figures", f"{figure}, a smaller public part", partial(lower_public_part, figure), "publishing it")
    for name, (fields, claim) in CARD_LIES.items():
        yield Lie("card", name, partial(edit_card, fields), claim)


def lower_public_part(figure: str, folder: Path) -> None:
    """Lower the public part below all that it can be, and ε with it."""
    cost = json.loads((folder / f"{figure}.json").read_text())["public_cost"]
    change_fields(f"{figure}.json", {"epsilon": add(-0.9 * cost), "public_cost": 0.1 * cost}, folder)


CARD_LIES: dict[str, tuple[Json, str]] = {
    "a smaller ε": ({"guarantee": {"epsilon": "1", "delta": "1e-5"}}, "the described models are"),
    "a smaller δ": ({"guarantee": {"epsilon": "2", "delta": "1e-6"}}, "the described models are"),
    "less spent": ({"spent": {"epsilon": "0.1", "delta": "1e-5"}}, "it spent"),
    "a guarantee without δ": ({"guarantee": {"epsilon": "2"}}, "it states a guarantee"),
    "a guarantee in text": ({"guarantee": "2"}, "it states a guarantee"),
}


def edit_card(fields: Json, folder: Path) -> None:
    """Change fields of the JSON block of a model card."""
    start, _, end = (folder / "card.md").read_text(encoding="utf-8").partition("```json\n")
    block, _, end = end.partition("```")
    text = f"{start}```json\n{json.dumps(json.loads(block) | fields)}\n```{end}"
    (folder / "card.md").write_text(text, encoding="utf-8")


# ------------------------------------------------------------------------------------------------ ledgers

CHEAP_COST = '{"guarantee":["0.000001","0"],"profile":null,"renyi":null}'
INSERT_CHEAP_COST = f"INSERT INTO costs VALUES (9, '{CHEAP_COST}', 'DaRRM over 3 voters', 0, '', '')"
UPDATE_LAST_ENTRY = "UPDATE state SET last_entry = (SELECT count(*) FROM entries)"
NOT_TRUNCATED, WHOLE_LEDGER = "the ledger was not truncated", "it is a whole ledger"
UNCHANGED = "it is the ledger that it was"
DEBIT, COUNT = "they are the labels of a debit", "as many were paid for as there are"


def set_entry(number: int, **columns: object) -> str:
    values = ", ".join(f"{name} = {value}" for name, value in columns.items())
    return f"UPDATE entries SET {values} WHERE id = {number}"


LAST_ENTRY_GONE = ("DELETE FROM entries WHERE id = (SELECT max(id) FROM entries)", UPDATE_LAST_ENTRY)
FIRST_ENTRY_GONE = ("DELETE FROM entries WHERE id = 1", "UPDATE entries SET id = id - 1", UPDATE_LAST_ENTRY)
# other files refute these
LEDGER_LIES: dict[str, tuple[tuple[str, ...], str]] = {
    "a smaller budget": (("UPDATE budget SET epsilon = '0.3'",), "keep to the budget"),
    "a cheap entry": ((INSERT_CHEAP_COST, set_entry(1, cost=9)), "all its queries are of one kind"),
    "a cheap last entry": ((INSERT_CHEAP_COST, set_entry(2, cost=9)), "all its queries are of one kind"),
    "a smaller count": ((set_entry(1, count="count - 1"),), COUNT),
    "a larger count": ((set_entry(1, count="count + 1"),), COUNT),
    "another release": ((set_entry(1, table_digest="'ab'"),), "they were drawn with this table"),
    "other labels": ((set_entry(1, labels_digest="'ab'"),), DEBIT),
    "no last entry": (LAST_ENTRY_GONE, DEBIT),
    "no first entry": (FIRST_ENTRY_GONE, DEBIT),
    "two merged entries": ((set_entry(2, count=29), *FIRST_ENTRY_GONE), DEBIT),
    "no entries": (("DELETE FROM entries", UPDATE_LAST_ENTRY), DEBIT),
}
# no other file repeats these fields: only a digest refutes them
UNDETECTED_LIES: dict[str, tuple[str, ...]] = {
    "a budget twice as large": ("UPDATE budget SET epsilon = '41'",),
    "a larger δ": ("UPDATE budget SET delta = '0.02'",),
    "another composition": ("UPDATE budget SET composition = 'renyi'",),
    "another identity": (f"UPDATE budget SET identity = '{'ab' * 16}'",),
    "another population": ("UPDATE budget SET population = 'ward 8'",),
    "a later beginning": ("UPDATE budget SET created = '2999-01-01T00:00:00.000+00:00'",),
    "an earlier beginning": ("UPDATE budget SET created = '2001-01-01T00:00:00.000+00:00'",),
    "another name of its costs": ("UPDATE costs SET what = 'a survey'",),
    "no release": (set_entry(1, table_digest="''"),),
    "no labels": (set_entry(1, labels_digest="''"),),
    "another note": (set_entry(1, note="'a trial'"),),
    "another time": (set_entry(1, time="'1999-01-01T00:00:00.000+00:00'"),),
    "another token": ("UPDATE entries SET token = 'cd' WHERE id = 1",),
    "another output": (set_entry(1, output="'/a/b.csv'"),),
    "names of questions": (set_entry(1, questions="'[\"c\"]'", count=1),),
    "two entries exchanged": (set_entry(1, id=99), set_entry(2, id=1), set_entry(99, id=2)),
}
# of the ledger of two files and a stream
WAITING = "not delivered yet"
FORGERIES: dict[str, tuple[tuple[str, ...], str]] = {
    "a cheap middle entry": ((INSERT_CHEAP_COST, set_entry(14, cost=9)), "all its queries are of one kind"),
    "a cheap entry of a planned ledger": (
        (INSERT_CHEAP_COST, set_entry(1, cost=9), "UPDATE budget SET composition = 'planned'"),
        "one query costs at most",
    ),
    **{
        f"entry {n} of the time {time!r}": ((set_entry(n, time=f"'{time}'"),), "it was debited from")
        for n, time in ((1, "soon"), (2, "2026-02-30T00:00:00.000+00:00"), (9, ""), (9, "2026-11-23T08:00:00.000"))
    },
    "a small entry with the labels of another": (
        (set_entry(2, labels_digest="(SELECT labels_digest FROM entries WHERE id = 1)", count=2),),
        COUNT,
    ),
    "other waiting labels": ((set_entry(26, labels="x'00'"),), WAITING),
    "no waiting labels": ((set_entry(26, labels="x''"),), WAITING),
    "one label of two in the last entry": ((set_entry(26, count=2),), COUNT),
    **{
        f"a small budget of the composition {name!r}": (
            (f"UPDATE budget SET epsilon = '0.5', composition = '{name}'",),
            "64 labels keep to the budget (0.5, 0.01)",
        )
        for name in ("planned", "adaptive", "renyi")
    },
}
TAMPERED: tuple[tuple[str, ...], ...] = (
    ("DELETE FROM entries WHERE id = 2", "UPDATE costs SET total = 44"),
    ("UPDATE entries SET note = 'x' WHERE id = 1",),
    ("UPDATE entries SET id = 99 WHERE id = 1",),
    ("UPDATE budget SET identity = 'x'",),
    ("UPDATE costs SET what = 'x'",),
    ("UPDATE state SET moved_to = '/x'",),
    ("PRAGMA application_id = 0",),
    ("PRAGMA user_version = 2",),
    ("CREATE TRIGGER undo AFTER UPDATE ON costs BEGIN UPDATE costs SET total = 0; END",),
    ("CREATE VIEW sums AS SELECT * FROM costs",),
)
COLUMNS = "time, cost, count, note, table_digest, labels_digest, token, output, questions, entry_hash, signature"
INSERT_COPY = f"INSERT INTO entries SELECT 4, {COLUMNS}, files, labels FROM entries WHERE id = 3"
# of a signed ledger, to a reader who has the public key
SIGNATURE_LIES: dict[str, Change] = {
    "a smaller count": forge(set_entry(1, count=4)),
    "another note": forge(set_entry(3, note="'a trial'")),
    "a larger budget": forge("UPDATE budget SET epsilon = '10'"),
    "another identity": forge(f"UPDATE budget SET identity = '{'ab' * 16}'"),
    "no first entry": forge(*FIRST_ENTRY_GONE),
    "no signatures": forge("UPDATE entries SET signature = ''"),
    "no signatures, and a smaller count": forge("UPDATE entries SET signature = '', count = 4"),
    "no last signature": forge(set_entry(3, signature="''")),
    "no first signature": forge(set_entry(1, signature="''")),
    "one more entry": forge(INSERT_COPY, UPDATE_LAST_ENTRY),
    "a changed signature": forge(set_entry(2, signature="replace(signature, 'a', 'b')")),
    "no hexadecimal digits": forge(set_entry(2, signature="'ed25519:xy'")),
    "two signatures exchanged": forge(
        "UPDATE entries SET signature = (SELECT signature FROM entries c WHERE c.id = 4 - entries.id)"
    ),
}


def sign_by_another_key(folder: Path) -> None:
    """Change an entry, and sign all entries with another key."""
    relink(folder / "ledger.sqlite", set_entry(1, count=4))
    new_signing_key(folder / ".other.key")
    ledger, key = PrivacyLedger(folder / "ledger.sqlite"), SigningKey(folder / ".other.key")
    signatures = {number: key.sign(str(ledger.digest(number))) for number in (1, 2, 3)}
    relink(folder / "ledger.sqlite", *(set_entry(number, signature=f"'{s}'") for number, s in signatures.items()))


def rewrite_beside_older_copy(folder: Path) -> None:
    copy(folder / "ledger.sqlite", folder / "older.sqlite")
    relink(folder / "ledger.sqlite", set_entry(3, note="'a trial'"), "UPDATE entries SET signature = ''")


def forget_last_answer(folder: Path) -> None:
    """Delete the last answer of a stream from ledger and labels."""
    relink(folder / "ledger.sqlite", *LAST_ENTRY_GONE)
    edit_lines("answers.csv", lambda old: old[:-1], folder)


def store_waiting_label(count: int, folder: Path) -> None:
    """Let the stream's last label wait for its delivery, in an entry that pays for ``count``."""
    label = (folder / "answers.csv").read_text().split(",")[-1]
    file = BytesIO()
    np.save(file, np.array([int(label)]))
    relink(folder / "ledger.sqlite", set_entry(26, count=count, labels=f"x'{file.getvalue().hex()}'"))


def list_ledger_lies() -> Iterator[Lie]:
    """Change ledgers, mostly without receipts: `test_chain` compares the same ledgers with a digest."""
    for name, (statements, claim) in (LEDGER_LIES | FORGERIES).items():
        yield Lie("majority", f"a ledger with {name}", drop_receipts(forge(*statements)), claim)
    for name, statements in UNDETECTED_LIES.items():
        change = drop_receipts(forge(*statements))
        yield Lie("majority", f"a ledger with {name}", change, NOT_TRUNCATED, is_refutable=False)
    claim = "the ledger that holds this entry is called"
    yield Lie("majority", "another identity than in its receipts", forge(*UNDETECTED_LIES["another identity"]), claim)
    for number, statements in enumerate(TAMPERED, 1):
        yield Lie("majority", f"tampering {number}", tamper(*statements), WHOLE_LEDGER)
    yield Lie("gnmax", "a budget twice as large", forge(*UNDETECTED_LIES["a budget twice as large"]), UNCHANGED)
    yield Lie("majority", "one waiting label of two", partial(store_waiting_label, 2), WAITING)
    name = "no last answer of a stream in ledger and labels"
    yield Lie("majority", name, forget_last_answer, f"{NOT_TRUNCATED} after entry", is_refutable=False)
    change = partial(swap_files, "labels.csv.receipt.json", "more.csv.receipt.json")
    yield Lie("gnmax", "two receipts exchanged", change, "are those that were paid for")
    for name, change in SIGNATURE_LIES.items():
        yield Lie("signed", name, drop_receipts(change), "signed")
    yield Lie("signed", "signatures by another key", drop_receipts(sign_by_another_key), "signed")
    yield Lie("signed", "a rewritten ledger beside a copy", drop_receipts(rewrite_beside_older_copy), "are copies of")
    for name, where, factor, claim in (
        ("guarantee", "guarantee/0", 0.6, "one query costs at most"),
        ("curve", "renyi/1", 0.99, "the Rényi curve of a query"),
        ("profile", "profile/1", 0.9, "the privacy profile of a query"),
        ("slightly lower profile", "profile/1", 1 - 1e-9, "the privacy profile of a query"),
    ):
        yield Lie("majority", f"a lower {name} in the ledger", partial(understate_costs, where, factor), claim)


# ------------------------------------------------------------------------------------------------ sampling and costs


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


def understate_costs(where: str, factor: float, folder: Path) -> None:
    """Lower a part of a query's cost, a list of numbers or one number."""

    def edit(cost: Json) -> None:
        name, place = where.split("/")
        values = cost[name][int(place)]
        is_list = isinstance(values, list)
        cost[name][int(place)] = [factor * value for value in values] if is_list else multiply(factor)(values)

    edit_costs(edit, folder)


OTHER_SCHEME = {"poisson": "fixed", "fixed": "poisson"}
SamplingChange = Callable[[Json], Json] | None  # None deletes the sampling
SAMPLING_LIES: dict[str, SamplingChange] = {
    "half the rate": lambda sampled: {**sampled, "rate": repr(float(sampled["rate"]) / 2)},
    "another scheme": lambda sampled: {**sampled, "scheme": OTHER_SCHEME[sampled["scheme"]]},
    "one record each": lambda sampled: {name: value for name, value in sampled.items() if name != "records"},
    "no resampling": None,
}
# the parts of a cost that a ledger keeps
COST_PARTS = {
    "drawn": ("guarantee/0", "profile/1", "profile/2"),
    "drawn table": ("guarantee/0", "profile/1", "profile/2"),
    "drawn gnmax": ("renyi/1",),
    "drawn exponential": ("guarantee/0", "renyi/1"),
    "drawn flip": ("guarantee/0", "renyi/1"),
    "fixed": ("profile/1",),
}


def list_sampling_lies() -> Iterator[Lie]:
    """Change the sampling and its costs in files, in the ledger, and in both."""
    for folder, (classes, mechanism, sampling) in RESAMPLED.items():
        is_table = mechanism == "optimal" or (classes == 2 and mechanism not in {"gnmax", "lnmax"})
        places = ("problem/sampled" if is_table else "voters/sampled", "plan/workload/sampled")
        for name, edit in SAMPLING_LIES.items():
            if sampling.records == 1 and "record" in name:
                continue
            in_file, in_plan = (partial(change_fields, "plan.json", {where: edit}) for where in places)
            in_ledger = partial(edit_costs, partial(edit_sampling, edit))
            yield Lie(folder, f"{name} in the file", drop_receipts(in_file), WORKLOAD)
            yield Lie(folder, f"{name} in the plan", drop_receipts(in_plan), WORKLOAD)
            yield Lie(folder, f"{name} in the file and its plan", drop_receipts(in_file, in_plan), DIGEST)
            yield Lie(folder, f"{name} in the ledger", drop_receipts(in_ledger), "how records are drawn")
            # no file shows who was sampled, so a rate that all files repeat is an assumption
            everywhere = drop_receipts(in_file, in_plan, in_ledger, update_release_digest)
            yield Lie(folder, f"{name} everywhere", everywhere, "drawn with probability", is_refutable=False)
        for where in COST_PARTS[folder]:
            change = drop_receipts(partial(understate_costs, where, 0.9))
            # the bound on permute-and-flip is not tight
            yield Lie(folder, f"a lower {where}", change, "query", is_refutable=folder != "drawn flip")


def update_release_digest(folder: Path) -> None:
    """Write the digest of the changed release into the ledger."""
    with suppress(TableError):
        release = load_release(folder / "plan.json")
        digest = release.table.digest if isinstance(release, Release) else release.digest
        relink(folder / "ledger.sqlite", f"UPDATE entries SET table_digest = '{digest}'")


def edit_sampling(edit: SamplingChange, cost: Json) -> None:
    if edit is None:
        del cost["sampled"]
    else:
        cost["sampled"] = edit(cost["sampled"])


# ------------------------------------------------------------------------------------------------ labels


def flip_label(line: str) -> str:
    number, comma, value = line.strip().rpartition(",")
    return f"{number}{comma}{1 if value == '0' else 0}\n"


def renumber_answers(first: int, lines: list[str]) -> list[str]:
    return [f"{number},{line.split(',')[1]}" for number, line in enumerate(lines, first)]


ALL_FLIPPED = "all labels turned"
LINE_LIES: dict[str, Callable[[list[str]], list[str]]] = {
    "the first label turned": lambda old: [flip_label(old[0]), *old[1:]],
    "the last label turned": lambda old: [*old[:-1], flip_label(old[-1])],
    "all labels equal": lambda old: [line.strip()[:-1] + "1\n" for line in old],
    ALL_FLIPPED: lambda old: [flip_label(line) for line in old],
    "a label more": lambda old: [*old, old[0]],
    "a label less": lambda old: old[:-1],
    "no first label": lambda old: old[1:],
    "labels in order": lambda old: sorted(old) if sorted(old) != old else sorted(old)[::-1],
    "a label of no class": lambda old: [*old[:-1], "7\n"],
}
ARRAY_LIES: dict[str, Callable[[Any], Any]] = {
    "the first label turned": lambda old: np.concatenate([1 - old[:1], old[1:]]),
    "a label less": lambda old: old[:-1],
    "a label more": lambda old: np.concatenate([old[:1], old]),  # after the last it may be that of the next debit
    ALL_FLIPPED: lambda old: 1 - old,
}


def list_label_lies() -> Iterator[Lie]:
    """Change labels of every format."""
    for name, edit in LINE_LIES.items():
        # the seven labels of gnmax may be equal
        for folder in ("majority",) if name in {"all labels equal", "labels in order"} else ("majority", "gnmax"):
            yield Lie(folder, name, partial(edit_lines, "labels.csv", edit), DEBIT)
    yield Lie(
        "majority", "a third class", partial(edit_lines, "labels.csv", LINE_LIES["a label of no class"]), "one of 2"
    )
    for name in list(LINE_LIES)[:4]:
        yield Lie("majority", f"a stream with {name}", partial(edit_lines, "answers.csv", LINE_LIES[name]), DEBIT)
    for first in (0, 2, 25):
        change = partial(edit_lines, "answers.csv", partial(renumber_answers, first))
        yield Lie("majority", f"a stream numbered from {first}", change, DEBIT)
    for name, edit_labels in ARRAY_LIES.items():
        yield Lie("majority", f"an array with {name}", partial(edit_array, "more.npy", edit_labels), DEBIT)
        change = partial(edit_parquet, "labels/a.parquet", edit_labels)
        yield Lie("parquet", f"a Parquet file with {name}", change, "are those that were paid for")
        yield Lie("parquet", f"without a receipt, a Parquet file with {name}", drop_receipts(change), DEBIT)
    change = partial(edit_parquet, "labels/year=2/a.parquet", ARRAY_LIES["the first label turned"])
    yield Lie("nested", "the first label turned", change, "are those that were paid for")
    claim = "are those that were paid for"
    yield Lie("parquet", "files exchanged", partial(swap_files, "labels/a.parquet", "labels/b.parquet"), claim)
    yield Lie("parquet", "no second file", lambda folder: (folder / "labels" / "b.parquet").unlink(), claim)


def list_lies() -> list[Lie]:
    return [*list_field_lies(), *list_parameter_lies(), *list_ledger_lies(), *list_label_lies(), *list_sampling_lies()]
