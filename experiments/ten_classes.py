"""Ten classes: teachers that are private by themselves, and every release of their plurality at one budget a label.

    python -m experiments.ten_classes --train mnist --output docs/reproduction   # train, keep the votes, count
    python -m experiments.ten_classes --output docs/reproduction                 # count the kept votes again

Writes OUTPUT/ten_classes/NAME-votes.npz and NAME-training.json (training alone), NAME.json (computed from the
votes), and OUTPUT/ten_classes.md from the JSON. Models and checkpoints stay in the folder of --models. MNIST and
Fashion-MNIST are downloaded, or read from the folder that DARRM_DATA_DIR names.

A teacher is a linear layer on fixed edge maps, which need no training and look at one image alone. The convolutional
network of the two-class experiment, with all weights trained, is worse at this small ε: at 0.2, the best of six
settings, its teachers were right on 0.68 and 0.55 of the held-out training images of MNIST and Fashion-MNIST, these on
0.76 and 0.71.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from darrm.commands.command_line import run
from darrm.loss.composition import compose_general, compose_optimal
from darrm.optimize.optimizer import optimize_table
from darrm.plan.accuracy import Law
from darrm.plan.calibration import calibrate
from darrm.plan.mechanisms import named
from darrm.plurality.plurality_law import PluralityLaw
from darrm.priors import Dirichlet
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters, Workload
from darrm.training.calibration import calibrate_noise, privacy_of
from darrm.training.network import Module, Tensor
from darrm.training.recipes import PlainSGD, PrivateSGD, Recipe
from darrm.util import checks
from darrm.votes import Votes
from experiments import pages
from experiments.aggregators.settings import NAMES as RELEASES
from experiments.composition_tables import DELTA_PRIME, NAMES, QUERIES, K
from experiments.datasets import ALL_CLASSES, LabeledImages, load
from experiments.knowledge_transfer.selection import held_out, score
from experiments.pages import Row, read_json
from experiments.teachers import Machine, TeacherVotes, Training, obtain_votes

NAME = "ten_classes"
CLASSES = 10
DELTA = "1e-5"  # δ of one teacher
ALLOWANCES = (1, 2, 3, 5)  # m: one label may cost what m teachers cost
DRAWN = {2: 5, 3: 5}  # m: voters that the best law is found for; six did not end in ten minutes
TRAININGS = 3
BELIEF = Dirichlet(0.1)  # about the votes, fixed before any were counted: most voters agree
SAMPLING_RATE, STEPS, CLIP = 0.125, 40, 1.0  # of DP-SGD; 682 images a step, few enough for sums that are exact enough
PLAIN_TRAINING = PlainSGD(8.0, 10, 32)  # of three tried on held-out images; one twice as long gained up to 0.3 %
TRIED_EPSILONS, TRIED_RATES = ("0.1", "0.125", "0.15", "0.2"), (2.0, 4.0, 8.0)
ENOUGH = 0.7  # share of right answers of one teacher on held-out training images, from which on it counts as useful
HELD_OUT, SELECTION_SEED = 1 / 12, 101  # of the training images: 5,000; no training of the experiment has this seed
POOL, DIRECTIONS = 4, 8
SOBEL = ((1.0, 0.0, -1.0), (2.0, 0.0, -2.0), (1.0, 0.0, -1.0))

PLAIN = Voters(K, PrivacyParams("inf"), overlap=1)
BEST_OF_PLAIN, BEST_OF_PRIVATE = "best law for plain voters", "best law for drawn private voters"
SUBSAMPLING, BARE, ONE_TEACHER = "sub-sampling", "no noise", "one teacher"
NEED_PRIVATE = {SUBSAMPLING, BEST_OF_PRIVATE}  # their guarantee rests on the teachers' own privacy
SLUGS = ("permute-and-flip", "exponential", "gnmax", "gnmax-analytic")
FAMILIES = tuple(RELEASES.get(slug, slug) for slug in SLUGS)


@dataclass(frozen=True)
class Setup:
    """What differs between data sets: the least ε of `TRIED_EPSILONS` with which teachers are useful, and the rate."""

    epsilon: str
    rate: float

    @property
    def each(self) -> PrivacyParams:
        """The guarantee of every private teacher."""
        return PrivacyParams(self.epsilon, DELTA)

    def target(self, m: int) -> PrivacyParams:
        """Return the target of one label: the cost of m teachers together; a person may influence all of them."""
        return Problem.from_allowance(Voters(K, self.each), m).target


SETUPS = {
    "mnist": Setup("0.15", 8.0),
    "fashion-mnist": Setup("0.2", 8.0),
    "digits": Setup("4", 4.0),  # 130 images a teacher: a demonstration that needs no download
}


class EdgeMap(nn.Module):  # type: ignore[misc]
    """The strength of edges in 8 directions in squares of 4 × 4 pixels, less their mean, scaled to length 1."""

    def __init__(self) -> None:
        super().__init__()
        across = torch.tensor(SOBEL)
        angles = torch.arange(DIRECTIONS) * (2.0 * torch.pi / DIRECTIONS)
        kernels = [torch.cos(angle) * across + torch.sin(angle) * across.T for angle in angles]
        self.register_buffer("kernels", torch.stack(kernels).unsqueeze(1))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, 1, side, side) images to (B, 8·(side/4)²) vectors."""
        edges = torch.relu(nn.functional.conv2d(x, self.kernels, padding=1))
        strength = nn.functional.avg_pool2d(edges, POOL).flatten(1)
        centered = strength - strength.mean(dim=1, keepdim=True)
        return nn.functional.normalize(centered, dim=1)


