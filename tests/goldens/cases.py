"""The cases: one function a kind, which yields (name, value), the quick ones first.

Values are plain data: numbers, texts, lists and dictionaries. Nothing here depends on the time, the machine or a random
source: labels are drawn with a fixed ``rng``. All imports from darrm are at the top; if names or
keys change, this file maps them to the names in the goldens.
"""

import gzip
import hashlib
import io
import itertools
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, redirect_stdout
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from darrm import (
    NoiseFunction,
    PrivacyAccountant,
    PrivacyLedger,
    PrivacyParams,
    Problem,
    Release,
    Table,
    Voters,
    Votes,
    Workload,
    available_tables,
    certify,
    load_table,
    open_release,
    optimize_table,
    release_debited,
)
from darrm.__main__ import main as run_darrm
from darrm.aggregator import load_release
from darrm.errors import BudgetExceededError
from darrm.loss import PrivacyProfile, RenyiCurve, compose_general, compose_optimal, compose_simple
from darrm.loss.privacy_cost import PrivacyCost
from darrm.majority import baselines
from darrm.numerics.integer_noise import AsymmetricNoise
from darrm.pate import (
    AsymmetricMax,
    ConfidentGNMax,
    ExponentialMechanism,
    GNMax,
    InteractiveGNMax,
    LNMax,
    NoisyMaximum,
    PermuteAndFlip,
    analyze,
)
from darrm.pate.analysis import PrivateFigureWarning
from darrm.plan import CalibratedMechanism, plan
from darrm.plurality.plurality_law import random_law, true_plurality
from darrm.priors import parse as parse_prior
from darrm.subsampling import Subsampling
from darrm.table.release import describe_cost
from darrm.verify.audit import audit

Value = dict[str, Any]
Cases = Iterator[tuple[str, Value]]
NON_PRIVATE = PrivacyParams("inf")
OPEN: Any = "open"
SHAPED = AsymmetricNoise(4.0, 8.0, 3.0, 2.25)


def params(text: str) -> PrivacyParams:
    return PrivacyParams(*text.split(","))


def digest(values: Any) -> str:
    rounded = np.round(np.asarray(values, dtype=np.float64), 9) + 0.0  # no negative zeros
    return hashlib.sha256(rounded.tobytes()).hexdigest()[:16]


