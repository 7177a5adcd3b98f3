"""The results as text: tables in a terminal and in docs/reproduction, made from the JSON and from nothing else."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.composition_tables import DELTA_PRIME, NAMES
from experiments.knowledge_transfer import settings
from experiments.pages import read_json, table

Result = dict[str, Any]


def page(folder: Path) -> str:
    """Write the page from the results of all data sets, and of other learning rates, that lie in a folder."""
    results = [read_json(path) for name in NAMES if (path := folder / f"{name}.json").exists()]
    if not results:
        raise ValueError(f"{folder} holds no results: run --dataset mnist first")
    others = [read_json(path) for path in sorted(folder.glob("*-rate-*.json"))]
    return "\n\n".join([INTRODUCTION, *map(text, results), *map(_other_rate, others)]) + "\n"


def text(result: Result) -> str:
    """Write one data set's result as Markdown."""
    parts = [
        f"## {NAMES[result['dataset']]}",
        _teachers(result),
        *([_fresh(result), _no_noise(result)] if "fresh" in result else []),
        *(_labels(result, m) for m in result["allowances"]),
        _totals(result),
        _students(result),
    ]
    if result["selection"]:
        parts.append(_selection(result["selection"]))
    return "\n\n".join(parts)


def _other_rate(result: Result) -> str:
    rate = result["private_training"]["learning_rate"]
    head = f"## {NAMES[result['dataset']]} with the private learning rate {rate:g}, which was not chosen"
    return "\n\n".join([head, _teachers(result), *(_labels(result, m) for m in result["allowances"])])


def _teachers(result: Result) -> str:
    training, plain, spent = result["private_training"], result["plain_training"], result["each_spent"]
    keys = ("private_teacher", "private_majority", "plain_teacher", "plain_majority")
    head = ["seed", "private teacher", "their majority", "non-private teacher", "their majority"]
    return (
        f"K = {result['K']} teachers on disjoint shards of {result['train_size']} images, {result['test_size']} test "
        f"images. DP-SGD: noise {training['noise']:g}, clip {training['clip']:g}, {training['steps']} steps at "
        f"sampling rate {training['sampling_rate']:.5f} ({result['epochs']} epochs), learning rate "
        f"{training['learning_rate']:g}: each teacher ({spent['epsilon']:.6g}, {spent['delta']:g})-private by the PLD "
        f"accountant, the target being ({result['each']['epsilon']:g}, {result['each']['delta']:g}). Without privacy: "
        f"learning rate {plain['learning_rate']:g}, batch {plain['batch_size']}, {plain['epochs']} epochs. Accuracy on "
        "all test images:\n\n" + table(head, [[one["seed"], *_decimals(one, keys, 3)] for one in result["trainings"]])
    )


def _fresh(result: Result) -> str:
    """Show the case that the method is made for; results of older runs lack it."""
    first = result["fresh"][0]
    rows = [
        [row["aggregator"], f"{row['right']:.4f}", f"{row['one']:g}", f"{row['all']:.2f}" if "all" in row else "–"]
        for row in result["fresh"]
    ]
    leads = []
    for m in result["allowances"]:
        best, sub = (_of(result["fresh"], m, name)["right"] for name in (settings.OPTIMAL, settings.SUBSAMPLING))
        leads.append(f"{best - sub:+.4f} at m = {m}")
    return (
        "### Where the noise pays: one person's data reach all voters\n\n"
        f"{result['K']} voters that saw resamples of all training images answer by randomized response, each answer "
        f"({first['each']:g}, 0)-private with fresh coins (`experiments/knowledge_transfer/fresh.py`). A label that is "
        f"the majority of all {result['K']} costs the sum of their ε; an aggregator gives up a little truth for much "
        "privacy. Right is the share of right labels, 0.5 for a coin. gamma_opt has, against gamma_Sub at the same "
        f"guarantee for one label, {', '.join(leads)}.\n\n"
        + table(["labels by", "right", "ε of one label", f"ε of {first['queries']}, δ = {first['delta']:g}"], rows)
        + "\n\nOver many questions the last column counts, not the one before: `python -m darrm.plan` searches for the "
        "best release within a total."
    )


def _of(rows: Sequence[Result], m: int, name: str) -> Result:
    return next(row for row in rows if (row["m"], row["aggregator"]) == (m, name))


