"""Model cards: what an estimator guarantees, to whom, under which assumptions; of public facts only."""

from decimal import Decimal

from darrm.account.accountant import Spent, estimated
from darrm.system.command_line import rounded_up
from darrm.system.extras import Untyped

_ROWS = "one row is one person"
_GROUPS = "one person is one group, with all rows of it"
_REPLACED = "the data of one person are replaced by any others"
_AS_PROMISED = "; of these only such as the promise of the models is about"
_COMES = "one person, with all of the rows, is in one of them only"


def of_vote(vote: Untyped) -> str:
    """Write the card of an ensemble that answers."""
    option, total = vote.plan_.workload, vote.plan_.workload.total
    models = not option.voters.are_plain
    who = "models, each private by itself" if models else "teachers, not private themselves"
    cost = (
        "Nothing is paid for an answer: the models' own noise covers any number of them."
        if vote.plan_.aggregator is None
        else f"Planned for {option.queries:,} answers, each paid for in a ledger before it leaves."
    )
    released = (
        "the models themselves and all of their answers"
        if vote.plan_.aggregator is None
        else "all answers of `predict`"
    )
    assumptions = [
        f"Each of the {option.voters.K} models was trained by a procedure that is {option.voters.each}-differentially "
        "private, as its maker says; this is not checked here."
        if models
        else "The teachers, and how they vote, stay with whoever trained them.",
        *_assumptions(vote),
    ]
    return _card(
        [
            f"A plurality vote of {option.voters.K} {who}, each trained on a shard of its own. {cost}",
            f"Released by: {vote.plan_.name}.",
        ],
        _pair(vote.privacy_spent_.epsilon if vote.plan_.aggregator is None else total.epsilon, total.delta),
        released,
        [_spent_line(vote.privacy_spent_), *_head_line(vote._spending.head)],  # noqa: SLF001 (one package)
        vote,
        assumptions,
        models=models,
    )


def of_student(pate: Untyped) -> str:
    """Write the card of a student."""
    report, held = pate.report_, getattr(pate, "_held", 0)
    return _card(
        [
            f"A student that learned from {report.answered:,} private labels of {report.inputs:,} public inputs.",
            f"They were given by a vote of {report.teachers} teachers, each trained on a shard of its own.",
            "The student may be published, and asked as often as one likes.",
            f"Labels released by: {report.mechanism}.",
        ],
        _pair(report.spent.epsilon, report.spent.delta),
        "the student, its parameters, its answers, and the labels that it learned from",
        [_spent_line(report.spent), *_head_line(report.head)],
        pate,
        [
            "The public inputs hold no private data, and were not chosen by looking at any.",
            *([f"The inputs of {held} rows that were held out are such public inputs: not covered."] if held else []),
            "The teachers, and how they voted, are deleted or stay with whoever trained them.",
            *_assumptions(pate),
        ],
    )


def _assumptions(model: Untyped) -> list[str]:
    listed = ", ".join(map(str, model.classes_.tolist()[:20])) + (" …" if len(model.classes_) > 20 else "")
    return [
        f"The list of classes is public ({listed}); it was "
        + ("given." if model._named else "read from the labels, and is not covered by the guarantee."),  # noqa: SLF001
        "Nothing else learned from the private data: no scaler, no categories, no choice of columns or settings.",
        "The private data were fitted once, or every fit counts: budgets of several fits add up.",
        *([] if model._grouped else ["Every row belongs to another person."]),  # noqa: SLF001
        "What `fit` refuses (a missing value, too few rows) is not covered: an error message is not private.",
        "A teacher that cannot answer is not covered: whoever asks sees no error but that the budget is spent.",
    ]


def _spent_line(spent: Spent) -> str:
    by = f"{spent.bound}: {spent.explanation}" if spent.bound else "nothing was released yet"
    rests = "It does not depend on the data" if spent.understated is None else estimated(spent.understated)
    return f"Spent so far: {_pair(spent.epsilon, spent.delta)}, by {by}. {rests[0].upper()}{rests[1:]}."


def _pair(epsilon: float, delta: float) -> str:
    """Write what is guaranteed with six digits, rounded up: a smaller pair would be another claim."""
    rounded = (float(rounded_up(Decimal(repr(float(value))), 6)) for value in (epsilon, delta))
    return "({:.6g}, {:.6g})".format(*rounded)


def _head_line(head: str) -> list[str]:
    return [f"Paid by the ledger whose head was then `{head}`."] if head else []


def _card(
    about: list[str],
    guarantee: str,
    released: str,
    spent: list[str],
    model: Untyped,
    assumptions: list[str],
    *,
    models: bool = False,
) -> str:
    # a published key and known positions: then a row that leaves moves the others (darrm/estimators/shards.py)
    neighbors = f"{_REPLACED}, or {_COMES}" if model._grouped or model._unseeded else _REPLACED  # noqa: SLF001
    neighbors += _AS_PROMISED if models else ""
    lines = [
        f"# Model card: {type(model).__name__}",
        "",
        *about,
        "",
        "## What is guaranteed",
        "",
        f"- **{guarantee}-differential privacy** of {released}, all together.",
        f"- To every person in the private data; {_GROUPS if model._grouped else _ROWS}.",  # noqa: SLF001
        f"- Two data sets are neighbors if {neighbors}.",
        *(f"- {line}" for line in spent),
        "",
        "## Under which assumptions",
        "",
        *(f"- {assumption}" for assumption in assumptions),
        "",
        "## What is not guaranteed",
        "",
        "- Accuracy. A score on private data is not part of the guarantee.",
        "- Protection from an attacker who sees the training machine, its memory, or how long a computation takes.",
        "",
    ]
    return "\n".join(lines)
