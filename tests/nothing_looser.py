"""Nothing became looser: what one version of the code says is recorded, and compared with what another says.

python -m tests.nothing_looser record before.json --files tests/files/old
python -m tests.nothing_looser compare before.json after.json

A record holds stored tables, charges and what the accountant makes of them, plans, advice, and files that older
versions wrote. An entry of it has what must stay the same (digests), costs and curves of costs, which must not grow by
more than `COST`, and shares of right labels, which must not fall by more than `SHARE`; notes may change. The exit
status of ``compare`` is 1 if anything is looser, and every such thing is a line.

It runs unchanged with any version since the fixtures in ``tests/files/old`` were written: what moved since is looked
for under each of its names (`HOMES`).
"""

import argparse
import hashlib
import io
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from darrm import (
    Charge,
    MajorityProblem,
    NoiseFunction,
    PrivacyAccountant,
    PrivacyLedger,
    PrivacyParams,
    Voters,
    available_tables,
    certify,
    load_table,
)
from darrm.errors import DarrmError

COST, SHARE = 1e-12, 1e-6  # how much a cost may grow, relative or absolute, and a share fall
FILES = Path(__file__).parent / "files" / "old"
SEED, CHARGES, MIXTURES = 28, 200, 30
PLAIN = PrivacyParams("inf")
# what has moved, or may: the modules that hold or held it, the newest first
HOMES = {
    "DaRRM": ("darrm",),
    "ConfidentGNMax": ("darrm.pate", "darrm.mechanisms"),
    "ExponentialMechanism": ("darrm.pate", "darrm.mechanisms", "darrm.mechanisms.selection"),
    "GNMax": ("darrm.pate", "darrm.mechanisms"),
    "LNMax": ("darrm.pate", "darrm.mechanisms"),
    "NoisyMaximum": ("darrm.pate", "darrm.mechanisms"),
    "PermuteAndFlip": ("darrm.pate", "darrm.mechanisms", "darrm.mechanisms.selection"),
    "ShapedMax": ("darrm.pate", "darrm.mechanisms", "darrm.mechanisms.noisy_max"),
    "ShapedNoise": ("darrm.probability.integer_noise",),
    "PrivacyProfile": ("darrm.losses", "darrm.losses.profile"),
    "RenyiCurve": ("darrm.losses", "darrm.losses.renyi"),
    "document_of": ("darrm.pate.files", "darrm.mechanisms.files", "darrm.release.files"),
    "load_labels": ("darrm.system.votes_file", "darrm.system.labels_file", "darrm.system", "darrm.release"),
    "labels_digest": ("darrm.system.votes_file", "darrm.system.labels_file", "darrm.system", "darrm.release"),
    "load_release": ("darrm.pate.files", "darrm.mechanisms.files", "darrm.mechanisms", "darrm.release.files"),
}
REFUSALS = (ArithmeticError, AttributeError, DarrmError, ImportError, LookupError, OSError, TypeError, ValueError)

Entry = dict[str, dict[str, Any]]
Record = dict[str, dict[str, Entry]]


def find(name: str) -> Any:
    """What has a name, wherever this version keeps it."""
    for home in HOMES[name]:
        try:
            return getattr(import_module(home), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"no module of {', '.join(HOMES[name])} has {name}")


def entry(**groups: dict[str, Any]) -> Entry:
    return {"same": {}, "costs": {}, "curves": {}, "shares": {}, "notes": {}, **groups}


def recorded(make: Callable[[], Entry]) -> Entry:
    """An entry; one that says what refused it, where it cannot be made."""
    try:
        return make()
    except REFUSALS as error:
        return {"refused": {"by": f"{type(error).__name__}: {error}"}}


def share_of_truth(truth: Sequence[float], K: int) -> float:
    """The share of right labels where every number of ones is equally likely; at a tie both answers are right."""
    return (2.0 * sum(truth) + (K % 2 == 0)) / (K + 1)


def run_json(door: str, flags: Sequence[str]) -> Any:
    """What a command line prints as JSON, started in this process."""
    out = io.StringIO()
    with redirect_stdout(out):
        import_module(f"darrm.{door}.__main__").main([*flags, "--format", "json", "--quiet"])
    return json.loads(out.getvalue())


# tables


