"""Command line ``python -m darrm.serve``: one budget for clients on a network: start, client, ask."""

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from darrm.account.ledger import PrivacyLedger
from darrm.account.store import is_url
from darrm.errors import checks
from darrm.pate.files import load_release
from darrm.problem import is_open
from darrm.serve.client import ServeClient
from darrm.serve.clients import Client, add_client, read_clients
from darrm.serve.desk import Deployment, Desk
from darrm.serve.questions import Ballot
from darrm.system.command_line import CommandLine, add_jobs, add_outputs, complain, print_report, run
from darrm.system.extras import require
from darrm.system.files import parse_json
from darrm.system.flags import add_classes, classes_of, integer, real
from darrm.votes import MISSING

PROGRAM = "python -m darrm.serve"
TOKEN = "DARRM_TOKEN"  # noqa: S105 (the name of a variable)
JOBS = {
    "start": "answer questions that come in over the network, each paid for from one ledger",
    "client": "name a client, and print its token",
    "ask": "send questions with all their votes to a server, and print the labels",
}
DESCRIPTION = """\
One budget for many clients: questions and votes come in over HTTP, each label is drawn, paid for and kept once. Whoever
runs the server sees the votes."""
EPILOGS = {
    "start": """\
example:
  python -m darrm.serve start --table table.json --ledger ledger.sqlite --clients clients.json

Votes wait in LEDGER.questions, which only its owner may read, until their label is paid for and kept.
""",
    "client": """\
examples:
  python -m darrm.serve client north --clients clients.json --voter 1
  python -m darrm.serve client study --clients clients.json --questions 30 --reads

Of the token only a hash is kept: what is printed now cannot be printed again. A running server reads the file anew.
""",
    "ask": f"""\
example:
  {TOKEN}=… python -m darrm.serve ask http://127.0.0.1:8765 '[{{"id": "ward 4", "votes": [1, 0, 1]}}]'

Sent again it costs nothing: an id that was answered keeps its label.
""",
}


def build_parser(job: str = "") -> CommandLine:
    """Describe the command line of a job; of all of them without one."""
    about = f"{JOBS[job][0].upper()}{JOBS[job][1:]}.\n{DESCRIPTION}" if job else DESCRIPTION
    parser = CommandLine(
        prog=f"{PROGRAM} {job}".strip(), description=about, epilog=EPILOGS.get(job, f"{PROGRAM} JOB --help says more.")
    )
    if not job:
        return add_jobs(parser, JOBS, build_parser)
    _ADDING[job](parser)
    return parser


def _add_start(parser: CommandLine) -> None:
    parser.add_argument("--table", type=Path, required=True, metavar="T.json", help="a proven table, or a mechanism")
    parser.add_argument("--ledger", required=True, metavar="L.sqlite", help="what pays; it must exist")
    parser.add_argument("--clients", type=Path, required=True, metavar="FILE", help="who may ask, vote and read")
    parser.add_argument("--state", type=Path, metavar="FILE", help="where questions wait (default LEDGER.questions)")
    parser.add_argument(
        "--stream", default="serve", metavar="NAME", help="which answers go on, where several share a ledger"
    )
    add_classes(parser, "the labels that stand for 0, 1, … (default 0,1,…); open: any string")
    parser.add_argument(
        "--missing",
        choices=MISSING,
        default="refuse",
        help="votes that are missing at the deadline: the question expires (default), fair coins stand for them, or of "
        "open answers they count for no string; a question without any vote expires always",
    )
    parser.add_argument("--report", default="", metavar="URL", help="where the page finds the auditor's report")
    network = parser.add_argument_group("the network")
    network.add_argument("--host", default="127.0.0.1", help="where to listen (default 127.0.0.1: this machine only)")
    network.add_argument("--port", default="8765", help="the port (default 8765)")
    network.add_argument("--tls-certificate", type=Path, metavar="FILE", help="a certificate in PEM")
    network.add_argument("--tls-key", type=Path, metavar="FILE", help="its key")
    network.add_argument(
        "--behind-proxy", action="store_true", help="a proxy encrypts: listen beyond this machine without TLS"
    )
    network.add_argument("--rate", default="200", help="requests a second of one client (default 200)")
    network.add_argument("--body", default="1048576", help="bytes of a request (default 1048576)")
    add_outputs(parser)


def _add_client(parser: CommandLine) -> None:
    parser.add_argument("name", metavar="NAME", help="what it is called, in public")
    parser.add_argument("--clients", type=Path, required=True, metavar="FILE", help="the file; made if it is not there")
    parser.add_argument("--voter", default="0", metavar="N", help="it votes for this voter, from 1 (default: for none)")
    parser.add_argument("--questions", default="0", metavar="N", help="how many it may ask in all (default: none)")
    parser.add_argument("--project", default="", metavar="NAME", help="its questions count together with others'")
    parser.add_argument("--project-questions", default="0", metavar="N", help="how many the project may ask in all")
    parser.add_argument("--reads", action="store_true", help="it reads all labels, not only those that it asked for")
    add_outputs(parser)


