"""Write the page of an experiment from its data, or measure the data again.

python -m experiments NAME                 # the page alone
python -m experiments NAME --recompute     # the numbers, pictures and page
python -m experiments NAME --help          # the options of one experiment
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from darrm.commands.command_line import run
from experiments.pages import CommandLine

# some write no page: advice_page, budgets, drawings, example_votes, label_costs, layers, make_tables
MODULES = {
    "advice_page": "experiments.aggregators.advice_page",
    "aggregators": "experiments.aggregators.main",
    "audits": "experiments.audits",
    "budgets": "experiments.aggregators.budgets",
    "composition": "experiments.composition_tables",
    "drawings": "experiments.drawings",
    "estimators": "experiments.estimators",
    "example_votes": "experiments.example_votes",
    "explorer_data": "experiments.explorer_data",
    "fresh": "experiments.fresh",
    "knowledge_transfer": "experiments.knowledge_transfer.__main__",
    "label_costs": "experiments.aggregators.plurality_page",
    "layers": "experiments.layers",
    "make_tables": "experiments.make_tables",
    "opacus": "experiments.opacus_comparison",
    "pate": "experiments.pate.__main__",
    "pate_outside": "experiments.pate.outside",
    "pate_votes": "experiments.pate.paper_votes",
    "rows": "experiments.rows",
    "scaling": "experiments.scaling",
    "sensitivity": "experiments.sensitivity.main",
    "simulations": "experiments.simulations.main",
    "tested": "experiments.tested",
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = CommandLine("experiments", __doc__)
    parser.add_argument("name", choices=MODULES, metavar="NAME", help=", ".join(MODULES))
    parser.add_argument("options", nargs=argparse.REMAINDER, help="of the experiment")
    options = parser.parse_args(arguments)
    status: int = import_module(MODULES[options.name]).main(options.options)
    return status


if __name__ == "__main__":
    sys.exit(run(main))