def stored_tables() -> Iterator[tuple[str, Entry]]:
    """All 1,050 of up to 15 voters, and every twelfth of the larger ones; of all of them the bytes."""
    settings = available_tables()
    small = [setting for setting in settings if setting.K <= 15]
    large = [setting for setting in settings if setting.K > 15]
    for setting in [*small, *large[::12]]:
        yield str(setting), recorded(partial(of_table, setting))
    folder = Path(str(import_module("darrm").__file__)).parent / "tables"
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.json.gz"))}
    yield "the files of the package", entry(same=digests)


def of_table(setting: Any) -> Entry:
    table = load_table(setting.problem, shape=setting.shape)
    data = table.to_json()
    truth = [0.5 * (1.0 + value) for value in data["gamma"]]
    return entry(
        same={"digest": table.digest},
        costs={"worst cost": data["certificate"]["worst_cost"], "expected error": data["optimality"]["value"]},
        shares={
            "share right": share_of_truth(truth, setting.K),
            "scale": data["certificate"]["scale"],
            "bound on the error": data["optimality"]["bound"],
        },
    )


# charges


def charges() -> Iterator[tuple[str, Entry]]:
    """Random charges of every kind, alone and many times; then accounts of several of them."""
    rng = np.random.default_rng(SEED)
    makers = (private, plain, differing, models, bare, maximum, maximum, confident)
    known = []
    for number in range(CHARGES):
        maker, delta = makers[number % len(makers)], float(rng.choice([1e-6, 1e-4, 1e-2]))
        seed, queries = int(rng.integers(2**32)), int(rng.choice([2, 12, 100]))
        try:
            charge = maker(np.random.default_rng(seed))
        except REFUSALS as error:
            yield f"{number} {maker.__name__}", {"refused": {"by": str(error)}}
            continue
        known.append(charge)
        yield f"{number} {maker.__name__}", recorded(partial(of_charge, charge, (1, queries), delta))
    for number in range(MIXTURES):
        chosen = [known[place].repeated(int(rng.integers(1, 20))) for place in rng.integers(len(known), size=3)]
        # models do not mix: an account is about one ensemble
        chosen = [charge for charge in chosen if charge.models is None] or chosen[:1]
        yield f"mixture {number}", recorded(partial(of_account, chosen, 1e-3))


def of_charge(charge: Charge, counts: Sequence[int], delta: float) -> Entry:
    text = charge.to_text()
    made = described(json.loads(text))
    read = Charge.from_text(text, what=charge.what)
    made["same"]["reads back"] = read.to_text() == text
    made["notes"]["text"] = hashlib.sha256(text.encode()).hexdigest()
    for count in counts:
        account = of_account([charge.repeated(count)], delta)
        for group, values in account.items():
            made[group].update({f"{count} queries, {name}": value for name, value in values.items()})
    return made


def described(document: dict[str, Any], prefix: str = "") -> Entry:
    """Split the text of a charge into what must stay and what must not grow."""
    made = entry()
    for name, value in document.items():
        if value is None:
            made["notes"][prefix + name] = None
        elif name == "guarantee":
            made["costs"].update({f"{prefix}epsilon": float(value[0]), f"{prefix}delta": float(value[1])})
        elif name in {"renyi", "profile"}:
            made["curves"][prefix + name] = value
        elif name == "sample":
            made["costs"].update({f"{prefix}sample": value[0], f"{prefix}distance": value[1]})
        elif name == "plain":
            for reached, inner in value:
                for group, values in described(inner, f"{prefix}plain {reached}: ").items():
                    made[group].update(values)
        else:
            made["same"][prefix + name] = value
    return made


def of_account(held: Sequence[Charge], delta: float) -> Entry:
    accountant = PrivacyAccountant(charges=held)
    costs, notes = {}, {}
    for way, spent in (("", accountant.spent(delta)), ("adaptively ", accountant.spent_adaptively(delta))):
        costs[f"{way}total at {delta:g}"] = spent.epsilon
        costs.update({f"{way}{bound.name} at {delta:g}": bound.epsilon for bound in spent.bounds})
        notes[f"{way}bound"] = spent.bound
    one = held[0].kind
    budget = PrivacyParams(2, delta)
    fit = PrivacyAccountant().queries_that_fit(one, budget, most=300)
    return entry(costs=costs, notes=notes, shares={"queries that fit": fit})