def _add_ask(parser: CommandLine) -> None:
    parser.add_argument("url", metavar="URL", help="the server's")
    parser.add_argument("questions", metavar="JSON", help="a list of questions, or - for standard input")
    add_outputs(parser)


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the job that the first word names."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0].startswith("-"):
        build_parser().parse_args(words)
    if not words or words[0] not in JOBS:
        raise ValueError(f"say a job first: one of {', '.join(JOBS)}; see {PROGRAM} --help")
    return _DOING[words[0]](build_parser(words[0]).parse_args(words[1:]))


def deployment_of(options: Namespace) -> Deployment:
    """Read what a server is for; the table is proved again."""
    aggregator = load_release(options.table)
    number, named = aggregator.classes, classes_of(options.classes)
    classes: Any = number if named is None else named
    if is_open(number) != is_open(classes) or (
        not is_open(number) and (classes if isinstance(classes, int) else len(classes)) != number
    ):
        checks.fail("--classes", options.classes, f"for {number}, as the table is")
    if (options.missing == "blank") > is_open(number) or (options.missing == "coin" and is_open(number)):
        checks.fail("--missing", options.missing, "refuse, coin where classes are listed, blank where they are open")
    if options.state is None and is_url(options.ledger):
        checks.fail("--state", checks.Found("nothing"), "a file", "questions wait on this machine, not in the database")
    state = Path(f"{options.ledger}.questions") if options.state is None else options.state
    return Deployment(
        aggregator, options.ledger, state, Ballot(aggregator.voters.K, classes, options.missing), options.stream
    )


def _start(options: Namespace) -> int:
    require("starlette"), require("uvicorn")
    from darrm.serve.app import Limits, Service  # noqa: PLC0415 (the extra's)
    from darrm.serve.server import allow_connections, check_address, configured  # noqa: PLC0415 (as above)

    if (options.tls_certificate is None) != (options.tls_key is None):
        raise ValueError("--tls-certificate and --tls-key come together")
    check_address(options.host, certificate=options.tls_certificate, behind_proxy=options.behind_proxy)
    port, body, rate = (
        integer("--port", options.port, 1),
        integer("--body", options.body, 1),
        real("--rate", options.rate),
    )
    checks.positive(rate=rate)
    deployment = deployment_of(options)
    if any(client.voter > deployment.ballot.voters for client in read_clients(options.clients)):
        checks.fail("--clients", str(options.clients), f"of voters up to {deployment.ballot.voters}, as the table has")
    PrivacyLedger(options.ledger)  # before questions are kept for none

    def say(text: str) -> None:
        if not options.quiet:
            complain(text, 0, "note")

    desk = Desk(deployment, say)
    tls = None if options.tls_certificate is None else (options.tls_certificate, options.tls_key)
    server = configured(
        Service(desk, options.clients, Limits(body, rate=rate), options.report).app, options.host, port, tls
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # as uvicorn passes it on: the desk is closed first
    desk.start()
    allow_connections()
    say(f"listening on http{'s' * (tls is not None)}://{options.host}:{port}")
    try:
        server.run()
    except SystemExit as error:
        if not error.code:
            return 0
        raise OSError(f"{options.host}:{port} cannot be listened on: is another server there?") from None
    finally:
        desk.stop()
    return 0


def _client(options: Namespace) -> int:
    client = Client(
        options.name,
        "0" * 64,
        voter=integer("--voter", options.voter, 0),
        questions=integer("--questions", options.questions, 0),
        project=options.project,
        project_questions=integer("--project-questions", options.project_questions, 0),
        reads=options.reads,
    )
    token = add_client(options.clients, client)
    print_report(options, text=lambda: f"{token}\n", document=lambda: {"name": client.name, "token": token})
    return 0


def _ask(options: Namespace) -> int:
    token = os.environ.get(TOKEN, "")
    if not token:
        raise ValueError(f"put the token into the environment, {TOKEN}=…: command lines are seen by others")
    rows: Any = parse_json(sys.stdin.read() if options.questions == "-" else options.questions)
    with ServeClient(options.url, token) as client:
        try:
            answered = client.ask(rows)
        except require("httpx").TransportError as error:
            raise OSError(f"{options.url}: {error or type(error).__name__}: is the server there?") from error
    lines = [f"{one['id']}: {one.get('label', one['state'])}\n" for one in answered]
    print_report(options, text=lambda: "".join(lines), document=lambda: answered)
    return 0


_ADDING = {"start": _add_start, "client": _add_client, "ask": _add_ask}
_DOING = {"start": _start, "client": _client, "ask": _ask}

if __name__ == "__main__":
    sys.exit(run(main))
