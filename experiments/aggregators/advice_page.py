"""Write the page *Which aggregator should I use?*: ``python -m experiments advice_page``.

The examples on the page are the output of `darrm plan`, which this program runs.
"""

from pathlib import Path

from darrm.plan import plan
from darrm.plan.report import workload_words
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.util.files import write_text
from experiments.pages import CommandLine, fill_template

NON_PRIVATE = PrivacyParams("inf")
EXAMPLES = {  # name in the template: workload
    "pate": Workload(Voters(250, NON_PRIVATE, overlap=1), 1000, PrivacyParams("2", "1e-5")),
    "private": Workload(Voters(11, PrivacyParams("0.1", "1e-5")), 20, PrivacyParams("2", "1e-3")),
}


def main(arguments: list[str] | None = None) -> int:
    parser = CommandLine("experiments advice_page", "Write docs/which-aggregator.md.")
    parser.add_argument("--output", type=Path, default=Path("docs/which-aggregator.md"), help="the page to write")
    options = parser.parse_args(arguments)
    write_text(options.output, fill_page())
    print(f"wrote {options.output}")
    return 0


def fill_page() -> str:
    examples = {
        name: {"command": f"darrm plan {workload_words(work)}", "report": str(plan(work))}
        for name, work in EXAMPLES.items()
    }
    return fill_template("aggregators", examples, template="advice")
