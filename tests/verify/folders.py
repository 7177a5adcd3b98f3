"""Make folders of honest files, as a user of the library publishes them."""

import json
import warnings
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from darrm import (
    NoiseFunction,
    PrivacyLedger,
    PrivacyParams,
    Problem,
    Voters,
    Votes,
    Workload,
    certify,
    open_release,
    optimize_table,
    release_debited,
)
from darrm.aggregator import load_release
from darrm.ledger.chain import new_signing_key
from darrm.optimize.plurality import optimize_plurality
from darrm.pate import ConfidentGNMax, analyze, sanitize
from darrm.pate.gnss import rules_of_thumb
from darrm.pate.vote_scale import publication_rule
from darrm.priors import Dirichlet
from darrm.subsampling import Subsampling
from tests.planned import made_of

NON_PRIVATE = PrivacyParams("inf")
# neither one model of ε = 1 nor ten labels fit the total of the models without the joint bound
MODELS = Voters(11, PrivacyParams("1", "1e-6"), overlap=1, models=True)
WORKLOADS = {
    "plan": Workload(Voters(11, NON_PRIVATE, overlap=1), 20, PrivacyParams(3, "1e-4")),
    "models": Workload(MODELS, 10, PrivacyParams("0.6", "1e-5")),
    "three classes": Workload(Voters(12, NON_PRIVATE, overlap=1), 10, PrivacyParams(4, "1e-4"), classes=3),
}
# mechanisms of three classes, and compositions of their ledgers
MECHANISMS = {
    "gnmax": ("gnmax", "renyi"),
    "lnmax": ("lnmax", "planned"),
    "shaped": ("asymmetric", "planned"),
    "exponential": ("exponential", "adaptive"),
    "flip": ("permute-and-flip", "one"),
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
REQUIRED_LIBRARIES = {"parquet": "pyarrow", "nested": "pyarrow", "signed": "cryptography", "card": "sklearn"}


def release_files(folder: Path, file: str, sizes: dict[str, int], budget: PrivacyParams, **settings: Any) -> None:
    """Release labels of random votes, paid by a new ledger."""
    release = load_release(folder / file)
    ledger = PrivacyLedger.create(folder / "ledger.sqlite", budget, **settings)
    rng, C = np.random.default_rng(2), release.classes
    for name, queries in sizes.items():
        votes = Votes.from_counts(rng.multinomial(release.voters.K, [1 / C] * C, queries))
        release_debited(release, votes, ledger=ledger, output=folder / name if name else None)


def make_majority(folder: Path) -> None:
    """Make a table of private voters, two files of labels and a numbered stream, all paid by one ledger."""
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.2", "1e-5")), "1.5")
    optimize_table(problem, prior=Dirichlet()).save(folder / "table.json")
    sizes = {"labels.csv": 20, "more.npy": 20}  # too many for changed labels to be others of the stream by chance
    release_files(folder, "table.json", sizes, PrivacyParams(20, "1e-2"), population="ward 7")
    votes = np.random.default_rng(3).integers(0, 2, (24, 3))
    with open_release(load_release(folder / "table.json"), PrivacyLedger(folder / "ledger.sqlite")) as release:
        answers = [release.answer(row) for row in votes]
    (folder / "answers.csv").write_text("".join(f"{n},{label}\n" for n, label in enumerate(answers, 1)))


def make_plan(workload: Workload, mechanism: str, composition: str, folder: Path) -> None:
    """Make a plan, and labels in two debits."""
    made_of(workload, mechanism, Dirichlet()).save(folder / "plan.json")
    total = workload.total if composition in {"one", "planned"} else PrivacyParams(40, "1e-2")
    sizes = {"labels.csv": workload.queries - 3, "more.csv": 3}
    release_files(folder, "plan.json", sizes, total, composition=composition, population="ward 7")


def make_plurality(folder: Path) -> None:
    """Make a plan of three classes by a table, with labels, and an unused table of private voters."""
    make_plan(WORKLOADS["three classes"], "rdp-optimal", "planned", folder)
    problem = Problem(Voters(3, PrivacyParams("0.5")), PrivacyParams("0.8"), classes=3)
    optimize_plurality(problem).save(folder / "unused.json")


def make_resampled(classes: int, mechanism: str, sampling: Subsampling, folder: Path) -> None:
    voters = Voters(8, NON_PRIVATE, sampling.records, sampled=sampling)
    make_plan(Workload(voters, 20, PrivacyParams(2, "1e-5"), classes=classes), mechanism, "one", folder)


def make_different_voters(folder: Path) -> None:
    voters = Voters.of([PrivacyParams("0.1"), PrivacyParams("0.2", "1e-6"), PrivacyParams("0.5", "1e-6")])
    certify(Problem(voters, PrivacyParams("0.4", "1e-5")), NoiseFunction(3, [0.2, 0.4])).save(folder / "table.json")
    release_files(folder, "table.json", {"labels.csv": 12}, PrivacyParams(9, "1e-3"))


def make_signed(folder: Path) -> None:
    """Make three signed entries, with labels of two; the public key is hidden."""
    certify(Problem.from_allowance(Voters(3, PrivacyParams("0.02")), 3), NoiseFunction(3, [0, 0.05])).save(
        folder / "table.json"
    )
    new_signing_key(folder / ".signer.key")
    sizes = {"labels.csv": 5, "more.csv": 5, "": 5}
    release_files(folder, "table.json", sizes, PrivacyParams(9, "1e-2"), signing_key=folder / ".signer.key")


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
    release_partitions(load_release(folder / "table.json"), folder / ".votes", ledger=ledger, output=folder / "labels")


def make_figures(folder: Path) -> None:
    """Make published figures of PATE: on the scale of votes, and by smooth sensitivity without and with safety."""
    rng, aggregator = np.random.default_rng(0), ConfidentGNMax(180, 60, 30)
    votes = Votes.from_counts(rng.multinomial(250, [0.8, 0.1, 0.1], 20))
    answered = aggregator.release(votes, rng=rng) >= 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        analysis = analyze(votes, aggregator, 1e-5, answered=answered)
    for name, parameters in (
        ("scale", publication_rule(1.0, 1e-5, safety=1.0)),
        ("smooth", rules_of_thumb(1.0, 1e-5)),
        ("safe", rules_of_thumb(1.0, 1e-5, safety=1.5)),
    ):
        (folder / f"{name}.json").write_text(json.dumps(sanitize(analysis, parameters, rng=rng).to_json()))


def make_card(folder: Path) -> None:
    """Make the model card of an estimator that answered four of ten queries, and its ledger."""
    from sklearn.dummy import DummyClassifier

    from darrm.estimators import PrivateVotingClassifier

    X, y = np.arange(120.0)[:, None], np.arange(120) % 2
    ledger = folder / "ledger.sqlite"
    settings: dict[str, Any] = {"n_teachers": 30, "epsilon": 2, "delta": 1e-5, "max_queries": 10, "classes": 2}
    estimator = PrivateVotingClassifier(DummyClassifier(), ledger=ledger, **settings)
    estimator.fit(X, y).predict(X[:4])
    (folder / "card.md").write_text(estimator.to_model_card(), encoding="utf-8")


FOLDERS: dict[str, Callable[[Path], None]] = {
    "majority": make_majority,
    "plan": partial(make_plan, WORKLOADS["plan"], "rdp-optimal", "one"),
    "models": partial(make_plan, WORKLOADS["models"], "rdp-optimal", "one"),
    "plurality": make_plurality,
    **{name: partial(make_plan, WORKLOADS["three classes"], *how) for name, how in MECHANISMS.items()},
    **{name: partial(make_resampled, *how) for name, how in RESAMPLED.items()},
    "differing": make_different_voters,
    "signed": make_signed,
    "parquet": partial(make_parquet, ("a.parquet", "b.parquet")),
    "nested": partial(make_parquet, ("year=1/a.parquet", "year=2/a.parquet")),
    "figures": make_figures,
    "card": make_card,
}
