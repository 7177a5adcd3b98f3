"""The command ``darrm serve``: one budget for clients on a network: start, client, ask."""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from darrm.aggregator import load_release
from darrm.commands.command import Group, command, run_command
from darrm.commands.options import (
    CLASSES,
    FILE,
    Integer,
    Output,
    argument,
    as_one,
    classes_option,
    collect,
    option,
    output_options,
)
from darrm.ledger.ledger import PrivacyLedger
from darrm.ledger.sqlite import is_url
from darrm.problem import is_open
from darrm.serve.client import ServeClient, is_loopback
from darrm.serve.clients import Client, add_client, read_clients
from darrm.serve.questions import VoteSchema
from darrm.serve.worker import AnswerWorker, Deployment
from darrm.util import checks
from darrm.util.extras import require
from darrm.util.files import Json, parse_json
from darrm.votes import MISSING

TOKEN = "DARRM_TOKEN"  # noqa: S105 (the name of a variable)
NETWORK, RIGHTS = "Network", "Rights"  # sections of the help
DESCRIPTION = """\
Answer queries of many clients from one budget: queries and votes come in over HTTP, and each label is drawn, paid for
and kept once. The server sees the votes."""
START_EXAMPLES = """\
example:
  darrm serve start --table table.json --ledger ledger.sqlite \\
    --clients clients.json

Votes wait in LEDGER.questions, which only its owner may read, until their label
is paid for and kept.
"""
CLIENT_EXAMPLES = """\
examples:
  darrm serve client north --clients clients.json --voter 1
  darrm serve client study --clients clients.json --questions 30 --reads

Only a hash of the token is kept: it is printed now and never again. A running
server reads the changed file.
"""
ASK_EXAMPLES = f"""\
example:
  {TOKEN}=… darrm serve ask http://127.0.0.1:8765 < questions.json

Standard input is a list of questions, like
  [{{"id": "ward 4", "votes": [1, 0, 1]}}]
(other users see a command line). A question that is sent again costs nothing:
an answered id keeps its label.
"""