def _no_noise(result: Result) -> str:
    """Say why the rows below, about models that were trained once, need no aggregator."""
    spent = result["each_spent"]
    return (
        "### Where it does not: models that are private already\n\n"
        "The teachers below were trained once, with DP-SGD, on shards of their own. Whoever is in the data is in one "
        f"shard, so all {result['K']} models together are as private as one of them, ({spent['epsilon']:.6g}, "
        f"{spent['delta']:g}). Whatever is computed from them afterwards, the bare majority of their votes on any "
        "number of questions among it, is post-processing and costs nothing more. Noise would only spoil labels there: "
        f"compare *{settings.PRIVATE_MAJORITY}* with the other rows."
    )


def _cell(numbers: dict[str, float]) -> str:
    error = f" ±{numbers['standard_error']:.3f}" if "standard_error" in numbers else ""
    return f"{numbers['mean']:.3f} ({numbers['std']:.2f}){error}"


def _labels(result: Result, m: int) -> str:
    mine = [row for row in result["labels"] if row["m"] == m]
    rows = [
        [
            row["aggregator"],
            row["queries"],
            "–" if row["printed"] is None else "{mean:.2f} ({std:.2f})".format(**row["printed"]),
            _cell(row["ten_draws"]),
            _cell(row["all_draws"]),
        ]
        for row in sorted(mine, key=lambda row: settings.AGGREGATORS.index(row["aggregator"]))
    ]
    facts = {row["aggregator"]: row["facts"] for row in mine}
    gamma = ", ".join(f"{value:.4f}" for value in facts[settings.OPTIMAL]["gamma"])
    draws = f"{result['draws']} draws × {len(result['trainings'])} trainings"
    return (
        f"### m = {m}, {settings.TABLE_OF[m]} of the paper: "
        f"({mine[0]['per_query']['epsilon']:.6g}, {mine[0]['per_query']['delta']:.6g}) a query\n\n"
        f"GNMax: sigma = {facts[settings.GNMAX]['sigma']:.2f} by the paper's grid, "
        f"{facts[settings.GNMAX_TIGHT]['sigma']:.2f} tight. gamma_opt(6 … 11) = {gamma}.\n\n"
        + table(["labels by", "Q", "paper, mean (std)", "10 draws, mean (std)", f"{draws}, mean (std) ±error"], rows)
    )


def _totals(result: Result) -> str:
    rows = []
    for row in result["totals"]:
        paper, best = row["printed"], row["best"]
        ways = (settings.SUBSAMPLING, settings.OPTIMAL)
        rows.append(
            [
                row["m"],
                row["queries"],
                "–" if paper is None else f"({paper['epsilon']:.3f}, {paper['delta']:.3f})",
                f"({row['general']['epsilon']:.3f}, {row['general']['delta']:.3f})",
                *(f"{best[way]['epsilon']:.3f} ({best[way]['bound']})" for way in ways),
                *("{epsilon:.4f} ({bound})".format(**best[way]["with_private_models"]) for way in ways),
                f"{best[settings.GNMAX]['epsilon']:.3f}",
                f"{best[settings.GNMAX_TIGHT]['epsilon']:.3f}",
            ]
        )
    head = ["m", "Q", "paper's total", "general composition", "gamma_Sub, sum", "gamma_opt, sum"]
    head += ["gamma_Sub, **proved**", "gamma_opt, **proved**", "GNMax, **proved**", "GNMax tight, **proved**"]
    return (
        "### Total privacy loss (Tables 2, 5, 7, 9 of the paper)\n\n"
        "The paper's total and the three columns after it are sums over the questions, as the paper has them. They "
        "hold for voters with fresh randomness; these teachers were trained once, and for them a sum is [no "
        f"guarantee](../trained-models.md). General composition has slack {DELTA_PRIME:g}; the other columns are the "
        "smallest epsilon at the same delta, with the bound's name. **Proved** are those that hold for this set-up: "
        "for private teachers that are models on disjoint shards, and for GNMax, which counts votes and asks nothing "
        "of its teachers. The majority of the private teachers costs "
        f"({result['each']['epsilon']:g}, {result['each']['delta']:g}) in total, for any number of queries.\n\n"
        + table(head, rows)
    )


def _students(result: Result) -> str:
    if not result["students"]:
        return "### Students\n\nNot trained in this run."
    rows = [
        [
            row["labels"],
            "–" if row["m"] is None else row["m"],
            row["queries"],
            *_decimals(row, ("label_accuracy", "accuracy"), 3),
        ]
        for row in sorted(result["students"], key=lambda row: (row["m"] is None, row["m"] or 0, row["labels"]))
    ]
    return (
        "### Students\n\nVirtual adversarial training on Q labeled and the other images of one half of the test set, "
        f"measured on the other half ({result['held_size']} images), one training each.\n\n"
        + table(["labels by", "m", "Q", "labels right", "student's accuracy"], rows)
    )