def gamma_of(K: int, rng: np.random.Generator, *, falling: bool) -> NoiseFunction:
    values = rng.random(K - K // 2)
    return NoiseFunction(K, values if falling and rng.random() < 0.3 else sorted(values))


def pair(rng: np.random.Generator) -> PrivacyParams:
    return PrivacyParams(str(rng.choice(["0.02", "0.1", "0.5", "1"])), str(rng.choice(["0", "1e-6", "1e-3"])))


def overlap_of(K: int, rng: np.random.Generator) -> int | None:
    return (1, min(2, K), None)[int(rng.integers(3))]


def charge_with(problem: MajorityProblem, rng: np.random.Generator, *, falling: bool = True) -> Charge:
    gamma = gamma_of(problem.voters.K, rng, falling=falling)
    made: Charge = find("DaRRM")(certify(problem, gamma)).charge()
    return made


def private(rng: np.random.Generator) -> Charge:
    K = int(rng.choice([3, 4, 7, 10, 15]))
    voters = Voters(K, pair(rng), overlap_of(K, rng))
    return charge_with(MajorityProblem.from_allowance(voters, int(rng.integers(1, voters.reached + 1))), rng)


def plain(rng: np.random.Generator) -> Charge:
    K = int(rng.choice([3, 8, 15, 30]))
    target = PrivacyParams(str(rng.choice(["0.1", "0.5", "2"])), str(rng.choice(["0", "1e-5", "1e-2"])))
    return charge_with(MajorityProblem(Voters(K, PLAIN, overlap_of(K, rng)), target), rng)


def differing(rng: np.random.Generator) -> Charge:
    K = int(rng.choice([3, 5, 6]))
    kinds = [PrivacyParams("0.1", "1e-6"), pair(rng), PLAIN if rng.random() < 0.3 else PrivacyParams("0.3")]
    voters = Voters.of([kinds[n % 3] for n in range(K)], overlap_of(K, rng), models=bool(rng.random() < 0.2))
    return charge_with(MajorityProblem(voters, PrivacyParams("0.8", "1e-2")), rng, falling=False)


def models(rng: np.random.Generator) -> Charge:
    K = int(rng.choice([3, 6, 11]))
    voters = Voters(K, pair(rng), overlap_of(K, rng), models=True)
    return charge_with(MajorityProblem.from_allowance(voters, 1), rng)


def bare(rng: np.random.Generator) -> Charge:
    """A charge of one's own: any of guarantee, curve and profile."""
    epsilon = float(rng.choice([0.05, 0.3, 1.0]))
    profile = find("PrivacyProfile")((0.0, epsilon), (math.tanh(epsilon / 2.0), 0.0))
    curve = find("RenyiCurve").of_pure(epsilon)
    held = rng.random(3) < 0.6
    held[int(rng.integers(3))] = True
    guarantee = PrivacyParams(epsilon, str(rng.choice(["0", "1e-7"]))) if held[0] else None
    return Charge("own", guarantee, curve if held[1] else None, profile if held[2] else None)


def maximum(rng: np.random.Generator) -> Charge:
    """A noisy maximum of 2, 3 or 10 classes, of plain voters or of private models."""
    overlap = int(rng.choice([1, 1, 2, 5]))
    each = PLAIN if rng.random() < 0.6 else PrivacyParams(str(rng.choice(["0.5", "1"])), "1e-6")
    voters = Voters(int(rng.choice([10, 50, 250])), each, overlap, models=each.is_private)
    right = float(rng.choice([20.0, 40.0, 80.0]))
    mechanisms: tuple[Callable[[], Any], ...] = (
        lambda: find("GNMax")(right, reached=overlap),
        lambda: find("LNMax")(1.0 / right, reached=overlap),
        lambda: find("ExponentialMechanism")(2.0 / right, reached=overlap),
        lambda: find("PermuteAndFlip")(2.0 / right, reached=overlap),
        lambda: find("ShapedMax")(find("ShapedNoise")(right, 2.0 * right, 3.0, 2.25), reached=overlap),
    )
    mechanism = mechanisms[int(rng.integers(len(mechanisms)))]()
    made: Charge = find("NoisyMaximum")(mechanism, voters, int(rng.choice([2, 3, 10]))).charge()
    return made


def confident(rng: np.random.Generator) -> Charge:
    sigma = float(rng.choice([20.0, 40.0]))
    made: Charge = find("ConfidentGNMax")(150.0, 3.0 * sigma, sigma).charge()
    return made


# plans and advice

_ONE, _THREE = "--overlap 1", "--overlap 3"
WORKLOADS = tuple(
    line.replace("plain", "--voters plain").replace("|", "--queries")
    for line in (
        # two classes, plain voters: all priors, overlaps and numbers of queries
        f"--K 3 plain {_ONE} | 1 --total 1,1e-5",
        f"--K 8 plain {_ONE} | 10 --total 2,1e-5",
        "--K 8 plain | 3 --total 2,1e-3",
        f"--K 21 plain {_ONE} | 40 --total 2,1e-5",
        f"--K 21 plain {_ONE} | 40 --total 2,1e-5 --prior uniform",
        f"--K 21 plain {_ONE} | 40 --total 2,1e-5 --prior uniform:0.7,1",
        f"--K 21 plain {_ONE} | 40 --total 2,1e-5 --prior point:0.8",
        f"--K 21 plain {_THREE} | 100 --total 4,1e-4",
        "--K 21 plain | 5 --total 3,1e-4",
        f"--K 50 plain {_ONE} | 1 --total 0.5,0",
        f"--K 50 plain {_ONE} | 25 --total 1,0",
        f"--K 50 plain {_ONE} | 1000 --total 4,1e-6",
        f"--K 51 plain {_THREE} | 100 --total 3,1e-5",
        "--K 51 plain | 20 --total 5,1e-5",
        f"--K 101 plain {_ONE} | 300 --total 1,1e-6 --prior uniform:0.6,0.9",
        f"--K 101 plain {_THREE} | 50 --total 2,1e-5",
        f"--K 251 plain {_ONE} | 1000 --total 2,1e-5",
        f"--K 250 plain {_ONE} | 1000 --total 2,1e-5 --prior point:0.6",
        f"--K 251 plain {_ONE} | 1 --total 0.1,1e-6",
        # two classes, private voters
        "--K 3 --epsilon 0.5 | 1 --total 1,1e-4",
        "--K 5 --epsilon 0.2 --overlap 2 | 10 --total 2,1e-3",
        "--K 11 --epsilon 0.1 | 1 --total 0.3,3e-5",
        "--K 11 --epsilon 0.1 | 1 --total 0.3,3e-5 --prior uniform",
        "--K 11 --epsilon 0.1 | 100 --total 4,1e-2",
        f"--K 11 --epsilon 0.1 {_ONE} | 20 --total 1,1e-3",
        "--K 21 --epsilon 0.1 --each-delta 0 | 50 --total 3,1e-5",
        "--K 21 --epsilon 1 | 4 --total 6,1e-3 --prior point:0.9",
        "--K 50 --epsilon 0.05 | 100 --total 2,1e-2",
        f"--K 51 --epsilon 0.5 {_THREE} | 20 --total 4,1e-3",
        "--K 101 --epsilon 0.1 | 20 --total 4,1e-2",
        "--K 51 --epsilon 2 --each-delta 1e-7 | 200 --total 8,1e-3",
        # two classes, voters that differ
        "--epsilon 0.1,0.2,0.5 --each-delta 1e-5 | 1 --total 0.5,1e-4",
        "--epsilon 0.1,0.2,0.5,0.5,0.1 --each-delta 0 | 10 --total 2,1e-3",
        "--epsilon 0.1,0.1,0.1,inf,inf --each-delta 1e-6 | 10 --total 2,1e-3",
        "--epsilon 0.5,0.5,1,1,1,0.5 --each-delta 1e-5 --overlap 2 | 5 --total 2,1e-3",
        "--epsilon 0.1,0.1,0.5,0.5,0.5,0.1,0.1 --each-delta 1e-5 | 20 --total 3,1e-3 --prior uniform",
        "--epsilon 0.5,1,1 --each-delta 1e-5 --overlap 1 --models | 20 --total 0.7,1e-3",
        # two classes, private models
        f"--K 5 --epsilon 0.0892 --each-delta 1e-4 --models {_ONE} | 100 --total 0.05,1e-4",
        f"--K 11 --epsilon 1 --models {_ONE} | 100 --total 0.5,1e-5",
        f"--K 11 --epsilon 1 --models {_ONE} | 100 --total 1,1e-5",
        "--K 11 --epsilon 0.1 --models | 20 --total 0.5,1e-3",
        f"--K 51 --epsilon 1 --models {_THREE} | 50 --total 1.5,1e-4",
        f"--K 21 --epsilon 0.5 --models {_ONE} | 1 --total 0.5,1e-4",
        # three classes
        f"--K 5 plain {_ONE} --classes 3 | 1 --total 2,1e-5",
        f"--K 8 plain {_ONE} --classes 3 | 10 --total 2,1e-5",
        "--K 6 plain --overlap 2 --classes 3 | 5 --total 3,1e-4",
        "--K 4 plain --classes 3 | 2 --total 3,1e-4",
        f"--K 50 plain {_ONE} --classes 3 | 100 --total 2,1e-5",
        f"--K 101 plain {_THREE} --classes 3 | 100 --total 4,1e-5 --prior dirichlet:0.1",
        f"--K 30 --epsilon 1 --models {_ONE} --classes 3 | 50 --total 0.9,1e-5",
        f"--K 30 --epsilon 1 --models {_ONE} --classes 3 | 1 --total 0.9,1e-5",
        f"--K 250 plain {_ONE} --classes 3 | 1000 --total 1,1e-6",
        # ten classes
        f"--K 5 plain {_ONE} --classes 10 | 5 --total 3,1e-5",
        f"--K 50 plain {_ONE} --classes 10 | 20 --total 2,1e-5",
        f"--K 50 plain {_ONE} --classes 10 | 20 --total 4,0",
        f"--K 250 plain {_ONE} --classes 10 | 1000 --total 2,1e-5",
        f"--K 250 plain {_ONE} --classes 10 | 500 --total 2,1e-5 --prior dirichlet:0.1",
        f"--K 100 plain {_THREE} --classes 10 | 50 --total 4,1e-5 --prior dirichlet:0.5",
        f"--K 50 --epsilon 1 --models {_ONE} --classes 10 | 50 --total 0.9,1e-5",
        "--K 50 --epsilon 0.5 --models --overlap 2 --classes 10 | 100 --total 0.8,1e-4",
    )
)
ADVISED = tuple(WORKLOADS[place] for place in (3, 21, 23, 24, 32, 38, 47, 54))


def plans() -> Iterator[tuple[str, Entry]]:
    with tempfile.TemporaryDirectory() as folder:
        for number, flags in enumerate(WORKLOADS):
            yield flags, recorded(partial(of_plan, flags.split(), Path(folder) / f"{number}.json"))


def of_plan(flags: list[str], output: Path) -> Entry:
    """The plan's own figures, and what the accountant says of the file that it writes."""
    report = run_json("plan", [*flags, "--output", str(output)])
    best, work = report["candidates"][0], report["workload"]
    epsilon, delta = (float(work["total"][name]) for name in ("epsilon", "delta"))
    aggregator = find("load_release")(output)
    anew = PrivacyAccountant(charges=[aggregator.charge(work["queries"])]).spent(delta).epsilon
    shares = {"share right": best["share_right"]["value"]}
    if work.get("classes", 2) == 2 and report["prior"] in {"common", "dirichlet:1"}:
        shares["share by truth"] = share_of_truth(best["truth"], work["K"])
    return entry(
        costs={
            "beyond the budget": max(0.0, best["spent"]["epsilon"] / epsilon - 1.0),
            "beyond the budget, accounted anew": max(0.0, anew / epsilon - 1.0),
            "delta": best["spent"]["delta"],
        },
        shares=shares,
        notes={
            "method": best["method"],
            "spent": best["spent"]["epsilon"],
            "expected error": best.get("expected_error"),
            "candidates": {one["method"]: (one["share_right"] or {}).get("value") for one in report["candidates"]},
        },
    )


def advice() -> Iterator[tuple[str, Entry]]:
    for flags in ADVISED:
        yield flags, recorded(partial(of_advice, flags.split()))


def of_advice(flags: list[str]) -> Entry:
    report = run_json("advise", flags)
    epsilon = float(flags[flags.index("--total") + 1].partition(",")[0])
    options = {option["name"]: option for option in report["options"]}
    return entry(
        costs={f"{name}: beyond the budget": max(0.0, one["epsilon"] / epsilon - 1.0) for name, one in options.items()},
        shares={f"{name}: share right": (one["share_right"] or {}).get("value") for name, one in options.items()},
        notes={
            "winner": report["winner"],
            "accuracy": {name: one["accuracy"] for name, one in options.items()},
            "settings": {name: one["settings"] for name, one in options.items()},
        },
    )


# files that older versions wrote


def old_files(folder: Path, *, accounts: bool = True) -> Iterator[tuple[str, Entry]]:
    """Every file of a folder, read from a copy; ledgers are debited once more, where the table that they name is there.

    Without ``accounts``, which take longest, releases say what one query costs only.
    """
    with tempfile.TemporaryDirectory() as place:
        copies = Path(place) / "old"
        shutil.copytree(folder, copies)
        readers: dict[str, Callable[[Path], Entry]] = {
            ".json": partial(of_release, accounts=accounts),
            ".sqlite": of_ledger,
            ".npy": of_labels,
            ".csv": of_labels,
            ".skops": of_estimator,
        }
        for path in sorted(copies.iterdir()):
            if path.suffix in readers:
                yield path.name, recorded(partial(readers[path.suffix], path))


def of_release(path: Path, *, accounts: bool) -> Entry:
    aggregator = find("load_release")(path)
    document = json.loads(path.read_text(encoding="utf-8"))
    written = find("document_of")(aggregator)
    made = of_charge(aggregator.charge(), (1, 20) if accounts else (), 1e-3)
    if "checksum" in document:
        made["same"]["digest"] = aggregator.table.digest
        made["same"]["as in the file"] = written["checksum"] == document["checksum"]
        made["shares"]["scale"] = written["certificate"]["scale"]
        claim = written["optimality"] or {}
        made["same"]["status"] = claim.get("status")
        made["notes"]["prior"] = claim.get("prior")
        if accounts:
            report = run_json("verify", [str(path)])
            made["costs"]["false claims"] = sum(one["verdict"] == "false" for one in report["verdicts"])
    else:
        made["same"]["document"] = written
    return made


def of_ledger(path: Path) -> Entry:
    ledger = PrivacyLedger(path)
    budget, spent = ledger.budget, ledger.spent
    rows = [
        [line.number, line.time, line.what, line.count, line.note, line.table, line.labels, line.delivered, line.output]
        for line in ledger.entries()
    ]
    same: dict[str, Any] = {
        "budget": budget.to_json(),
        "kinds": ledger.kinds,
        "identity": ledger.identity,
        "entries": rows,
    }
    for line in ledger.undelivered():
        if line.labels:
            same[f"labels of {line.number}"] = ledger.kept_labels(line.number).tolist()
        else:
            same[f"manifest of {line.number}"] = (ledger.kept_manifest(line.number) or b"").decode()
    costs = {"spent": spent.epsilon, **{bound.name: bound.epsilon for bound in spent.bounds}}
    kind = ledger.accountant().charges[0].kind
    shares = {"left": ledger.queries_that_fit(kind, most=1000)}
    for table in path.parent.glob("*.json"):
        if rows[0][5] and f'"checksum": "{rows[0][5]}"' in table.read_text(encoding="utf-8"):
            ledger.debit(find("load_release")(table).charge(), note="goes on")
            same["goes on"] = len(ledger.entries()) - len(rows)
    return entry(same=same, costs=costs, shares=shares)


def of_labels(path: Path) -> Entry:
    labels = find("load_labels")(path)
    return entry(same={"digest": find("labels_digest")(labels), "labels": labels.tolist()})


def of_estimator(path: Path) -> Entry:
    """What a loaded estimator says it has spent; its ledger, if it has one, is not copied and not debited."""
    loaded: Any = import_module("darrm.estimators").load(path)
    parameters = {name: str(value) for name, value in loaded.get_params(deep=False).items()}
    return entry(same={"kind": type(loaded).__name__, "parameters": parameters})


# records


def record(files: Path) -> Record:
    """Everything that this version says."""
    parts: dict[str, Callable[[], Iterator[tuple[str, Entry]]]] = {
        "tables": stored_tables,
        "charges": charges,
        "plans": plans,
        "advice": advice,
        "files": partial(old_files, files),
    }
    made = {}
    for name, part in parts.items():
        sys.stderr.write(f"{name} …\n")
        made[name] = dict(part())
    return made


def compare(before: Record, after: Record) -> tuple[list[str], list[str]]:
    """Say what is looser after, and what is different only."""
    looser: list[str] = []
    other: list[str] = []
    for part, entries in before.items():
        for name, old in entries.items():
            where, new = f"{part}: {name}", after.get(part, {}).get(name)
            if new is None:
                looser.append(f"{where}: is gone")
            elif "refused" in old or "refused" in new:
                if old != new:
                    said = f"{where}: {old.get('refused', 'made')} → {new.get('refused', 'made')}"
                    (looser if "refused" in new and "refused" not in old else other).append(said)
            else:
                compare_entries(where, old, new, looser, other)
    return looser, other


def compare_entries(where: str, old: Entry, new: Entry, looser: list[str], other: list[str]) -> None:
    """Add what is looser, and what is different only, of one entry."""
    rules: dict[str, Callable[[str, Any, Any], bool]] = {
        "same": lambda _, value, now: bool(now == value),
        "costs": lambda _, value, now: now is not None and not grown(value, now),
        "curves": lambda name, curve, now: now is not None and first_grown(name, curve, now) is None,
        "shares": lambda _, value, now: value is None or (now is not None and now >= value - SHARE),
    }
    for group, holds in rules.items():
        for name, value in old[group].items():
            now = new[group].get(name)
            if not holds(name, value, now):
                seen = "a curve, larger or gone" if group == "curves" else f"{value!r} → {now!r}"
                looser.append(f"{where}: {name}: {seen}")
    for name, value in old["notes"].items():
        if new["notes"].get(name) != value:
            other.append(f"{where}: {name}: {value!r} → {new['notes'].get(name)!r}")


def grown(value: float, now: float) -> bool:
    """Whether a cost is larger by more than `COST`, absolute or, beyond 1, relative."""
    return not now <= value + COST * max(1.0, abs(value))


def first_grown(name: str, old: list[list[float]], new: list[list[float]]) -> float | None:
    """The first order of a Rényi curve, or ε of a profile, at which the new curve is above the old one."""
    value_at = renyi_at if name.endswith("renyi") else delta_at
    return next((x for x, value in zip(*old, strict=True) if grown(value, value_at(x, *new))), None)


def renyi_at(order: float, orders: list[float], values: list[float]) -> float:
    """As `RenyiCurve.bound_at`: (order − 1)·value is convex, and a value grows with its order."""
    if order in orders:
        return values[orders.index(order)]
    if order > orders[-1]:
        return math.inf
    lifted = [(x - 1.0) * value for x, value in zip(orders, values, strict=True)]
    return float(np.interp(order, orders, lifted)) / (order - 1.0) if order > orders[0] else values[0]


def delta_at(epsilon: float, epsilons: list[float], deltas: list[float]) -> float:
    """As `PrivacyProfile.delta_at`: the profile is convex in e^ε, and beyond its last point the last δ stands."""
    if epsilon in epsilons:
        return deltas[epsilons.index(epsilon)]
    return float(np.interp(math.exp(min(epsilon, epsilons[-1])), np.exp(epsilons), deltas))


def main(arguments: Sequence[str] | None = None) -> int:
    """Record, or compare and return 1 if anything is looser."""
    parser = argparse.ArgumentParser(prog="python -m tests.nothing_looser", description=str(__doc__))
    jobs = parser.add_subparsers(dest="job", required=True)
    recording = jobs.add_parser("record", help="write what the code says that this runs with")
    recording.add_argument("output", type=Path)
    recording.add_argument("--files", type=Path, default=FILES, help="what older versions wrote")
    comparing = jobs.add_parser("compare", help="say what is looser in the second record")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--all", action="store_true", help="say what is different, too")
    options = parser.parse_args(arguments)
    if options.job == "record":
        options.output.write_text(json.dumps(record(options.files), indent=1), encoding="utf-8")
        return 0
    before, after = (json.loads(path.read_text(encoding="utf-8")) for path in (options.before, options.after))
    looser, other = compare(before, after)
    counts = ", ".join(f"{len(entries):,} {name}" for name, entries in before.items())
    lines = [f"looser: {line}" for line in looser] + [f"other: {line}" for line in other if options.all]
    lines.append(f"{counts}: {len(looser)} things are looser, {len(other)} others differ")
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return int(bool(looser))


if __name__ == "__main__":
    sys.exit(main())
