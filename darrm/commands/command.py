"""Commands and groups of click: errors in one line, help in sections, suggestions for misspelled options.

>>> import click
>>> from darrm.commands.options import Integer, option
>>> @command("example", about="An example.")
... @option("--K", "K", type=Integer(1), default="11", help="number of voters")
... def example(K: int) -> None:
...     click.echo(f"{K} voters")
>>> run_command(example, ["--K", "5"])
5 voters
0
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from darrm.commands.command_line import harmless, nearest, run
from darrm.privacy import exact_number

WIDTH = 80
_SETTINGS = {"terminal_width": WIDTH, "max_content_width": WIDTH}
_OTHER_SECTION = "Other options"
VERSION = {"message": "%(prog)s %(version)s", "help": "version"}
PAIR = "EPS,DELTA"  # the metavar of options that take (ε, δ) as one word or as two


class Option(click.Option):
    """An option in a section of the help; ``aliases`` work and are not listed."""

    def __init__(
        self,
        declarations: Sequence[str],
        *,
        section: str = _OTHER_SECTION,
        aliases: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        super().__init__([*declarations, *aliases], **settings)
        self.section = section
        self.aliases = tuple(aliases)
        if self.metavar is None and not self.is_flag:
            value_type = self.type
            self.metavar = (
                "|".join(value_type.choices) if isinstance(value_type, click.Choice) else value_type.name.upper()
            )

    @property
    def spellings(self) -> list[str]:
        return sorted((name for name in self.opts if name not in self.aliases), key=len)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:  # noqa: ARG002 (click passes it)
        return f"{', '.join(self.spellings)} {self.metavar or ''}".rstrip(), self.help or ""


class Argument(click.Argument):
    section = "Arguments"

    def __init__(self, declarations: Sequence[str], *, about: str, **settings: Any) -> None:
        super().__init__(declarations, **settings)
        self.about = about

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:  # noqa: ARG002 (click passes it)
        return self.metavar or self.human_readable_name, self.about


class _BaseCommand(click.Command):
    """The common part of commands and groups: ``--help`` and ``--version``, sections, examples."""

    first: tuple[str, ...] = ()
    examples: str = ""

    def _add_help(self) -> None:
        # click's own help would write UTF-8 to any output
        self.params.append(
            Option(["--help", "-h"], is_flag=True, is_eager=True, expose_value=False, callback=_show_help, help="help")
        )
        click.version_option(None, "--version", package_name="darrm", prog_name="darrm", cls=Option, **VERSION)(self)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments, then the options that matter first, then a section each."""

        def get_rank(param: click.Parameter) -> int:
            return next((index for index, name in enumerate(self.first) if name in param.opts), len(self.first))

        page: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Main options": []}
        for param in sorted(self.get_params(ctx), key=get_rank):
            if isinstance(param, Option | Argument):
                title = "Main options" if get_rank(param) < len(self.first) else param.section
                page.setdefault(title, []).append(param.get_help_record(ctx))
        page[_OTHER_SECTION] = page.pop(_OTHER_SECTION, [])
        for title, records in page.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records, col_max=26)

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write nothing: `format_options` has written them."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 (click's)
        if self.examples:
            formatter.write(f"\n{self.examples.rstrip()}\n")


