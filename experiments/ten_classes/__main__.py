"""Ten classes: teachers that are private by themselves, and every release of their plurality at one budget a label.

    python -m experiments.ten_classes --train mnist --output docs/reproduction   # train, keep the votes, count
    python -m experiments.ten_classes --output docs/reproduction                 # count the kept votes again

Writes OUTPUT/ten_classes/NAME-votes.npz and NAME-training.json (training alone), NAME.json (computed from the
votes), and OUTPUT/ten_classes.md from the JSON. Models and checkpoints stay in the folder of --models. MNIST and
Fashion-MNIST are downloaded, or read from the folder that DARRM_DATA_DIR names.
"""

import sys
from collections.abc import Iterator, Sequence
from operator import lt
from pathlib import Path

from darrm.commands.command_line import run
from darrm.util import checks
from experiments import pages
from experiments.command_line import CommandLine
from experiments.composition_tables import NAMES
from experiments.datasets import ALL_CLASSES, load
from experiments.pages import Claim, Row, claims_table, filled, read_json
from experiments.teachers import Machine
from experiments.ten_classes.comparison import (
    ALLOWANCES,
    BARE,
    BELIEF,
    BEST_OF_PLAIN,
    BEST_OF_PRIVATE,
    ENOUGH,
    FAMILIES,
    ONE_TEACHER,
    SETUPS,
    SUBSAMPLING,
    TRAININGS,
    K,
    KeptVotes,
    rows,
    sums,
)
from experiments.ten_classes.teachers import select, train


def read(folder: Path) -> list[Row]:
    """Read the results, with the teachers' training and selection, of every data set in a folder."""
    results = []
    for name in SETUPS:
        if (folder / f"{name}.json").exists():
            tried = folder / f"{name}-selection.json"
            facts = {"training": read_json(folder / f"{name}-training.json")}
            facts["selection"] = read_json(tried) if tried.exists() else []
            results.append(read_json(folder / f"{name}.json") | facts)
    if not results:
        raise ValueError(f"{folder} holds no results: run --train mnist first")
    return results


def page(results: Sequence[Row]) -> str:
    """Fill the template."""
    sets = [
        result
        | {
            "name": NAMES[result["dataset"]],
            "tables": [_table(result, m) for m in ALLOWANCES],
            "bare": [row for row in result["rows"] if row["m"] is None],
        }
        for result in results
    ]
    facts = {"sets": sets, "claims": claims_table(decide(results)), "enough": ENOUGH, "K": K, "belief": BELIEF.text}
    return filled("ten_classes", facts)


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


def decide(results: Sequence[Row]) -> list[Claim]:
    """Decide the claims of the page."""
    one, most = (
        [row["private"]["mean"] for result in results for row in result["rows"] if row["name"] == name]
        for name in (ONE_TEACHER, BARE)
    )
    measured = ", ".join(f"{alone:.4f} and {together:.4f}" for alone, together in zip(one, most, strict=True))
    best = [lead for kind in ("private", "plain") for lead in _leads(results, kind, BEST_OF_PLAIN, set(FAMILIES))]
    drawn = list(_leads(results, "private", BEST_OF_PRIVATE, {SUBSAMPLING}))
    sampled = list(_leads(results, "private", SUBSAMPLING, {BEST_OF_PLAIN, *FAMILIES}))
    return [
        Claim(
            "the plurality of private teachers is right more often than one of them", measured, all(map(lt, one, most))
        ),
        _claim("of plain voters the best law is right at least as often as every other release", best),
        _claim("of private voters the best law for five drawn ones is right more often than sub-sampling", drawn),
        _claim("sub-sampling, which uses that teachers are private, beats whatever counts them as plain", sampled),
    ]


def _leads(results: Sequence[Row], kind: str, name: str, others: set[str]) -> Iterator[tuple[float, str]]:
    """Yield by how much a release leads every other one on one kind of teachers' votes, and where."""
    for result in results:
        ours = {row["m"]: row[kind]["mean"] for row in result["rows"] if row["name"] == name}
        for row in result["rows"]:
            if row["name"] in others and row["m"] in ours:
                where = f"{row['name']}, {NAMES[result['dataset']]}, m = {row['m']}, {kind} teachers"
                yield ours[row["m"]] - row[kind]["mean"], where


def _claim(statement: str, leads: Sequence[tuple[float, str]]) -> Claim:
    """Claim that no lead is negative."""
    least, where = min(leads)
    holds = sum(lead >= 0.0 for lead, _ in leads)
    return Claim(statement, f"{holds} of {len(leads)} comparisons; least lead {least:.4f} ({where})", least >= 0.0)


NAME = "ten_classes"


def main(arguments: Sequence[str] | None = None) -> int:
    """Train if asked to, count the kept votes, write the page."""
    options = _parser().parse_args(arguments)
    checks.integer_at_least(1, jobs=options.jobs, trainings=options.trainings)
    folder = pages.data_folder(options, NAME)
    machine = Machine(options.jobs, "cpu", progress=True, folder=options.models)
    if options.select is not None:
        pages.write_json(
            folder / f"{options.select}-selection.json", select(load(options.select, ALL_CLASSES), machine)
        )
    if options.train is not None:
        votes, facts = train(load(options.train, ALL_CLASSES), options.trainings, machine)
        votes.save(folder / f"{options.train}-votes.npz")
        pages.write_json(folder / f"{options.train}-training.json", facts)
    if not options.page:
        for name in SETUPS:
            if (folder / f"{name}-votes.npz").exists():
                pages.write_json(folder / f"{name}.json", counted(folder, name))
    results = read(folder)
    return pages.finish(folder, page(results), decide(results))


def counted(folder: Path, name: str) -> pages.Row:
    """Count the kept votes of one data set."""
    votes, setup = KeptVotes.load(folder / f"{name}-votes.npz"), SETUPS[name]
    drawn = {entry["m"]: entry for entry in pages.read_json(folder / f"{name}-training.json")["drawn"]}
    return {
        "dataset": name,
        "questions": len(votes.truth),
        "each": {"epsilon": setup.each.epsilon, "delta": setup.each.delta},
        "labels": [{"m": m, "epsilon": setup.target(m).epsilon, "delta": setup.target(m).delta} for m in ALLOWANCES],
        "rows": list(rows(votes, setup, drawn)),
        "sums": list(sums(setup)),
    }


def _parser() -> CommandLine:
    parser = pages.command_line(NAME, __doc__ or "")
    parser.add_argument("--select", choices=SETUPS, metavar="NAME", help="try every ε and learning rate first")
    parser.add_argument("--train", choices=SETUPS, metavar="NAME", help="train teachers on these images, keep votes")
    parser.add_argument("--trainings", type=int, default=TRAININGS, help="with other seeds (default %(default)s)")
    parser.add_argument("--models", type=Path, default=Path("results") / NAME, help="for checkpoints and models")
    parser.add_argument("--jobs", type=int, default=1, help="processes for the training (default 1)")
    return parser


if __name__ == "__main__":
    sys.exit(run(main))
