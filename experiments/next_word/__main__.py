"""Write texts by the votes of small language models, and by rivals at equal budgets; measure the votes' agreement.

    python -m experiments.next_word --all      # minutes; no download: the texts come with Python

Writes OUTPUT/next_word/texts.json with a picture, and OUTPUT/next_word.md.
"""

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from darrm.commands.command_line import run
from darrm.pate import ConfidentGNMax, analyze
from darrm.pate.analysis import PrivateFigureWarning
from darrm.util.figures import BLACK, saved_figure
from darrm.votes import Votes
from experiments import pages
from experiments.next_word.models import (
    CHARACTERS,
    SEED,
    Corpus,
    Task,
    corpus,
    decoded,
    encoded,
    sampling,
    votes_by,
    voting,
)
from experiments.pages import Claim, Row

NAME, FIGURE, PICTURE = "next_word", "texts", "bits.png"
DELTA = 1e-5
EPSILONS = (2.0, 4.0, 8.0)
PROMPT = "Return the "
CHECKED = ConfidentGNMax(50, 15.0, 6.0)
NOTHING = ("public model alone", "mean of the models, not private")
OURS = "coordinated votes, beside the public model"
RIVALS = ("clipped differences to public logits, τ = 1", "clipped mean logits, τ = 1")
WAYS: dict[str, tuple[str, bool | float]] = {  # kinds of votes, with the public model or not; of sampling, temperatures
    OURS: ("coordinated", True),
    "coordinated votes": ("coordinated", False),
    "independent votes": ("independent", False),
    "votes for the best word": ("best", False),
    "votes for the best word, beside the public model": ("best", True),
    RIVALS[0]: ("ink", 1.0),
    "clipped differences to public logits, τ = 0.8": ("ink", 0.8),
    RIVALS[1]: ("amin", 1.0),
    "clipped mean logits, τ = 0.5": ("amin", 0.5),
    NOTHING[0]: ("public", 1.0),
    NOTHING[1]: ("mean", 1.0),
}


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    contexts: int = 600  # each voted on once
    repeated: int = 60  # of them, each voted on with ``coins`` coins
    coins: int = 200
    words: int = 300  # of a text
    texts: int = 12
    share: float = 1.0  # of the private text


QUICK = Size(contexts=30, repeated=4, coins=20, words=20, texts=2, share=0.2)


