"""Command line ``python -m darrm.verify``: what an auditor runs on everything that was released."""

import sys
from collections.abc import Sequence
from pathlib import Path

from darrm.account.ledger_store import check_kept
from darrm.account.store import ledger_name
from darrm.errors import checks
from darrm.system.command_line import CommandLine, add_outputs, check_outputs, print_report, run
from darrm.system.files import check_parent, check_regular, is_same_file, write_text
from darrm.system.flags import add_classes, classes_of, integer
from darrm.system.progress import status_line
from darrm.verify.audit import audit
from darrm.verify.chain import HEAD, ShownHead, read_head
from darrm.verify.report import html_report, json_report, text_report
from darrm.verify.signatures import read_public_key

_MOST_BYTES = 2**20  # of a file with a head

DESCRIPTION = """\
Judge every claim of tables, mechanisms, the plans that they came from, ledgers, labels and saved estimators, in each
file and between them: one line a claim. What each file is, is found out from what it holds. Privacy is decided by code
that shares nothing with the prover. Nothing is written to the files or beside them: copies are enough, read-only ones
too."""

EPILOG = """\
examples:
  python -m darrm.verify table.json
  python -m darrm.verify plan.json ledger.sqlite labels.csv --report report.html
  python -m darrm.verify FOLDER --report report.html
  python -m darrm.verify table.json --voters voters.csv
  python -m darrm.verify table.json --attack 1000000 --format json

verdicts:
  proved here           recomputed by this audit, with every rounding bounded
  consistent            agrees with everything else that was given; nothing here would show a careful forgery
  claimed by the maker  cannot be seen in the files
  cannot be known       what was given does not decide it; the reason says what would
  false                 contradicted by the files themselves

Exit status: 0 if nothing is false, 1 if a claim is, 2 if a file could not be read or a flag is wrong."""


def build_parser() -> CommandLine:
    """Describe the command line."""
    by_name = dict.fromkeys(("--ledger", "--labels"), "named like any other file")
    parser = CommandLine(prog="python -m darrm.verify", description=DESCRIPTION, epilog=EPILOG, renamed=by_name)
    parser.add_argument(
        "paths",
        type=ledger_name,
        nargs="+",
        metavar="PATH",
        help="a table, a mechanism, a ledger, labels (.csv, .npy, .parquet), an estimator, a folder of them, or "
        "the URL of a ledger in PostgreSQL",
    )
    parser.add_argument(
        "--voters", type=Path, metavar="FILE.csv", help="lines of name,epsilon,delta: whether the table counts each so"
    )
    parser.add_argument(
        "--head",
        action="append",
        default=[],
        metavar="FILE|TEXT",
        help="a head of a ledger that was copied earlier (account --head, a receipt); again for more",
    )
    parser.add_argument(
        "--public-key",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="of whoever signed the ledgers' entries, from him and not from the folder; again for more",
    )
    add_classes(parser, "the labels that stand for 0, 1 and so on")
    parser.add_argument("--attack", metavar="INT", help="draw so many labels on neighboring votes, to refute the claim")
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="write a page to read and sign")
    add_outputs(parser)
    return parser


def _head(text: str) -> ShownHead:
    if text.startswith(HEAD):
        return read_head(text)
    check_regular(Path(text), _MOST_BYTES)
    return read_head(Path(text).read_text(encoding="utf-8-sig"), text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge, report, and return 1 if anything is false."""
    options = build_parser().parse_args(arguments)
    check_outputs(options)
    given = [*options.paths, *options.public_key, *([] if options.voters is None else [options.voters])]
    for path in options.paths:
        check_kept(path)
    if options.report is not None:
        check_parent(options.report)
        if any(is_same_file(options.report, path) for path in given):
            checks.fail("--report", str(options.report), "a file of its own", "it would overwrite what is verified")
    classes = classes_of(options.classes)
    if classes is not None and not isinstance(classes, tuple):
        checks.fail("--classes", options.classes, "different labels, like no,yes", "they name what the labels are")
    heads, keys = [_head(text) for text in options.head], list(map(read_public_key, options.public_key))
    draws = None if options.attack is None else integer("--attack", options.attack, 1)
    with status_line(quiet=options.quiet) as line:
        found = audit(
            options.paths,
            voters_path=options.voters,
            classes=classes,
            draws=draws,
            heads=heads,
            keys=keys,
            report=line.show,
        )
    if options.report is not None:
        write_text(options.report, html_report(found))
    print_report(options, text=lambda: text_report(found), document=lambda: json_report(found))
    return found.status


if __name__ == "__main__":
    sys.exit(run(main))
