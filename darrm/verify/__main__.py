"""Command line ``darrm verify``: audit everything that was released."""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from darrm.verify.audit import audit, html_report, json_report, text_report
from darrm.verify.chain import LedgerDigest, read_digest, read_public_key
from darrm.verify.files import check_regular, is_url
from darrm.verify.formats import DIGEST_PREFIX
from darrm.verify.verdicts import MEANINGS

_MAX_DIGEST_BYTES = 2**20  # of a file with a digest
_VERDICTS = "\n".join(f"  {name:<22}{meaning}" for name, meaning in MEANINGS.items())
_EPILOG = f"""\b
Examples:
  darrm verify plan.json ledger.sqlite labels.csv --report report.html
  darrm verify FOLDER --all
  darrm verify table.json --voters voters.csv

\b
Verdicts:
{_VERDICTS}

Exit status: 0 if nothing is false, 1 if a claim is, 2 if a file cannot be read or an option is wrong."""


@click.command("verify", epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="darrm", prog_name="darrm", message="%(prog)s %(version)s")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--report", metavar="FILE.html", help="Write a page to read and sign.")
@click.option("--all", "every", is_flag=True, help="Print every check.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="What is printed.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--digest", "--head", "digests", multiple=True, metavar="FILE|TEXT", help="A digest of a ledger, copied earlier."
)
@click.option("--public-key", "keys", multiple=True, metavar="FILE", help="Key of the ledger's signer, from them.")
@click.option("--voters", metavar="FILE.csv", help="Lines of name,epsilon,delta: how the table counts each voter.")
@click.option("--classes", metavar="A,B,...", help="The names of labels 0, 1 and so on.")
@click.option("--attack", type=click.IntRange(1, 10**9), metavar="INT", help="Labels to draw, to refute the claims.")
@click.option("--force", is_flag=True, help="Overwrite the page if it exists.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but JSON and errors.")
def command(
    paths: tuple[str, ...],
    report: str | None,
    every: bool,
    form: str,
    as_json: bool,
    digests: tuple[str, ...],
    keys: tuple[str, ...],
    voters: str | None,
    classes: str | None,
    attack: int | None,
    force: bool,
    quiet: bool,
) -> int:
    """Judge every claim of tables, mechanisms, plans, ledgers and labels, in each file and between them.

    The content of each PATH decides its kind; a folder means all files in it, and a URL a ledger in PostgreSQL. Nothing
    is written to the files or their folders: read-only copies are enough.
    """
    names = [path if is_url(path) else Path(path) for path in paths]
    if report is not None:
        _check_page(Path(report), [*keys, *([voters] if voters else []), *map(str, names)], force=force)
    labels = None if classes is None else tuple(classes.split(","))
    if labels is not None and (len(labels) < 2 or len(set(labels)) < len(labels)):
        raise ValueError(f"--classes must be different labels, got {classes!r}: write no,yes")
    is_shown = not quiet and sys.stderr.isatty()

    def progress(text: str) -> None:
        if is_shown:
            click.echo(f"\r\x1b[K{text[:99]}", nl=False, err=True)

    result = audit(
        names,
        voters_path=None if voters is None else Path(voters),
        classes=labels,
        draws=attack,
        digests=[_parse_digest(text) for text in digests],
        keys=[read_public_key(Path(key)) for key in keys],
        report=progress,
    )
    progress("")
    if report is not None:
        _write_page(Path(report), html_report(result))
    if as_json or form == "json":
        click.echo(json.dumps(json_report(result), indent=1))
    elif not quiet:
        encoding = sys.stdout.encoding or "utf-8"
        text = text_report(result, every=every, page=report or "")
        click.echo(text.encode(encoding, "replace").decode(encoding), nl=False)
    return result.status


def _parse_digest(text: str) -> LedgerDigest:
    if text.startswith((DIGEST_PREFIX, "{")):
        return read_digest(text)
    check_regular(Path(text), _MAX_DIGEST_BYTES)
    return read_digest(Path(text).read_text(encoding="utf-8-sig"), text)


def _check_page(page: Path, inputs: Sequence[str], *, force: bool) -> None:
    if any(os.path.realpath(page) == os.path.realpath(path) for path in inputs):
        raise ValueError(f"--report {str(page)!r} would overwrite a verified file: name another file")
    if not page.parent.is_dir():
        raise ValueError(f"the folder {str(page.parent)!r} of --report does not exist: create it first")
    if page.exists() and not (force and page.is_file()):
        raise ValueError(f"--report {str(page)!r} exists already: name another file, or add --force")
    if page.is_file():
        with page.open("rb") as file:
            if file.read(15) == b"SQLite format 3":
                raise ValueError(f"--report {str(page)!r} is a database, such as a ledger: name another file")


def _write_page(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(name).chmod(0o644)
    Path(name).replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    argument_list = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return int(command.main(argument_list, "darrm verify", standalone_mode=False) or 0)
    except (click.ClickException, ValueError, OSError) as error:
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        if isinstance(error, OSError) and error.strerror and error.filename is not None:
            message = f"{error.filename!r}: {error.strerror}"
        click.echo(f"error: {message}", err=True)
    return 2


if __name__ == "__main__":
    sys.exit(main())