def agreement(texts: Corpus, size: Size, kind: str) -> Row:
    """Measure the share of answers, their cost on these votes, and the distance of their law to the models' mean."""
    rng = np.random.default_rng(SEED)
    places = rng.integers(20, texts.judged.size, size=size.contexts)
    contexts = [texts.judged[place - 20 : place].tolist() for place in places]
    laws = [texts.laws(context) for context in contexts]
    votes = [votes_by(kind, law, SEED, step, rng=rng) for step, law in enumerate(laws)]
    counted = Votes.of_labels(np.stack(votes), classes=len(CHARACTERS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivateFigureWarning)  # the text comes with Python: nothing is private
        run_of = analyze(counted, CHECKED, DELTA, check="data-dependent")
    far, weight = np.zeros(2), 0
    for number, law in enumerate(laws[: size.repeated]):
        steps = range(size.contexts + number * size.coins, size.contexts + (number + 1) * size.coins)
        drawn = np.stack([votes_by(kind, law, SEED, step, rng=rng) for step in steps])
        labels = CHECKED.release(Votes.of_labels(drawn, classes=len(CHARACTERS)), rng=rng)
        told, mean = labels[labels >= 0], law.mean(axis=0)
        if told.size:
            sample = rng.choice(mean.size, size=told.size, p=mean / mean.sum())
            for place, seen in enumerate((told, sample)):
                share = np.bincount(seen, minlength=mean.size) / seen.size
                far[place] += told.size * 0.5 * np.abs(share - mean).sum()
            weight += told.size
    return {
        "kind": kind,
        "answered": run_of.expected_answered / size.contexts,
        "epsilon": run_of.epsilon,
        "a_token": run_of.epsilon / run_of.expected_answered,
        "distance": far[0] / weight,
        "floor": far[1] / weight,
    }


def written(texts: Corpus, size: Size, way: str, epsilon: float) -> Row:
    """Write some texts in one way, and let the judge read them."""
    prompt = encoded(PROMPT).tolist()
    bits, answered, distinct, first = [], 0, 0, ""
    for number in range(size.texts):
        rng = np.random.default_rng((SEED, number))
        task, (kind, how) = Task(texts, size.words, epsilon, DELTA, number), WAYS[way]
        if isinstance(how, bool):
            draw = voting(task, kind, interactive=how, rng=rng)
        else:
            draw = sampling(task, kind, how, rng=rng)
        whole = list(prompt)
        for step in range(size.words):
            word, ours = draw(whole, step)
            whole.append(word)
            answered += ours
        new = whole[len(prompt) :]
        bits.append(texts.bits(prompt, new))
        distinct += len({tuple(new[place : place + 4]) for place in range(len(new) - 3)})
        first = first or decoded(new[:70]).replace("\n", " ").replace("|", "¦").replace("`", "'")
    return {
        "way": way,
        "epsilon": epsilon,
        "bits": float(np.mean(bits)),
        "error": float(np.std(bits, ddof=1) / np.sqrt(size.texts)),
        "answered": answered / (size.texts * size.words),
        "distinct": distinct / (size.texts * (size.words - 3)),
        "sample": first,
    }


def result_of(_: str, *, quick: bool) -> Row:
    """Measure both."""
    size = QUICK if quick else Size()
    texts = corpus(share=size.share)
    return {
        "agreement": [agreement(texts, size, kind) for kind in ("coordinated", "independent")],
        "rows": [written(texts, size, way, epsilon) for epsilon in EPSILONS for way in WAYS],
        "models": len(texts.pieces),
        "characters": sum(piece.size for piece in texts.pieces),
        "words": size.words,
        "texts": size.texts,
        "contexts": size.contexts,
        "coins": size.coins,
    }


def claims_of(result: Row) -> list[Claim]:
    """Decide the claims."""
    together, alone = result["agreement"]
    rows = {(row["way"], row["epsilon"]): row for row in result["rows"]}
    return [
        Claim(
            "coordinated votes are answered at least twice as often as independent ones",
            f"{together['answered']:.3f} of the contexts against {alone['answered']:.3f}",
            together["answered"] >= 2.0 * alone["answered"],
        ),
        Claim(
            "an answer costs at most half the ε, at these votes",
            f"{together['a_token']:.4f} against {alone['a_token']:.4f}",
            together["a_token"] <= 0.5 * alone["a_token"],
        ),
        Claim(
            "what is answered is within 0.02 of the sampling floor in total variation from the models' mean law",
            f"{together['distance']:.3f}, floor {together['floor']:.3f}; independent votes {alone['distance']:.3f}, "
            f"floor {alone['floor']:.3f}",
            together["distance"] <= together["floor"] + 0.02,
        ),
        *(_likelier(rows, rival) for rival in RIVALS),
    ]


def _likelier(rows: dict[tuple[str, float], Row], rival: str) -> Claim:
    """Judge whether our texts are likelier than a rival's at every ε."""
    lead = [rows[rival, epsilon]["bits"] - rows[OURS, epsilon]["bits"] for epsilon in EPSILONS]
    return Claim(
        f"a judge who read other text finds ours, {OURS}, likelier at every ε than {rival}",
        "; ".join(f"ε = {epsilon:g}: {gain:+.2f} bits" for epsilon, gain in zip(EPSILONS, lead, strict=True)),
        min(lead) > 0.0,
    )


def page(folder: Path) -> str:
    """Fill the page."""
    result = pages.read_json(folder / f"{FIGURE}.json")
    facts = {
        **result,
        "claims": pages.claims_table(claims_of(result)),
        "delta": f"{DELTA:g}",
        "budgets": [
            {"epsilon": epsilon, "rows": [row for row in result["rows"] if row["epsilon"] == epsilon]}
            for epsilon in EPSILONS
        ],
        "prompt": PROMPT.strip(),
        "checked": CHECKED,
    }
    return pages.filled(NAME, facts)


def draw(path: Path, result: Row) -> None:
    """Draw the bits of a character over ε, a line for each way."""
    with saved_figure(path, width=8.0, height=4.2, dpi=110) as figure:
        panel = figure.subplots()
        for place, way in enumerate(WAYS):
            rows = [row for row in result["rows"] if row["way"] == way]
            look = {"color": BLACK, "linestyle": ":"} if way in NOTHING else {"color": f"C{place}", "marker": "o"}
            panel.plot([row["epsilon"] for row in rows], [row["bits"] for row in rows], label=way, **look)
        panel.set_xscale("log")
        panel.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        panel.set_xlabel("ε of a text")
        panel.set_ylabel("bits a character, to the judge")
        figure.legend(loc="outside right upper", fontsize=8)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the page."""
    parser = pages.command_line(NAME, __doc__ or "", quick="short texts by small models", figures=[FIGURE])
    options = parser.parse_args(arguments)
    shown = page, lambda folder: draw(folder / PICTURE, pages.read_json(folder / f"{FIGURE}.json"))
    return pages.run_figures(options, NAME, (FIGURE,), partial(result_of, quick=options.quick), shown)


if __name__ == "__main__":
    sys.exit(run(main))