def lines(name: str) -> list[str]:
    text = Path(__file__).with_name(f"{name}.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if not line.startswith("#")]


def read_workload(line: str) -> tuple[Workload, dict[str, Any]]:
    """Read a line like ``K=5 overlap=1 queries=9 total=1,1e-5``; return also the options among its words."""
    words = dict(word.partition("=")[::2] for word in line.split())
    overlap = int(words["overlap"]) if "overlap" in words else None
    guarantees = [params(text) for text in words.get("each", "inf,0").split(";")]
    if len(guarantees) > 1:
        voters = Voters.of(guarantees, overlap, models="models" in words)
    elif "sampled" in words:
        voters = Voters(int(words["K"]), NON_PRIVATE, overlap or 1, sampled=Subsampling(Fraction(words["sampled"])))
    else:
        voters = Voters(int(words["K"]), guarantees[0], overlap, models="models" in words)
    classes = OPEN if words.get("classes") == OPEN else int(words.get("classes", 2))
    workload = Workload(
        voters, int(words.get("queries", 1)), params(words["total"]), classes, int(words.get("missing", 0))
    )
    options: dict[str, Any] = {name: words[name] for name in ("shape", "objective") if name in words}
    return workload, options | ({"prior": parse_prior(words["prior"], classes)} if "prior" in words else {})


def plans() -> Cases:
    for line in lines("workloads"):
        workload, options = read_workload(line)
        made = plan(workload, **options)
        others = {row.slug: score(row) for row in made.rows}
        best = {"mechanism": made.best.slug, "parameters": dict(made.best.settings), **score(made.best)}
        bound = {"delta": made.spent.delta, "bound": made.spent.bound}
        yield line, {**best, **bound, "prior": made.prior.text, "mechanisms": others}


def score(row: CalibratedMechanism) -> Value:
    accuracy = None if row.estimate is None else row.accuracy
    error = {} if row.expected_error is None else {"error": row.expected_error}
    return {"epsilon": row.spent.epsilon, "accuracy": accuracy, **error}


def tables() -> Cases:
    """Packaged tables and small solved ones: γ or the law, the certificate, the optimality bound."""
    settings = available_tables()
    small, large = ([s for s in settings if (s.K <= 31) == is_small] for is_small in (True, False))
    for setting in [*small[::9], *large[::121]]:
        yield f"packaged {setting}", describe_table(load_table(setting.problem, shape=setting.shape))
    for line in lines("problems"):
        workload, options = read_workload(line)
        yield f"solved {line}", describe_table(optimize_table(workload.problem(workload.total), **options))
    for name, table in certified_tables():
        yield f"certified {name}", describe_table(table)


def certified_tables() -> Iterator[tuple[str, Table]]:
    for K, m in ((5, 1), (5, 3), (11, 2), (12, 4), (21, 5)):
        problem = Problem.from_allowance(Voters(K, params("0.1,1e-5")), m)
        for make in (baselines.subsampling, baselines.double_subsampling, baselines.best_randomized_response):
            yield f"K = {K}, m = {m}, {make.__name__.removeprefix('best_')}", certify(problem, make(problem))
        yield f"K = {K}, m = {m}, rising", certify(problem, rising(K))
        yield f"K = {K}, m = {m}, constant", certify(problem, NoiseFunction(K, np.ones(K - K // 2)))
    problem = Problem(Voters(4, NON_PRIVATE, 1), params("1,1e-2"), 3)
    for name, law in (("random", random_law(4, 3)), ("plurality", true_plurality(4, 3))):
        yield f"3 classes, {name}", certify(problem, law)


def describe_table(table: Table) -> Value:
    law, certificate, optimality = table.law, table.certificate, table.optimality
    numbers = law.half if isinstance(law, NoiseFunction) else np.ravel(vars(law)["weights"]) / 2**53
    value: Value = {
        "law": [len(numbers), digest(numbers)],
        "values": [float(numbers[place]) for place in (0, len(numbers) // 2, -1)],
        "target": [table.problem.target.epsilon_text, table.problem.target.delta_text],
        "certificate": {
            "worst_cost": certificate.worst_cost,
            "budget": certificate.budget,
            "rows": certificate.rows,
            "scale": certificate.scale,
        },
    }
    if optimality is not None:
        value["optimality"] = {name: getattr(optimality, name) for name in ("value", "bound", "status")}
    return value


def costs() -> Cases:
    """What queries cost: alone, many times and mixed, by every bound; curves, profiles and compositions."""
    costs = dict(all_charges())
    for name, cost in costs.items():
        yield f"one query, {name}", describe_charge(cost)
        yield f"2 queries, {name}", account([cost.repeat(2)], 1e-3)
    for name, cost in costs.items():
        fit = PrivacyAccountant().queries_that_fit(cost, params("2,1e-3"), most=300)
        yield f"100 queries, {name}", {"fit": fit, **account([cost.repeat(100)], 1e-3)}
    adding = [cost for cost in costs.values() if cost.models is None and cost.sampling is None]
    for place in range(0, len(adding) - 2, 3):
        mixture = [cost.repeat(count) for cost, count in zip(adding[place:], (1, 5, 12), strict=False)]
        yield f"mixture {place // 3}", account(mixture, 1e-3)
    for pair, k in itertools.product(("0.1,0", "0.3,1e-6", "1,1e-5"), (1, 10, 200)):
        made = {"simple": compose_simple(params(pair), k), "general": compose_general(params(pair), k, 1e-3)}
        made["optimal"] = compose_optimal(params(pair), k, 1e-2)
        yield f"composition of {k} times ({pair})", {name: [p.epsilon, p.delta] for name, p in made.items()}
    yield from data_dependent_costs()


def all_charges() -> Iterator[tuple[str, PrivacyCost]]:
    for epsilon in ("0.05", "0.5"):
        yield f"pure {epsilon}", PrivacyCost("pure", guarantee=PrivacyParams(epsilon), reached=1)
        yield f"pair ({epsilon}, 1e-6)", PrivacyCost("pair", guarantee=PrivacyParams(epsilon, "1e-6"))
        yield f"curve {epsilon}", PrivacyCost("curve", renyi=RenyiCurve.from_pure(float(epsilon)))
        yield (
            f"profile {epsilon}",
            PrivacyCost("profile", profile=PrivacyProfile.from_pair(PrivacyParams(epsilon, "1e-4"))),
        )
    for name, table in certified_tables():
        if "K = 5" in name or "K = 12" in name or "classes" in name:
            yield f"DaRRM, {name}", describe_cost(table)
    for K, overlap in ((8, 1), (30, 1), (30, 3), (9, None)):
        problem = Problem(Voters(K, NON_PRIVATE, overlap), params("0.5,1e-5"))
        yield f"DaRRM, non-private K = {K}, overlap {overlap}", describe_cost(certify(problem, rising(K)))
    models = Voters(7, params("0.5,1e-6"), 1, models=True)
    yield "DaRRM, models", describe_cost(certify(Problem(models, params("0.6,1e-5")), rising(7)))
    differing = Voters.of([params("0.1,0"), params("0.2,1e-6"), params("0.5,1e-6")])
    yield "DaRRM, differing", describe_cost(certify(Problem(differing, params("0.4,1e-5")), rising(3)))
    drawn = Voters(7, NON_PRIVATE, 1, sampled=Subsampling(Fraction("0.02")))
    yield "DaRRM, resampled", describe_cost(certify(Problem(drawn, params("0.1,1e-5")), rising(7)))
    for voters, classes in (
        (Voters(50, NON_PRIVATE, 1), 2),
        (Voters(50, NON_PRIVATE, 1), 10),
        (Voters(50, NON_PRIVATE, 3), 3),
        (Voters(50, params("1,1e-6"), 1, models=True), 3),
        (Voters(50, NON_PRIVATE, 1, sampled=Subsampling(Fraction(1, 50))), 2),
        (Voters(50, NON_PRIVATE, 2, sampled=Subsampling(Fraction(1, 50), "fixed", records=2)), 3),
    ):
        for name, mechanism in noisy_mechanisms(voters.reached).items():
            about = " models" if voters.models else " resampled" if voters.sampled else ""
            title = f"{name}, {classes} classes, overlap {voters.reached}{about}"
            yield title, NoisyMaximum(mechanism, voters, classes).privacy_cost()
    yield "GNMax, open set", NoisyMaximum(GNMax(4.0), Voters(50, NON_PRIVATE, 1), OPEN, threshold=30).privacy_cost()
    yield "ConfidentGNMax", ConfidentGNMax(30.0, 12.0, 4.0).privacy_cost()


def rising(K: int) -> NoiseFunction:
    return NoiseFunction(K, np.linspace(0.1, 1.0, K - K // 2))


def noisy_mechanisms(reached: int) -> dict[str, Any]:
    return {
        "GNMax": GNMax(6.0, reached=reached),
        "LNMax": LNMax(0.25, reached=reached),
        "exponential": ExponentialMechanism(0.5, reached=reached),
        "permute-and-flip": PermuteAndFlip(0.5, reached=reached),
        "asymmetric": AsymmetricMax(SHAPED, reached=reached),
    }


def describe_charge(cost: PrivacyCost) -> Value:
    value: Value = {"guarantee": None, "total": account([cost], 1e-3), "vanishing": cost.vanishing}
    if cost.guarantee is not None:
        value["guarantee"] = [cost.guarantee.epsilon_text, cost.guarantee.delta_text]
    if cost.renyi is not None:
        value["renyi"] = [cost.renyi.bound_at(order) for order in (1.5, 2.0, 8.0, 64.0)]
        value["converted"] = [cost.renyi.best(1e-5, conversion=how).epsilon for how in ("classic", "tight")]
    if cost.profile is not None:
        value["profile"] = [cost.profile.delta_at(epsilon) for epsilon in (0.0, 0.05, 0.2, 1.0)]
    return value


def account(costs: Sequence[PrivacyCost], delta: float) -> Value:
    """The total ε by every bound, also where kinds are chosen adaptively."""
    accountant = PrivacyAccountant(costs=costs)
    spent, adaptively = accountant.spent(delta), accountant.spent(delta, adaptive=True)
    bounds = {bound.name: bound.epsilon for bound in spent.bounds}
    return {"epsilon": spent.epsilon, "bounds": bounds, "adaptive": adaptively.epsilon}


def data_dependent_costs() -> Cases:
    rng = np.random.default_rng(7)
    votes = Votes.from_counts(rng.multinomial(250, [0.8, 0.1, 0.1], size=30))
    scores = rng.dirichlet([0.3, 0.3, 0.3], size=30)
    aggregators: dict[str, Any] = {
        "GNMax": GNMax(40.0),
        "LNMax": LNMax(0.05),
        "ConfidentGNMax": ConfidentGNMax(200.0, 50.0, 40.0),
        "InteractiveGNMax": InteractiveGNMax(100.0, 50.0, 40.0, confidence=0.9),
    }
    for name, aggregator in aggregators.items():
        for conversion in ("classic", "tight"):
            given = scores if name == "InteractiveGNMax" else None
            with warnings.catch_warnings(action="ignore", category=PrivateFigureWarning):  # the votes are made up
                made = analyze(votes, aggregator, 1e-5, scores=given, conversion=conversion)
                value: Value = {key: getattr(made, key) for key in ("epsilon", "order", "renyi", "charged")}
            value["answered"] = made.expected_answered
            value["independent"] = made.data_independent_epsilon
            value["worst_case"] = made.worst_case_epsilon
            yield f"PATE, {name}, {conversion}", value


def labels() -> Cases:
    with tempfile.TemporaryDirectory() as folder:
        for classes in (2, 3):
            answers = np.random.default_rng(1).integers(0, classes, (40, 12))
            forms = votes_in_all_forms(answers, classes, Path(folder))
            for name, mechanism in releasing(12, classes).items():
                for form, votes in forms.items():
                    if form.endswith("missing") and not isinstance(mechanism, Release | NoisyMaximum):
                        continue  # it takes complete votes only
                    drawn = mechanism.release(votes, rng=np.random.default_rng(5))
                    yield f"{name}, {classes} classes, {form}", {"labels": "".join(map(str, drawn.tolist()))}
        words = np.array(["ab", "cd", "ef", "gh"])[np.random.default_rng(2).integers(0, 4, (40, 12)) // 2 * 2]
        words[:, 0] = "zz"
        write_csv(Path(folder, "open.csv"), words)
        spoken = {
            "answers": Votes.from_answers(words),
            "numbers": Votes.from_answers([["ab", "cd"]] * 40, [[9, 3]] * 40),
            "csv": Votes.read(Path(folder, "open.csv"), classes=OPEN),
        }
        for name, mechanism in releasing(12, OPEN).items():
            for form, votes in spoken.items():
                drawn = mechanism.release(votes, rng=np.random.default_rng(5))
                yield f"{name}, open set, {form}", {"labels": " ".join(str(label) for label in drawn)}


def releasing(K: int, classes: Any) -> dict[str, Any]:
    voters = Voters(K, NON_PRIVATE, 1)
    problem = Problem(voters, params("0.8,1e-3"), classes)
    if classes == OPEN:
        noisy: dict[str, Any] = {"GNMax": GNMax(2.0), "LNMax": LNMax(0.8), "asymmetric": AsymmetricMax(SHAPED)}
        made = {name: NoisyMaximum(one, voters, OPEN, threshold=5) for name, one in noisy.items()}
        return {"optimal": Release(optimize_table(problem)), **made}
    mechanisms: dict[str, Any] = {"optimal": Release(optimize_table(problem))}
    if classes == 2:
        private = Problem.from_allowance(Voters(K, params("0.2,1e-5")), 3)
        for make in (baselines.subsampling, baselines.double_subsampling, baselines.best_randomized_response):
            mechanisms[make.__name__.removeprefix("best_")] = Release(certify(private, make(private)))
    for name, mechanism in noisy_mechanisms(1).items():
        mechanisms[name] = NoisyMaximum(mechanism, voters, classes)
    mechanisms["continuous GNMax"] = GNMax(2.0, noise="continuous")
    mechanisms["continuous LNMax"] = LNMax(0.5, noise="continuous")
    mechanisms["ConfidentGNMax"] = ConfidentGNMax(6.0, 2.0, 2.0)
    scores = np.random.default_rng(3).dirichlet(np.ones(classes), size=40)
    mechanisms["InteractiveGNMax"] = InteractiveGNMax(3.0, 2.0, 2.0, confidence=0.7).with_scores(scores)
    return mechanisms


def votes_in_all_forms(answers: Any, classes: int, folder: Path) -> dict[str, Votes]:
    """The same votes in memory and in files, as labels and as counts."""
    counts = np.stack([(answers == place).sum(axis=1) for place in range(classes)], axis=1)
    names = tuple("0123"[:classes])
    forms = {
        "labels": Votes.from_labels(answers, classes=classes),
        "names": Votes.from_labels(answers.astype(str), classes=names),
        "counts": Votes.from_counts(counts),
    }
    for layout, matrix in (("labels", answers), ("counts", counts)):
        paths = [folder / f"{layout}{classes}.{ending}" for ending in ("npy", "csv", "csv.gz", "parquet")]
        np.save(paths[0], matrix)
        write_csv(paths[1], matrix)
        paths[2].write_bytes(gzip.compress(paths[1].read_bytes()))
        columns = {f"column{place}": matrix[:, place] for place in range(matrix.shape[1])}
        parquet.write_table(pa.table(columns), paths[3])
        for path in paths:
            form = f"{layout} in {path.name.partition('.')[2]}"
            forms[form] = Votes.read(path, voters=answers.shape[1], classes=classes, layout=layout)
    absent = answers.astype(float)
    absent[::3, :2] = np.nan
    forms["labels, some missing"] = Votes.from_labels(absent, classes=classes, missing="coin")
    return forms


def write_csv(path: Path, matrix: Any) -> None:
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in matrix.tolist()), encoding="utf-8")


def ledgers() -> Cases:
    """Totals of ledgers after each debit of a sequence, for each composition mode; refusals too."""
    pure, pair = (PrivacyCost(text, guarantee=params(text), reached=1) for text in ("0.1,0", "0.2,1e-7"))
    yield from totals("pairs", [pair.repeat(count) for count in (3, 3, 3, 10, 90, 9000)])
    table = certify(Problem.from_allowance(Voters(5, params("0.05,1e-7")), 2), rising(5))
    yield from totals("table", [describe_cost(table, count) for count in (3, 10, 40, 200)])
    gnmax = NoisyMaximum(GNMax(20.0), Voters(50, NON_PRIVATE, 1), 3)
    yield from totals("GNMax", [gnmax.privacy_cost(count) for count in (1, 20, 200, 5000)])
    drawn = NoisyMaximum(LNMax(0.1), Voters(50, NON_PRIVATE, 1, sampled=Subsampling(Fraction("0.02"))), 3)
    yield from totals("resampled", [drawn.privacy_cost(count) for count in (1, 20, 200, 100_000)])
    models = Release(certify(Problem(Voters(7, params("0.3,1e-6"), 1, models=True), params("0.6,1e-5")), rising(7)))
    yield from totals("models", [models.privacy_cost(count) for count in (1, 5, 50)])
    open_set = NoisyMaximum(GNMax(4.0), Voters(50, NON_PRIVATE, 1), OPEN, threshold=30)
    yield from totals("open set", [open_set.privacy_cost(count) for count in (1, 5, 50)])
    several = [
        describe_cost(table, 4),
        gnmax.privacy_cost(9),
        pure.repeat(3),
        pair,
        gnmax.privacy_cost(90),
        pair.repeat(99),
    ]
    yield from totals("several", several)


def totals(name: str, costs: Sequence[PrivacyCost]) -> Cases:
    modes, budgets = ("one", "planned", "renyi", "adaptive"), ("2,1e-4", "6,1e-3")
    for mode, budget in itertools.product(modes, budgets):
        ledger = PrivacyLedger.create(":memory:", params(budget), composition=mode)
        value: Value = {"debits": [debit(ledger, cost) for cost in costs]}
        spent = ledger.spent
        value["spent"] = {key: getattr(spent, key) for key in ("epsilon", "delta", "bound", "queries")}
        value["bounds"] = {bound.name: bound.epsilon for bound in spent.bounds}
        value["entries"] = [[entry.number, entry.count, entry.delivered] for entry in ledger.entries()]
        yield f"{name}, {mode}, budget ({budget})", value


def debit(ledger: PrivacyLedger, cost: PrivacyCost) -> Any:
    """Debit a charge; return the total ε, or why it was refused."""
    try:
        ledger.debit(cost)
    except BudgetExceededError as error:
        return ["beyond the budget", error.queries_that_fit]
    except ValueError:
        return ["refused by the composition mode"]
    return ledger.spent.epsilon


def verdicts() -> Cases:
    with tempfile.TemporaryDirectory() as place:
        for folder, make in FOLDERS.items():
            honest = Path(place, folder)
            honest.mkdir()
            make(honest)
            yield folder, judge(honest)
            for lie, (name, tell) in enumerate(LIES.get(folder, {}).items()):
                changed = Path(shutil.copytree(honest, Path(place, f"{folder} {lie}")))
                tell(changed)
                yield f"{folder}: {name}", judge(changed)


def judge(folder: Path) -> Value:
    """Verify a folder; name the subject and the file of each false claim."""
    found = audit([folder])
    false = [f"{one.about}, {Path(one.file).name}" for one in found.verdicts if one.verdict == "false"]
    return {"status": found.status, "verdicts": found.counts, "false": sorted(false)}


def make_table(folder: Path) -> None:
    workload, _ = read_workload("K=5 each=0.2,1e-5 total=0.4,1e-4")
    optimize_table(workload.problem(workload.total)).save(folder / "table.json")


def make_majority(folder: Path) -> None:
    """A table, labels in two formats, a stream and their ledger; an older copy of the ledger is outside."""
    optimize_table(Problem.from_allowance(Voters(3, params("0.2,1e-5")), "1.5")).save(folder / "table.json")
    table, rng = Table.load(folder / "table.json"), np.random.default_rng(3)
    ledger = PrivacyLedger.create(folder / "ledger.sqlite", params("20,1e-2"), population="ward 7")
    release_debited(Release(table), rng.integers(0, 2, (20, 3)), ledger=ledger, output=folder / "labels.csv")
    shutil.copy(folder / "ledger.sqlite", folder.with_name("older.sqlite"))
    release_debited(Release(table), rng.integers(0, 2, (9, 3)), ledger=ledger, output=folder / "more.npy")
    with open_release(table, ledger) as release:
        answers = [release.answer(row) for row in rng.integers(0, 2, (24, 3))]
    (folder / "answers.csv").write_text("".join(f"{n},{label}\n" for n, label in enumerate(answers, 1)))


def make_optimal(line: str, folder: Path) -> None:
    workload, _ = read_workload(line)
    optimize_table(workload.problem(workload.total)).save(folder / "release.json")
    pay(folder, workload, "9,1e-3", "planned")


def make_planned(line: str, folder: Path) -> None:
    workload, _ = read_workload(line)
    plan(workload).save(folder / "release.json")
    pay(folder, workload, f"{workload.total.epsilon_text},{workload.total.delta_text}", "one")


def make_mechanism(mechanism: str, mode: str, folder: Path) -> None:
    workload, _ = read_workload("K=12 overlap=1 classes=3 queries=10 total=9,1e-3")
    NoisyMaximum(noisy_mechanisms(1)[mechanism], workload.voters, 3).save(folder / "release.json")
    pay(folder, workload, "9,1e-3", mode)


def pay(folder: Path, workload: Workload, budget: str, mode: str) -> None:
    release, rng = load_release(folder / "release.json"), np.random.default_rng(2)
    ledger = PrivacyLedger.create(folder / "ledger.sqlite", params(budget), composition=mode)
    for name, count in (("labels.csv", workload.queries - 3), ("more.csv", 3)):
        shares = np.full(workload.classes, 1 / workload.classes)
        votes = Votes.from_counts(rng.multinomial(workload.voters.K, shares, count))
        release_debited(release, votes, ledger=ledger, output=folder / name)


FOLDERS: dict[str, Callable[[Path], None]] = {
    "table": make_table,
    "majority": make_majority,
    "differing": partial(make_optimal, "each=0.1,0;0.2,1e-6;0.5,1e-6 queries=12 total=0.4,1e-5"),
    "plurality": partial(make_optimal, "K=5 overlap=1 classes=3 queries=10 total=0.5,1e-4"),
    **{
        name: partial(make_mechanism, name, mode)
        for name, mode in zip(noisy_mechanisms(1), ("renyi", "planned", "adaptive", "one", "renyi"), strict=True)
    },
    "plan": partial(make_planned, "K=8 overlap=1 queries=10 total=2,1e-5"),
    "plan of models": partial(make_planned, "K=5 each=0.5,1e-5 overlap=1 models queries=10 total=0.3,1e-4"),
}


def change(name: str, key: str, new: Callable[[Any], Any], folder: Path) -> None:
    """Change the first value with a key in a JSON file, and recompute the checksum of a table."""
    data = json.loads((folder / name).read_text())
    pending = [data]
    while key not in pending[0]:
        inner = pending.pop(0)
        pending += [value for value in inner.values() if isinstance(value, dict)]
    pending[0][key] = new(pending[0][key])
    if "checksum" in data:
        held = {field: data[field] for field in ("problem", "gamma", "weights") if field in data}
        text = json.dumps(held, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        data["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / name).write_text(json.dumps(data))


def rewrite(name: str, edit: Callable[[list[str]], list[str]], folder: Path) -> None:
    (folder / name).write_text("".join(edit((folder / name).read_text().splitlines(keepends=True))))


def flip(rows: list[str]) -> list[str]:
    first = rows[0].strip()
    return [f"{first[:-1]}{1 if first.endswith('0') else 0}\n", *rows[1:]]


def scaled(factor: float) -> Callable[[Any], Any]:
    return lambda old: repr(float(old) * factor) if isinstance(old, str) else old * factor


IN_LABELS: dict[str, Callable[[Path], object]] = {
    "a label turned": partial(rewrite, "labels.csv", flip),
    "a label less": partial(rewrite, "labels.csv", lambda rows: rows[:-1]),
    "a label more": partial(rewrite, "labels.csv", lambda rows: [*rows, rows[0]]),
    "a receipt with another count": partial(change, "labels.csv.receipt.json", "count", lambda old: old - 1),
    "no ledger": lambda folder: (folder / "ledger.sqlite").unlink(),
}
LIES: dict[str, dict[str, Callable[[Path], object]]] = {
    "table": {
        "a larger gamma": partial(change, "table.json", "gamma", lambda old: [*old[:-1], min(1.0, old[-1] + 0.1)]),
        "a larger first gamma": partial(change, "table.json", "gamma", lambda old: [old[0] * 1.01, *old[1:]]),
        "a smaller gamma": partial(change, "table.json", "gamma", lambda old: [value / 2 for value in old]),
        "a smaller worst cost": partial(change, "table.json", "worst_cost", scaled(0.5)),
        "fewer rows": partial(change, "table.json", "rows", lambda old: old - 1),
        "a better value": partial(change, "table.json", "value", scaled(0.9)),
        "a better bound": partial(change, "table.json", "bound", scaled(1.1)),
        "a smaller target": partial(change, "table.json", "target", lambda old: {**old, "epsilon": "0.3"}),
    },
    "majority": {
        **IN_LABELS,
        "an older ledger": lambda folder: shutil.copy(folder.with_name("older.sqlite"), folder / "ledger.sqlite"),
        "another table": make_table,
        "an answer turned": partial(rewrite, "answers.csv", flip),
        "answers backwards": partial(rewrite, "answers.csv", lambda rows: rows[::-1]),
    },
    "plurality": {
        "a smaller worst cost": partial(change, "release.json", "worst_cost", scaled(0.5)),
        "a smaller target": partial(change, "release.json", "target", lambda old: {**old, "epsilon": "0.3"}),
        "a label turned": partial(rewrite, "labels.csv", flip),
    },
    "GNMax": {
        "less noise": partial(change, "release.json", "sigma", scaled(0.5)),
        "a larger overlap": partial(change, "release.json", "overlap", lambda old: old + 1),
        "no receipts": lambda folder: list(map(Path.unlink, folder.glob("*.receipt.json"))),
    },
    "permute-and-flip": {"a larger epsilon": partial(change, "release.json", "epsilon", scaled(2.0))},
    "plan": {
        "more queries": partial(change, "release.json", "queries", lambda old: old + 1),
        "less spent": partial(change, "release.json", "spent", lambda old: {**old, "epsilon": 1.0}),
        "a smaller error": partial(change, "release.json", "expected_error", scaled(0.9)),
        "more right": partial(change, "release.json", "accuracy", lambda old: {**old, "value": 0.99}),
    },
}

VOLATILE = {
    "created",
    "entry_hash",
    "identity",
    "ledger_digest",
    "made",
    "seconds",
    "sha256",
    "size",
    "time",
    "token",
    "versions",
}


def commands() -> Cases:
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        rng = np.random.default_rng(4)
        for name, queries in (("votes.csv", 12), ("more.csv", 7)):  # of unanimous voters the label is certain
            write_csv(Path(name), rng.integers(0, 2, (queries, 1)).repeat(5, axis=1))
        write_csv(Path("counts.csv"), rng.multinomial(250, [0.7, 0.2, 0.1], size=20))
        waiting = PrivacyLedger.create("waiting.sqlite", params("9,1e-3"))  # its labels are paid for and not delivered
        waiting.debit(PrivacyCost("pair", guarantee=params("0.2,1e-6"), count=3), labels=np.array([0, 1, 1]))
        for words in lines("commands"):
            out = io.StringIO()
            with redirect_stdout(out):
                status = run_darrm([*words.split(), "--format", "json", "--quiet"])
            yield words, {"status": status, "json": shortened(json.loads(out.getvalue().replace(f"{folder}/", "")))}


def shortened(value: Any) -> Any:
    """Leave out prose and what differs between two runs, and summarize long lists of numbers."""
    if isinstance(value, dict):
        return {key: shortened(inner) for key, inner in value.items() if key not in VOLATILE}
    if isinstance(value, list) and len(value) > 12 and all(isinstance(inner, int | float) for inner in value):
        return {"length": len(value), "first": value[0], "last": value[-1], "sum": sum(value)}
    if isinstance(value, list):
        return [shortened(inner) for inner in value]
    return "(prose)" if isinstance(value, str) and value.count(" ") > 3 else value


KINDS: dict[str, Callable[[], Cases]] = {
    "tables": tables,
    "costs": costs,
    "labels": labels,
    "ledgers": ledgers,
    "verdicts": verdicts,
    "commands": commands,
    "plans": plans,
}