def _selection(selection: Result) -> str:
    kinds = {
        "private": ("private", "learning rate {learning_rate:g}"),
        "plain": ("non-private", "learning rate {learning_rate:g}, batch {batch_size}"),
        "student": ("student", "radius {radius:g}, weight {weight:g}"),
    }
    rows = [
        [name, setting.format(**one), one["trainings"], *_decimals(one, ("accuracy", "majority_accuracy"), 4)]
        for kind, (name, setting) in kinds.items()
        for one in selection["tried"][kind]
    ]
    return (
        f"### How the settings were chosen\n\nOn {selection['held_out']} held-out training images, after training on "
        "the other training images; no test image is involved.\n\n"
        + table(["what", "setting", "trainings", "accuracy of one", "of the majority"], rows)
    )


def _decimals(row: Result, names: Sequence[str], digits: int) -> list[str]:
    """Write numbers of a row, and a dash for those that it lacks."""
    return [f"{row[name]:.{digits}f}" if name in row else "–" for name in names]


INTRODUCTION = """# Private teachers and private labels: Tables 1, 2 and 4 to 10

This page is written by `python -m experiments.knowledge_transfer --page --output docs/reproduction` from the JSON of
the runs (`--dataset mnist --trainings 5 --student-m 1,3,5,7`, `--dataset fashion-mnist --trainings 5`, and for the last
section `--dataset mnist --trainings 5 --private-rate 0.03 --m 3 --no-students`). Their own files were not kept:
the JSON holds their figures, and the scores of `--select`, to the digits of this page, from which they were taken.
Accounting needs no training; a test computes it anew. Numbers are shares of right labels for queries drawn from the
test images, unless something else is said. "(0.04)" is the standard deviation of one draw; "±0.01" the standard error
of the mean over independent trainings, which a table from one training cannot show.

## What this means for a practitioner

- **If your voters are models trained with DP-SGD on disjoint data, you need no noise at the end.** The models are
  private already, so the bare majority of their votes ("private teachers" in the tables) costs what one model costs,
  however many questions are asked. An aggregator's noise only spoils labels there.
- **Do not add up single questions for such teachers.** The paper's totals do, and so do the columns "sum" below; for
  trained models [a sum may be smaller than the true loss](../trained-models.md). The columns "proved" are what holds.
- **gamma_opt is the right tool where voters draw fresh randomness on the data at every question, or where one label is
  all that is asked.** Where the voters disagree (MNIST) it gives clearly more right labels than subsampling at the same
  guarantee; where they agree anyway (Fashion-MNIST) both are good; at m = 1 they are the same.
- **Ask what "the same privacy" keeps the same.** At the same guarantee for one query GNMax with the paper's noise looks
  weak. Part of this is a loose formula: the exact calibration needs far less noise (both are given above each table).
  And over many queries GNMax composes far better: its columns of the totals are at the same delta as the sums.
- **One training tells little.** Draws of the queries from one training share its teachers; the error bars here come
  from several trainings.

## What differs from the paper, and why

- On MNIST our private teachers are better. At m = 7 gamma_opt is 1 everywhere, so that row is the bare majority of the
  private teachers: the paper's last table gives away that of its own. The paper states neither network, nor learning
  rate, nor batch, and all rows of DaRRM move with the teachers. On Fashion-MNIST the two are alike.
- GNMax (whose teachers are not private) agrees with the paper within its spread, and general composition gives the
  printed totals to their last digit.
- The paper's 10,000 training images of Fashion-MNIST are 12,000 here: all that the data set has of the two classes.
- Learning rates and batches were chosen on a split of the training data; the tables at the end of each section hold
  every score. For MNIST the mean private teacher prefers the learning rate 0.03 a little and the majority prefers
  0.05; we decide by the majority, which is what is released. This rule was settled when the scores were known, and
  after one training at 0.03 had been seen on the test images, where it did worse. So this one choice is not free of
  the test set, though 0.05 is the value we had started from. It matters: the last section shows what the other rate
  gives, with several trainings that hardly learn.
- That choice also looks at private data without being accounted for, in the paper as here. Whoever publishes a model
  should choose on public data.
- The students are trained once each: differences of a few hundredths between them mean nothing."""
