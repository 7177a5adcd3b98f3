"""Write the page *Which aggregator should I use?*: ``python -m experiments advice_page``.

The examples on it are the output of `darrm plan`, run here.
"""

from pathlib import Path

from darrm.plan import plan
from darrm.plan.report import workload_words
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.util.files import write_text
from experiments.pages import CommandLine, filled

PLAIN = PrivacyParams("inf")
EXAMPLES = {  # the name in the template: who votes, how often, within which budget
    "pate": Workload(Voters(250, PLAIN, overlap=1), 1000, PrivacyParams("2", "1e-5")),
    "private": Workload(Voters(11, PrivacyParams("0.1", "1e-5")), 20, PrivacyParams("2", "1e-3")),
}


def main(arguments: list[str] | None = None) -> int:
    line = CommandLine("experiments advice_page", "Write docs/which-aggregator.md.")
    line.add_argument("--output", type=Path, default=Path("docs/which-aggregator.md"), help="the page to write")
    options = line.parse_args(arguments)
    write_text(options.output, page())
    print(f"wrote {options.output}")
    return 0


def page() -> str:
    told = {
        name: {"command": f"darrm plan {workload_words(work)}", "report": str(plan(work))}
        for name, work in EXAMPLES.items()
    }
    return filled("aggregators", told, template="advice")