class Command(_BaseCommand):
    """A command; ``first`` names the three options that matter first, ``examples`` end its help."""

    def __init__(self, name: str | None, first: Sequence[str] = (), examples: str = "", **settings: Any) -> None:
        super().__init__(name, **settings)
        self.add_help_option, self.context_settings = False, dict(_SETTINGS)
        self.first, self.examples = tuple(first), examples
        self._add_help()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words; ``--total 2 1e-5`` is ``--total 2,1e-5``."""
        ctx.allow_extra_args = True
        try:
            super().parse_args(ctx, self._join_pairs(args))
        except click.UsageError as error:
            error.ctx = ctx  # click leaves it out where an option has no value
            raise
        if ctx.args and not ctx.resilient_parsing:
            word = ctx.args[0]
            hint = nearest(word, _list_spellings(self, ctx)) if word.startswith(("–", "—")) else ""
            raise ValueError(
                f"Unexpected argument {word!r}{hint}: a value follows its option. See `{ctx.command_path} --help`."
            )
        return ctx.args

    def _join_pairs(self, words: Sequence[str]) -> list[str]:
        pairs = {name for param in self.params if param.metavar == PAIR for name in param.opts}
        joined: list[str] = []
        for index, word in enumerate(words):
            epsilon = joined[-1] if len(joined) > 1 and joined[-2] in pairs and index > 1 else None
            if epsilon is not None and "," not in epsilon.rstrip(",") and _is_number(word):
                joined[-1] = f"{epsilon.rstrip(',')},{word}"
            else:
                joined.append(word)
        return joined


class Group(_BaseCommand, click.Group):
    """A command with sub-commands; ``default_command`` runs if the first word is no command."""

    def __init__(
        self, name: str | None, examples: str = "", default_command: str | None = None, **settings: Any
    ) -> None:
        super().__init__(name, **settings)
        self.add_help_option, self.context_settings = False, dict(_SETTINGS)
        self.invoke_without_command, self.no_args_is_help = True, False
        self.examples, self.default_command = examples, default_command
        self._add_help()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_known = bool(args) and args[0] in (*self.list_commands(ctx), *_list_spellings(self, ctx))
        if args and self.default_command is not None and not is_known:
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click passes it)
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        status = super().invoke(ctx)
        if ctx.invoked_subcommand is None:
            sys.stdout.write(harmless(ctx.get_help()) + "\n")
            return 0
        return status

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args[0] not in names and not ctx.resilient_parsing:
            raise ValueError(
                f"There is no command {args[0]!r}{nearest(args[0], names)}. Choose from {', '.join(names)}."
            )
        return super().resolve_command(ctx, args)

    def summary(self, ctx: click.Context, name: str) -> str:
        subcommand = self.get_command(ctx, name)
        return "" if subcommand is None else (subcommand.short_help or subcommand.get_short_help_str(WIDTH))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.summary(ctx, name)) for name in self.list_commands(ctx)])
        super().format_options(ctx, formatter)


def command(
    name: str, *, about: str, first: Sequence[str] = (), examples: str = "", short: str | None = None
) -> Callable[[Callable[..., Any]], Command]:
    """Make a function a command; the exit status is its return value, 0 for None.

    ``about`` is the first paragraph of the help, ``short`` the line in the list of a group.
    """

    def decorate(function: Callable[..., Any]) -> Command:
        # the help is stated, not read off the docstring, which python -OO drops
        decorator = click.command(name, cls=Command, first=first, examples=examples, help=about, short_help=short)
        return decorator(function)

    return decorate


def run_command(program: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status; an expected error is one line and status 2."""
    return run(lambda: _invoke(program, sys.argv[1:] if arguments is None else arguments))


def _invoke(program: click.Command, arguments: Sequence[str]) -> int:
    name = "darrm" if program.name == "darrm" else f"darrm {program.name}"
    if any("\0" in word for word in arguments):  # no file has such a name
        raise ValueError(f"A word of the command holds a NUL character. See `{name} --help`.")
    try:
        with program.make_context(name, list(arguments)) as ctx:
            status = program.invoke(ctx)
    except click.exceptions.Exit as request:
        return request.exit_code
    except click.NoSuchOption as error:
        names = [] if error.ctx is None else _list_spellings(error.ctx.command, error.ctx)
        hint = nearest(error.option_name, names)
        raise ValueError(f"There is no option {error.option_name}{hint}. {_advise_help(error, name)}") from error
    except click.MissingParameter as error:
        raise ValueError(f"{_describe_missing(error)} {_advise_help(error, name)}") from error
    except click.UsageError as error:
        raise ValueError(f"{error.format_message().rstrip('.')}. {_advise_help(error, name)}") from error
    return status if isinstance(status, int) else 0


def _describe_missing(error: click.MissingParameter) -> str:
    if isinstance(error.param, Option):
        return f"{error.param.spellings[-1]} {error.param.metavar} is required: {error.param.help}."
    if isinstance(error.param, Argument):
        return f"{error.param.metavar or error.param.human_readable_name} is required: {error.param.about}."
    return error.format_message()


def _advise_help(error: click.UsageError, name: str) -> str:
    return f"See `{name if error.ctx is None else error.ctx.command_path} --help`."


def _list_spellings(program: click.Command, ctx: click.Context) -> list[str]:
    return [name for param in program.get_params(ctx) if isinstance(param, click.Option) for name in param.opts]


def _is_number(word: str) -> bool:
    try:
        exact_number("word", word)
    except ValueError:
        return False
    return True


def _show_help(ctx: click.Context, _param: click.Parameter, is_requested: bool) -> None:
    if is_requested and not ctx.resilient_parsing:
        sys.stdout.write(harmless(ctx.get_help()) + "\n")
        ctx.exit()
