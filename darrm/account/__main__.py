"""Command line: what a ledger has spent, or what queries with a table will cost, by every bound.

python -m darrm.account --ledger ledger.sqlite
python -m darrm.account --table table.json --queries 20,50,100 --delta 1e-2
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from darrm.account.ledger import PrivacyLedger
from darrm.account.ledger_store import check_kept
from darrm.account.moving import move
from darrm.account.report import ledger_json, ledger_text, plot_bounds, plot_ledger, spent_by, table_json, table_text
from darrm.account.signing import new_signing_key
from darrm.account.store import ledger_name
from darrm.errors import checks
from darrm.losses.charges import Charge
from darrm.mechanisms.release import Release
from darrm.pate.files import Released, load_release
from darrm.privacy import exact_number
from darrm.problem import Voters
from darrm.proof.charge import charge_of
from darrm.system.command_line import CommandLine, add_outputs, check_outputs, print_report, run
from darrm.system.flags import integer, integers
from darrm.system.progress import status_line

DESCRIPTION = """\
Say what a ledger has spent; or put every bound on the total privacy loss of queries with a table side by side."""

EPILOG = """\
examples:
  python -m darrm.account --ledger ledger.sqlite --log
  python -m darrm.account --ledger ledger.sqlite --plot meaning.png
  python -m darrm.account --ledger ledger.sqlite --head >> heads.txt
  python -m darrm.account --table table.json --queries 20,50,100 --delta 1e-2 --plot loss.png
  python -m darrm.account --new-signing-key ledger.key

bounds:
  simple          the epsilons and deltas add up
  general         closed form (Kairouz, Oh, Viswanath 2015, Theorem 3.4)
  optimal         the best that the (epsilon, delta) of a query allow (Theorem 3.3 there)
  profile         optimal composition of the best point of the table's exact privacy profile
  renyi           Rényi curve of a table that is monotone in the votes
  pld             privacy loss distribution of that profile
only with --models, or a table for models, where the costs of several answers do not add up:
  private models  the answers are post-processing of the models that a person reaches
  subsampling     labels that look at few models, as those of gamma_Sub, cost no more than these
  plain voters    the release alone, as for voters about whom nothing is promised
  both ends       both together"""


def build_parser() -> CommandLine:
    """Describe the command line."""
    parser = CommandLine(
        prog="python -m darrm.account",
        description=DESCRIPTION,
        epilog=EPILOG,
        renamed={"--private-models": "--models", "--disjoint": "--overlap 1"},
    )
    parser.add_argument(
        "--ledger", type=ledger_name, metavar="L.sqlite", help="report what this ledger, a file or a URL, has spent"
    )
    parser.add_argument("--copy", type=ledger_name, metavar="FROM", help="move this ledger, and close the old one")
    parser.add_argument("--to", type=ledger_name, metavar="URL", help="where --copy moves it: a new URL or file")
    parser.add_argument("--log", action="store_true", help="list all entries of the ledger, not the last ten")
    parser.add_argument(
        "--head", action="store_true", help="print the ledger's head only: the line that an audit compares later"
    )
    parser.add_argument("--table", type=Path, metavar="T.json", help="bound the cost of queries with what a plan wrote")
    parser.add_argument("--queries", metavar="Q,Q,…", help="how many queries, like 20,50,100")
    parser.add_argument("--delta", metavar="REAL", help="total δ of the queries")
    parser.add_argument("--models", action="store_true", help="each voter is a model, trained once")
    parser.add_argument("--overlap", metavar="INT", help="how many models a person's data reach (default: the table's)")
    parser.add_argument(
        "--new-signing-key",
        type=Path,
        metavar="FILE",
        help="make an Ed25519 key for release --signing-key FILE, and FILE.pub for verify --public-key",
    )
    add_outputs(parser, picture="ε over queries; of a ledger what its total lets others guess and believe")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Report on a ledger or on a table."""
    options = build_parser().parse_args(arguments)
    check_outputs(options)
    jobs = [options.ledger, options.table, options.new_signing_key, options.copy]
    if jobs.count(None) != len(jobs) - 1 or (options.copy is None) is not (options.to is None):
        message = "give either --ledger, to see what was spent, or --table with --queries and --delta"
        raise ValueError(f"{message}, or --new-signing-key alone, or --copy with --to")
    if options.new_signing_key is not None:
        private, public = options.new_signing_key, new_signing_key(options.new_signing_key)
        text = f"private key: {private}: keep it, and a copy, where the ledger is not\npublic key:  {public}\n"
        print_report(options, text=lambda: text, document=lambda: {"private": str(private), "public": str(public)})
        return 0
    if options.table is not None:
        return _report_table(options)
    if options.copy is not None:
        return _move(options)
    given = (options.queries, options.delta, options.models or None, options.overlap)
    if any(value is not None for value in given):
        raise ValueError(
            "--ledger goes with --log, --head, --plot, --format and --quiet only: its budget says the rest"
        )
    check_kept(options.ledger)
    ledger = PrivacyLedger(options.ledger)
    if options.head:
        head = ledger.head()
        print_report(options, text=lambda: f"{head}\n", document=head.to_json)
        return 0
    with status_line(quiet=options.quiet) as line:
        line.show("adding up the ledger's entries")
        if options.plot is not None:
            plot_ledger(options.plot, ledger)
        report = ledger_json(ledger) if options.format == "json" else ledger_text(ledger, everything=options.log)
    print_report(options, text=lambda: str(report), document=lambda: report)
    return 0