@dataclass(frozen=True)
class ListenOptions:
    """Where the server listens, and what encrypts."""

    host: str
    port: int
    tls_certificate: Path | None
    tls_key: Path | None
    behind_proxy: bool

    def check(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("--tls-certificate and --tls-key come together: give both or neither")
        if not (is_loopback(self.host) or self.tls_certificate is not None or self.behind_proxy):
            advice = "give --tls-certificate and --tls-key, or --behind-proxy if a proxy encrypts"
            checks.fail("--host", self.host, "this machine (127.0.0.1) without TLS", advice)
        if self.port > 65535:
            checks.fail("--port", self.port, "an integer from 1 to 65535")

    def __str__(self) -> str:
        return f"http{'s' * (self.tls_key is not None)}://{self.host}:{self.port}"


_LISTEN_OPTIONS = (
    option(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        section=NETWORK,
        help="address to listen on (default 127.0.0.1: this machine only)",
    ),
    option("--port", type=Integer(1), default="8765", section=NETWORK, help="the port (default 8765)"),
    option("--tls-certificate", type=FILE, section=NETWORK, help="a certificate in PEM"),
    option("--tls-key", type=FILE, section=NETWORK, help="its key"),
    option(
        "--behind-proxy", is_flag=True, section=NETWORK, help="a proxy encrypts: listen beyond this machine without TLS"
    ),
)
listening_options = as_one(_LISTEN_OPTIONS, lambda values: {"listening": collect(ListenOptions, values), **values})


@command(
    "start",
    about="Answer questions that come in over the network, each paid for from one ledger.",
    short="answer questions over the network, each paid for from one ledger",
    first=("--table", "--ledger", "--clients"),
    examples=START_EXAMPLES,
)
@option("--table", type=FILE, required=True, metavar="T.json", help="a proven table, or a mechanism")
@option("--ledger", required=True, metavar="L.sqlite", help="the ledger that pays; it must exist")
@option("--clients", type=FILE, required=True, help="who may ask, vote and read")
@option("--state", type=FILE, help="where questions wait (default LEDGER.questions)")
@option("--stream", default="serve", metavar="NAME", help="name of the stream, where several share a ledger")
@classes_option(CLASSES, "names of the classes 0, 1, … (default 0,1,…); open: any string")
@option(
    "--missing",
    type=click.Choice(MISSING),
    default="refuse",
    help="where votes are missing at the deadline: the question expires (refuse, the default), random votes replace "
    "them (coin), or open-set answers do not count them (blank); a question without any vote always expires",
)
@option("--report", default="", metavar="URL", help="address of the auditor's report, for the page")
@listening_options
@option("--body", type=Integer(1), default="1048576", section=NETWORK, help="bytes of a request (default 2^20)")
@output_options()
def start(*, clients: Path, report: str, listening: ListenOptions, body: int, output: Output, **options: Any) -> None:
    for package in ("starlette", "uvicorn", "pydantic"):
        require(package)
    from darrm.serve.app import Service, allow_connections, listen, make_server  # noqa: PLC0415 (the extra's)

    listening.check()
    deployment = make_deployment(**options)
    if any(client.voter > deployment.ballot.voters for client in read_clients(clients)):
        checks.fail("--clients", str(clients), f"of voters up to {deployment.ballot.voters}, as the table has")
    PrivacyLedger(deployment.ledger)  # fails now, before questions are kept
    allow_connections()
    worker = AnswerWorker(deployment, output.note)
    try:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn passes it on: the worker is closed first
        server = make_server(Service(worker, clients, body, report).app, listening.tls_certificate, listening.tls_key)
        with listen(listening.host, listening.port) as listener:
            output.note(f"listening on {listening}")
            server.run([listener])
    except SystemExit as error:
        if error.code:
            raise
    finally:
        worker.close()


def make_deployment(
    *, table: Path, ledger: str, state: Path | None, stream: str, classes: int | tuple[str, ...] | None, missing: str
) -> Deployment:
    """Check files and options; the table is proved again."""
    aggregator = load_release(table)
    table_classes = aggregator.classes
    ballot_classes: int | tuple[str, ...] = table_classes if classes is None else classes
    if is_open(table_classes) != is_open(ballot_classes) or (
        not is_open(table_classes)
        and (ballot_classes if isinstance(ballot_classes, int) else len(ballot_classes)) != table_classes
    ):
        checks.fail("--classes", classes, f"for {table_classes}, as the table is")
    if (missing == "blank") > is_open(table_classes) or (missing == "coin" and is_open(table_classes)):
        checks.fail("--missing", missing, "refuse; coin for listed classes; blank for open classes")
    if state is None and is_url(ledger):
        checks.fail("--state", checks.Text("nothing"), "a file", "questions wait on this machine, not in the database")
    state_path = Path(f"{ledger}.questions") if state is None else state
    return Deployment(aggregator, ledger, state_path, VoteSchema(aggregator.voters.K, ballot_classes, missing), stream)


@command(
    "client",
    about="Name a client, and print its token.",
    short="name a client, and print its token",
    first=("--clients", "--voter", "--questions"),
    examples=CLIENT_EXAMPLES,
)
@argument("name", metavar="NAME", about="the public name of the client")
@option("--clients", type=FILE, required=True, help="the file of clients; made if it does not exist")
@option("--voter", type=Integer(0), default="0", section=RIGHTS, help="votes as this voter (default none)")
@option("--questions", type=Integer(0), default="0", section=RIGHTS, help="largest number of questions (default 0)")
@option("--project", default="", metavar="NAME", section=RIGHTS, help="its questions count together with others'")
@option(
    "--project-questions",
    type=Integer(0),
    default="0",
    section=RIGHTS,
    help="largest number of questions of the project",
)
@option("--reads", is_flag=True, section=RIGHTS, help="reads all labels, also of others' questions")
@output_options()
def client(*, name: str, clients: Path, output: Output, **rights: Any) -> None:
    token = add_client(clients, Client(name, "0" * 64, **rights))
    output.print(text=lambda: f"{token}\n", document=lambda: {"name": name, "token": token})


@command(
    "ask",
    about="Send questions with all their votes to a server, and print the labels.",
    short="send questions with all their votes, and print the labels",
    examples=ASK_EXAMPLES,
)
@argument("url", metavar="URL", about="the address of the server")
@output_options()
def ask(*, url: str, output: Output) -> None:
    token = os.environ.get(TOKEN, "")
    if not token:
        raise ValueError(f"put the token into the environment, {TOKEN}=…: command lines are seen by others")
    questions: Json = parse_json(sys.stdin.read())  # command lines are seen by others
    with ServeClient(url, token) as server:
        try:
            rows = server.ask(questions)
        except require("httpx").TransportError as error:
            raise OSError(f"{url}: {error or type(error).__name__}: is the server there?") from error
    lines = [f"{row['id']}: {row.get('label', row['state'])}\n" for row in rows]
    output.print(text=lambda: "".join(lines), document=lambda: rows)


serve = Group("serve", help=DESCRIPTION)
serve.add_command(start)
serve.add_command(client)
serve.add_command(ask)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(serve, arguments)


if __name__ == "__main__":
    sys.exit(main())
