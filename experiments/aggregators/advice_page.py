"""Write the page *Which aggregator should I use?*: ``python -m experiments.aggregators.advice_page``.

The examples on it are the output of `python -m darrm.advise`, run here.
"""

import sys
from pathlib import Path

from darrm.advise.advice import advise
from darrm.advise.report import text_report
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.system.command_line import CommandLine, run
from darrm.system.files import write_text
from darrm.system.flags import flags_of

PLAIN = PrivacyParams("inf")
EXAMPLES = (
    (
        "PATE: teachers that are not private, on disjoint parts of the data",
        "Each person's data reach one teacher, and the labels train a student.",
        Workload(Voters(250, PLAIN, overlap=1), 1000, PrivacyParams("2", "1e-5")),
    ),
    (
        "One vote of hospitals that are not private",
        "Each person was treated by at most one of them.",
        Workload(Voters(11, PLAIN, overlap=1), 1, PrivacyParams("0.5", "1e-6")),
    ),
    (
        "Models trained with DP-SGD on disjoint parts",
        "They answer any number of questions.",
        Workload(Voters(11, PrivacyParams("0.0892", "1e-4"), overlap=1, models=True), 100, PrivacyParams("1", "1e-4")),
    ),
    (
        "Private voters that look at the data again at each question",
        "One person's data may reach all of them: the setting of DaRRM.",
        Workload(Voters(11, PrivacyParams("0.1", "1e-5")), 20, PrivacyParams("2", "1e-3")),
    ),
)
HEAD = """# Which aggregator should I use?

Ask `python -m darrm.advise`. It calibrates every aggregator that applies to one total budget and ranks them. This page
says what it asks about and why; its examples are that command's output, written here by `python -m
experiments.aggregators.advice_page`.

1. **Are your voters private by themselves?** If each of them satisfies (ε, Δ)-differential privacy (a model trained
   with DP-SGD, a private test, randomized response on a phone) give `--epsilon` and `--each-delta`. If not,
   `--voters plain`: then all privacy comes from the aggregator.
2. **How many voters can one person's data reach?** `--overlap`. One for disjoint shards, k − 1 for k-fold splits, all K
   if you cannot tell (the default, and the paper's analysis). This matters more than the choice of mechanism.
3. **Models or fresh randomness?** Voters that were trained once and then answer every question are models: `--models`.
   If they are private, any number of answers is post-processing, and if the models that a person reaches stay within
   the budget *no noise is needed at all*. Voters that look at the data again at each question cost something each time.
4. **How many questions, within which total?** `--queries` and `--total EPS,DELTA`, for all answers together.

What comes out, in short:

* Private voters on disjoint shards need no noise: a person moves one of them, so an answer costs what one voter costs
  (parallel composition).
* For one question to voters that are not private, on disjoint shards, the release here is the best there is: at every
  number of votes it tells the truth with the largest probability that any (ε, δ)-private release of the count can
  (proved in `darrm/optimize/closed_form.py`).
* For many questions it is the best monotone release under a Rényi budget, the best per question, or the law of
  permute-and-flip or of the exponential mechanism, whichever errs least under your prior. It is not the best in every
  case, and `advise` lists what is. How it compares with GNMax, LNMax, the exponential mechanism and permute-and-flip at
  equal budgets: [aggregators side by side](reproduction/aggregators.md).
* More than two classes: [any number of classes](plurality.md).

*right* below is the share of right labels under a public prior: those that are the majority of the votes, 0.5 for a
coin and an odd number of voters. *accuracy*, by which two classes are ranked because it is what `plan` optimizes, is
one minus the paper's expected error: a distance to the law of the majority, so that a fair coin has more than 1/2 where
the voters may be undecided. `*` marks what to do; what does not apply is counted, and `--all` says why.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the examples and write the page."""
    line = CommandLine(
        prog="python -m experiments.aggregators.advice_page", description="Write docs/which-aggregator.md."
    )
    line.add_argument("--output", type=Path, default=Path("docs/which-aggregator.md"), help="the page to write")
    options = line.parse_args(arguments)
    write_text(options.output, page())
    print(f"wrote {options.output}")
    return 0


def page() -> str:
    """Write the page."""
    parts = [HEAD]
    for title, sentence, work in EXAMPLES:
        command = f"python -m darrm.advise {flags_of(work)}"
        report = text_report(advise(work))
        parts += [f"## {title}\n", f"{sentence}\n", f"```sh\n{command}\n```\n", f"```text\n{report}```\n"]
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(run(main))