def _move(options: argparse.Namespace) -> int:
    check_kept(options.copy)
    check_kept(options.to)
    with status_line(quiet=options.quiet) as line:
        line.show("copying the ledger's entries")
        head = move(str(options.copy), str(options.to)).head()
    old, new = str(options.copy), str(options.to)
    text = f"moved to {new}; {old} is closed, keep it for audits\nhead: {head}\n"
    print_report(options, text=lambda: text, document=lambda: {"from": old, "to": new, "head": head.to_json()})
    return 0


def _report_table(options: argparse.Namespace) -> int:
    if options.log or options.head:
        raise ValueError("--log lists the entries of a --ledger, and --head is a ledger's")
    if options.queries is None or options.delta is None:
        raise ValueError("--table needs --queries and --delta, like --queries 20,50,100 --delta 1e-2")
    counts = integers("--queries", options.queries)
    delta = float(exact_number("--delta", options.delta))
    if not 0.0 < delta < 1.0:
        checks.fail("--delta", options.delta, "in (0, 1)")
    with status_line(quiet=options.quiet) as line:
        line.show("proving the table again")
        aggregator = load_release(options.table)
        charge, voters = _charge(options, aggregator)
        results = {}
        for count in counts:
            line.show(f"bounds for {count:,} queries")
            results[count] = spent_by(charge, count, delta, voters)
        if options.plot is not None:
            plot_bounds(options.plot, charge, max(counts), delta, voters, report=line.show)
    print_report(
        options,
        text=lambda: table_text(charge, results, delta),
        document=lambda: table_json(results, delta),
    )
    return 0


def _charge(options: argparse.Namespace, aggregator: Released) -> tuple[Charge, Voters]:
    declared = aggregator.voters
    voters = replace(declared, models=options.models or declared.models)
    if options.overlap is not None:
        if not voters.models:
            raise ValueError("--overlap says how many models a person's data reach: say --models too, if they are")
        voters = replace(voters, overlap=integer("--overlap", options.overlap, 1))
    # a table describes itself for voters that are declared here; what a mechanism costs is the same for all
    charge = charge_of(aggregator.table, voters=voters) if isinstance(aggregator, Release) else aggregator.charge()
    return charge, voters


if __name__ == "__main__":
    sys.exit(run(main))
