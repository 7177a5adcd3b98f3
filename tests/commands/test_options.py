"""The shared options: one kind of voters, exact numbers, pairs as one word or two, files that are not overwritten."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import pytest

from darrm import PrivacyParams, Problem, Voters, certify
from darrm.commands.command import Group, command, run_command
from darrm.commands.options import Output, VoterOptions, argument, option, output_options, total_option, voters_options
from darrm.commands.values import integer, real
from darrm.majority import baselines
from darrm.priors import parse
from darrm.privacy import exact_number
from darrm.show.__main__ import show
from darrm.verify.gamma import budget
from tests.doors import one_error
from tests.verify.support import gamma_of, worst_of

VALUES: dict[str, Any] = {}


@command("example", about="A command with voters.", first=("--K", "--total"))
@voters_options()
@total_option(required=False)
@output_options(output="write it")
def example(*, who: VoterOptions, total: PrivacyParams | None, output: Output) -> None:
    VALUES.update(voters=who.voters(), total=total, output=output)


def read(words: str) -> dict[str, Any]:
    VALUES.clear()
    assert run_command(example, words.split()) == 0
    return VALUES


@pytest.mark.parametrize(
    ("words", "voters"),
    [
        ("--K 7 --epsilon 0.1 --each-delta 1e-5", Voters(7, PrivacyParams("0.1", "1e-5"))),
        ("--n-voters 7 --non-private --models", Voters(7, PrivacyParams("inf"), models=True)),
        ("--epsilon 0.1,0.5 --each-delta 0", Voters.of([PrivacyParams("0.1"), PrivacyParams("0.5")])),
        ("--epsilon inf,0.1 --each-delta 0", Voters.of([PrivacyParams("inf"), PrivacyParams("0.1")])),
        ("--K 9 --sampled 0.004", Voters.non_private(9, 1, sampled="0.004")),
    ],
)
def test_voters_are_read(words: str, voters: Voters) -> None:
    assert read(words)["voters"] == voters


@pytest.mark.parametrize(
    "words", ["--total 2,1e-5", "--total 2 1e-5", "--total 2, 1e-5", "--budget 2 1e-5", "--total=2,1e-5"]
)
def test_a_pair_is_one_word_or_two_and_exact(words: str) -> None:
    values = read(f"--K 3 {words} --non-private")
    assert (values["voters"].K, values["total"]) == (3, PrivacyParams("2", "1e-5"))
    assert read(f"--non-private {words}")["total"] == PrivacyParams("2", "1e-5")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--K 7", "Write --epsilon and --each-delta of each, or --non-private"),
        ("--K 7 --epsilon 0.1", "--each-delta is missing"),
        ("--K 7 --each-delta 0", "Write --epsilon"),
        ("--epsilon 0.1 --non-private", "--non-private and --epsilon contradict each other"),
        ("--sampled 0.1 --non-private", "contradict each other"),
        ("--sampled 0.1 --models", "--sampled and --models contradict each other"),
        ("--non-private --records-each 2", "--records-each needs --sampled RATE"),
        ("--sampled tenth:0.1", "a probability like 0.004, or fixed:0.004"),
        ("--K 7 --sampled 0.1 --overlap 2", "--overlap must be 1 with --sampled"),
        ("--voters plain", "voters that are not private are --non-private"),
        ("--K 3 --epsilon 0.1,0.5 --each-delta 0", "K = 3 where voters differ"),
        ("--K 3 --non-private --total 2 x", "--total must be EPS,DELTA"),
        ("--K 3 --non-private --total 2 1e-5 1e-5", "Unexpected argument '1e-5'"),
        ("--K 3 --non-private --total 2,1e-5 1e-5", "Unexpected argument '1e-5'"),
    ],
)
def test_shared_options_refuse(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(example, words.split()) == 2
    one_error(message, capsys)


def test_the_output_is_checked_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "old.json"
    path.write_text("mine")
    words = f"--K 3 --non-private -o {path}"
    VALUES.clear()
    assert run_command(example, words.split()) == 2
    one_error("--force overwrites it", capsys)
    assert not VALUES
    assert read(f"{words} --force --json -q")["output"] == Output(path=path, force=True, format="json", quiet=True)


def test_the_help_begins_with_the_main_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(example, ["--help"]) == 0
    text = capsys.readouterr().out
    assert text.index("Main options:\n  --K INT") < text.index("--total EPS,DELTA") < text.index("Who votes:")
    assert text.count("--K ") == 1
    assert "--teachers" not in text  # an alias


# groups


@command("first", about="The first.", short="the first of two")
@argument("words", nargs=-1, about="any words")
def first(*, words: tuple[str, ...]) -> int:
    click.echo(" ".join(words))
    return len(words)


@command("second", about="The second.")
@option("--needed", required=True, metavar="INT", help="a number")
def second(*, needed: str) -> None:
    click.echo(needed)


def make_group(**settings: Any) -> Group:
    group = Group("group", help="Two commands.", **settings)
    group.add_command(first)
    group.add_command(second)
    return group


@pytest.mark.parametrize(
    ("words", "status", "text"), [("first a b", 2, "a b\n"), ("a b c", 3, "a b c\n"), ("second --needed 4", 0, "4\n")]
)
def test_a_group_runs_the_named_command_or_its_default(
    words: str, status: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(make_group(default_command="first"), words.split()) == status
    assert capsys.readouterr().out == text


def test_a_group_without_a_default_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(make_group(), []) == 0
    text = capsys.readouterr().out
    assert text.index("  first   the first of two") < text.index("  second  The second.")


HELP = "See `darrm group second --help`."


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("secnd", "There is no command 'secnd' (did you mean second?)"),
        ("second", f"--needed INT is required: a number. {HELP}"),
        ("second --neded 3", f"There is no option --neded (did you mean --needed?). {HELP}"),
        ("second --needed", f"requires an argument. {HELP}"),
    ],
)
def test_a_group_suggests(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(make_group(), words.split()) == 2
    one_error(message, capsys)


@pytest.mark.parametrize("words", [["\0"], ["--output", "a\0b"]])
def test_a_nul_character_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(show, words) == 2
    one_error("A word of the command holds a NUL character. See `darrm show --help`.", capsys)


# numbers are read as they are typed


@pytest.mark.parametrize("text", ["１２", "1_0", "０.１", "٣", "1e1_0"])
def test_only_ascii_digits_are_digits(text: str) -> None:
    for parse_text in (
        lambda: integer("--K", text, 1),
        lambda: real("--gap", text),
        lambda: exact_number("epsilon", text),
        lambda: PrivacyParams(text),
        lambda: PrivacyParams(1, text),
        lambda: parse(f"point:{text}"),
    ):
        with pytest.raises(ValueError, match="must be"):
            parse_text()


@pytest.mark.parametrize("delta", [1e-5, 0.1, 1e-3, 1e-9])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_the_delta_of_the_paper_in_floats_is_a_target(delta: float, m: int) -> None:
    """δ = 1 − (1 − Δ)^m and m·ε may be a rounding out of range; the proof is for the target as it is."""
    voters = Voters(3, PrivacyParams(0.1, delta))
    target = PrivacyParams(m * 0.1, 1 - (1 - delta) ** m)
    table = certify(Problem(voters, target), baselines.double_subsampling(Problem.from_allowance(voters, m)))
    worst = worst_of(gamma_of(table.problem, table.gamma), target.exact_epsilon)
    assert worst.upper <= budget(target.exact_epsilon, target.exact_delta).lower
    with pytest.raises(ValueError, match="a majority cannot fail less often than one voter"):
        Problem(voters, PrivacyParams(Fraction(1, 10), voters.each.exact_delta / 2))