def edge_network(side: int = 28, classes: int = CLASSES) -> Module:
    """Make the network: fixed edge maps, and a linear layer that starts at 0.

    >>> sum(parameter.numel() for parameter in edge_network().parameters())
    3930
    """
    last = nn.Linear(DIRECTIONS * (side // POOL) ** 2, classes)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(EdgeMap(), last)


def private_recipe(each: PrivacyParams, rate: float) -> PrivateSGD:
    """Calibrate the noise of DP-SGD to the guarantee of one teacher."""
    noise = calibrate_noise(each, sampling_rate=SAMPLING_RATE, steps=STEPS).value
    return PrivateSGD(learning_rate=rate, steps=STEPS, sampling_rate=SAMPLING_RATE, noise=noise, clip=CLIP)


def training_of(data: LabeledImages, recipe: Recipe, seed: int) -> Training:
    """Return the training of K teachers, on other shards than the other trainings."""
    return Training(K, seed, recipe, partial(edge_network, side=data.train_x.shape[-1]), seed)


def train(data: LabeledImages, trainings: int, machine: Machine) -> tuple[TeacherVotes, Row]:
    """Train teachers with and without DP-SGD, each time on other shards, and ask them about the test images.

    The votes of a training that was run before are read again. Returns the votes, and how the teachers were trained.
    """
    setup = SETUPS[data.name]
    recipe = private_recipe(setup.each, setup.rate)
    private, plain = ([training_of(data, how, seed) for seed in range(trainings)] for how in (recipe, PLAIN_TRAINING))
    votes, seconds = obtain_votes(data, private, plain, machine)
    spent = privacy_of(recipe, setup.each.delta)
    return votes, {
        "dataset": data.name,
        "trainings": trainings,
        "images": len(data.train_y) // K,
        "spent": {"epsilon": spent.epsilon, "delta": spent.delta},
        "drawn": [drawn(recipe, setup.target(m).delta, m) for m in DRAWN],
        "private_training": recipe.to_dict(),
        "plain_training": PLAIN_TRAINING.to_dict(),
        "seconds": seconds,
    }


def drawn(recipe: PrivateSGD, delta: float, m: int) -> Row:
    """Bound ε of each of the sampled teachers, at the δ at which all of them together meet the target of a label."""
    voters = DRAWN[m]
    each = float(f"{-math.expm1(math.log1p(-delta) / voters) * (1.0 - 1e-5):.6g}")  # surely rounded down
    return {"m": m, "voters": voters, "epsilon": privacy_of(recipe, each).epsilon, "delta": each}


def select(data: LabeledImages, machine: Machine) -> list[Row]:
    """Try every ε and learning rate on a split of the training data; no test image is read."""
    split = held_out(data, HELD_OUT)
    rows = []
    for epsilon, rate in product(TRIED_EPSILONS, TRIED_RATES):
        each = PrivacyParams(epsilon, DELTA)
        trainings = [training_of(data, private_recipe(each, rate), SELECTION_SEED)]
        rows.append({"epsilon": each.epsilon, **score(data, split, trainings, machine)})
        print(rows[-1], flush=True)
    return rows


def plurality(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Answer with a class that has the most votes, one of several at random: a law without noise, (n, C) → (n, C).

    >>> plurality(np.array([[5, 5, 1]])).tolist()
    [[0.5, 0.5, 0.0]]
    """
    leads = counts == counts.max(axis=1, keepdims=True)
    return np.asarray(leads / leads.sum(axis=1, keepdims=True))


def of_sample(law: Law, m: int) -> Law:
    """Apply a law to the votes of m voters drawn without replacement: the label is as private as that of any m voters.

    The divergence of a mixture is at most the mixture of the divergences (joint convexity).

    >>> of_sample(plurality, 1)(np.array([[3, 1, 0]])).tolist(), of_sample(plurality, 3)(np.array([[2, 1, 0]])).tolist()
    ([[0.75, 0.25, 0.0]], [[1.0, 0.0, 0.0]])
    """

    def probabilities(counts: NDArray[np.int64]) -> NDArray[np.float64]:
        voters, classes = int(counts[0].sum()), counts.shape[1]
        labels = combinations_with_replacement(range(classes), m)
        samples = np.array([np.bincount(sample, minlength=classes) for sample in labels])
        answers = law(samples)
        choose = np.array([[math.comb(of, some) for some in range(m + 1)] for of in range(voters + 1)], dtype=float)
        chances = [choose[row, samples].prod(axis=1) @ answers for row in counts]
        return np.asarray(chances) / math.comb(voters, m)

    return probabilities


def best_for_private(target: PrivacyParams, drawn: Row) -> PluralityLaw:
    """Find and prove the best law for a few private voters of ten classes, of those that lose no δ themselves.

    An (ε, Δ)-private voter is ε-private with probability 1 − Δ, whatever it does else [KOV15]: so the label loses the
    δ with which one of the voters is not. ``drawn`` has their number and the ε of each.
    """
    voters = Voters(drawn["voters"], PrivacyParams(str(drawn["epsilon"])))
    table = optimize_table(Problem(voters, PrivacyParams(target.exact_epsilon), CLASSES), prior=BELIEF)
    return cast("PluralityLaw", table.law)


def laws(setup: Setup, m: int, drawn: Row | None) -> Iterator[tuple[str, Law, Row]]:
    """Make every release whose label may cost as much as m teachers: its name, its law and its numbers.

    ``drawn`` describes the teachers that the best law for private voters asks; None without such a law.
    """
    target = setup.target(m)
    yield SUBSAMPLING, of_sample(plurality, m), {}
    if drawn is not None:
        law = best_for_private(target, drawn)
        yield BEST_OF_PRIVATE, of_sample(law.probabilities, law.K), {**drawn, "weights": law.to_json()}
    best = optimize_table(Problem(PLAIN, target, CLASSES), prior=BELIEF)
    yield BEST_OF_PLAIN, best.law.probabilities, {}
    for slug, name in zip(SLUGS, FAMILIES, strict=True):
        found = calibrate(Workload(PLAIN, 1, target, CLASSES), named(slug))
        yield name, cast("Law", found.law), dict(found.settings)


def shares_right(votes: NDArray[np.int8], truth: NDArray[np.int64], law: Law) -> list[float]:
    """Compute how often a law that treats classes alike answers with the true class, for each of T trainings.

    The law is asked about sorted histograms; its probabilities are averaged, and nothing is drawn.

    >>> votes = np.array([[[2, 2, 2], [0, 0, 1]]], dtype=np.int8)
    >>> shares_right(votes, np.array([2, 1]), lambda counts: counts / 3)
    [0.6666666666666666]
    """
    shares = []
    for labels in votes:
        counts = Votes.of_labels(labels, CLASSES).counts
        histograms, which = np.unique(-np.sort(-counts, axis=1), axis=0, return_inverse=True)
        votes_for_truth = counts[np.arange(len(counts)), truth]
        place = np.argmax(histograms[which] == votes_for_truth[:, None], axis=1)  # the first with as many votes
        shares.append(float(np.mean(law(histograms)[which, place])))
    return shares


def summary(shares: Sequence[float]) -> Row:
    """Return the mean over trainings and its standard error.

    >>> summary([0.5, 0.7])
    {'mean': 0.6, 'standard_error': 0.1}
    """
    error = float(np.std(shares, ddof=1)) / math.sqrt(len(shares)) if len(shares) > 1 else None
    return {"mean": round(float(np.mean(shares)), 9), "standard_error": None if error is None else round(error, 9)}


def rows(votes: TeacherVotes, setup: Setup, drawn: dict[int, Row]) -> Iterator[Row]:
    """Count how often every release is right: first what needs no budget, then for each m.

    A release is counted on the private teachers' votes, and on the others' unless it rests on the former's privacy.
    """
    releases = [(None, ONE_TEACHER, of_sample(plurality, 1), None), (None, BARE, plurality, None)]
    released = ((m, *release) for m in ALLOWANCES for release in laws(setup, m, drawn.get(m)))
    for m, name, law, facts in (*releases, *released):
        row = {"m": m, "name": name, "private": summary(shares_right(votes.private, votes.truth, law))}
        row["plain"] = None if name in NEED_PRIVATE else summary(shares_right(votes.plain, votes.truth, law))
        yield row if facts is None else row | {"facts": facts}


def sums(setup: Setup) -> Iterator[Row]:
    """Compare the sums over questions with the caps for models, at the δ of the sums."""
    for m, queries in product(ALLOWANCES, QUERIES):
        label = setup.target(m)
        delta = compose_general(label, queries, DELTA_PRIME).delta
        added, cap = compose_optimal(label, queries, delta), compose_optimal(setup.each, K, delta)
        yield {"m": m, "queries": queries, "delta": delta, "sum": added.epsilon, "cap": cap.epsilon}


def counted(folder: Path, name: str) -> Row:
    """Count the kept votes of one data set."""
    votes, setup = TeacherVotes.load(folder / f"{name}-votes.npz"), SETUPS[name]
    drawn = {entry["m"]: entry for entry in read_json(folder / f"{name}-training.json")["drawn"]}
    return {
        "dataset": name,
        "questions": len(votes.truth),
        "each": {"epsilon": setup.each.epsilon, "delta": setup.each.delta},
        "labels": [{"m": m, "epsilon": setup.target(m).epsilon, "delta": setup.target(m).delta} for m in ALLOWANCES],
        "rows": list(rows(votes, setup, drawn)),
        "sums": list(sums(setup)),
    }


def page(folder: Path) -> str:
    """Fill the page from the results, with the teachers' training and selection, of every data set in a folder."""
    results = pages.read_results(folder, SETUPS)
    sets = [
        result
        | {
            "name": NAMES[name],
            "training": read_json(folder / f"{name}-training.json"),
            "selection": read_json(path) if (path := folder / f"{name}-selection.json").exists() else [],
            "tables": [_table(result, m) for m in ALLOWANCES],
            "bare": [row for row in result["rows"] if row["m"] is None],
        }
        for name, result in results.items()
    ]
    one, together = (
        [row["private"]["mean"] for result in sets for row in result["rows"] if row["name"] == name]
        for name in (ONE_TEACHER, BARE)
    )
    leads = {
        "plain": [lead for kind in ("private", "plain") for lead in _leads(sets, kind, BEST_OF_PLAIN, set(FAMILIES))],
        "private": list(_leads(sets, "private", BEST_OF_PRIVATE, {SUBSAMPLING})),
        "sampled": list(_leads(sets, "private", SUBSAMPLING, {BEST_OF_PLAIN, *FAMILIES})),
    }
    facts = {
        "sets": sets,
        "pairs": ", ".join(f"{alone:.4f} and {most:.4f}" for alone, most in zip(one, together, strict=True)),
        "is_better": all(alone < most for alone, most in zip(one, together, strict=True)),
        "leads": {name: _least(found) for name, found in leads.items()},
    }
    return pages.filled(NAME, facts, {"enough": ENOUGH, "K": K, "belief": BELIEF.text})


def _table(result: Row, m: int) -> Row:
    """Take the rows of one m, the rightest on private votes first."""
    rows = [row for row in result["rows"] if row["m"] == m]
    sigmas = {row["name"]: row["facts"]["sigma"] for row in rows if "sigma" in row["facts"]}
    return {
        "m": m,
        "label": next(entry for entry in result["labels"] if entry["m"] == m),
        "rows": sorted(rows, key=lambda row: -row["private"]["mean"]),
        "drawn": next((row["facts"] for row in rows if row["name"] == BEST_OF_PRIVATE), None),
        "sigmas": ", ".join(f"{name} {sigma:.2f}" for name, sigma in sigmas.items()),
    }


def _leads(sets: Sequence[Row], kind: str, name: str, others: set[str]) -> Iterator[tuple[float, str]]:
    """Yield by how much a release leads every other one on one kind of teachers' votes, and where."""
    for result in sets:
        ours = {row["m"]: row[kind]["mean"] for row in result["rows"] if row["name"] == name}
        for row in result["rows"]:
            if row["name"] in others and row["m"] in ours:
                where = f"{row['name']}, {result['name']}, m = {row['m']}, {kind} teachers"
                yield ours[row["m"]] - row[kind]["mean"], where


def _least(leads: Sequence[tuple[float, str]]) -> Row:
    """Count the leads that are not negative, and name the least."""
    least, where = min(leads)
    positive = sum(lead >= 0.0 for lead, _ in leads)
    return {"holds": least >= 0.0, "positive": positive, "all": len(leads), "least": least, "where": where}


def main(arguments: Sequence[str] | None = None) -> int:
    """Select or train if asked to, count the kept votes, write the page."""
    parser = pages.command_line(NAME, __doc__)
    parser.add_argument("--select", choices=SETUPS, metavar="NAME", help="try every ε and learning rate first")
    parser.add_argument("--train", choices=SETUPS, metavar="NAME", help="train teachers on these images, keep votes")
    parser.add_argument("--trainings", type=int, default=TRAININGS, help="with other seeds (default %(default)s)")
    parser.add_argument("--models", type=Path, default=Path("results") / NAME, help="for checkpoints and models")
    parser.add_argument("--jobs", type=int, default=1, help="processes for the training (default 1)")
    options = parser.parse_args(arguments)
    checks.integer_at_least(1, jobs=options.jobs, trainings=options.trainings)
    folder = pages.data_folder(options, NAME)
    machine = Machine(options.jobs, "cpu", progress=True, folder=options.models)
    if options.select is not None:
        found = select(load(options.select, ALL_CLASSES), machine)
        pages.write_json(folder / f"{options.select}-selection.json", found)
    if options.train is not None:
        votes, facts = train(load(options.train, ALL_CLASSES), options.trainings, machine)
        votes.save(folder / f"{options.train}-votes.npz")
        pages.write_json(folder / f"{options.train}-training.json", facts)
    for name in () if options.page else SETUPS:
        if (folder / f"{name}-votes.npz").exists():
            pages.write_json(folder / f"{name}.json", counted(folder, name))
    return pages.finish(folder, page(folder))


if __name__ == "__main__":
    sys.exit(run(main))
