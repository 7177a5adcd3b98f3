"""Model cards: the guarantee of an estimator, its neighbors and its assumptions, from public facts only."""

import json

from darrm.account.accountant import Spent, estimated
from darrm.privacy import PrivacyParams, at_most, pair_at_most
from darrm.util.extras import Untyped

FORMAT = "darrm model card"  # of the block of JSON, which `darrm verify` judges: docs/reference/formats.md

_ROWS = "one row is one person"
_GROUPS = "one person is one group, with all rows of it"
_REPLACED = "the data of one person are replaced by any others"
_AS_PROMISED = "; of these only such as the promise of the models is about"
_COMES = "one person, with all of the rows, is in one of them only"


def of_vote(vote: Untyped) -> str:
    """Write the card of an ensemble that answers."""
    option, total = vote.plan_.workload, vote.plan_.workload.total
    models = not option.voters.are_non_private
    who = "private models" if models else "non-private teachers"
    cost = (
        "Nothing is paid for an answer: the models' own noise covers any number of them."
        if vote.plan_.aggregator is None
        else f"Planned for {option.queries:,} answers, each paid for in a ledger before it leaves."
    )
    trained = "trained elsewhere" if vote._trained_elsewhere else "each trained on its own shard"  # noqa: SLF001
    overlap = (
        f"The data of one person influence at most {option.voters.reached} of the {option.voters.K} models; "
        "this is not checked here."
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
        else "The teachers and their votes are not published.",
        *([overlap] if vote._trained_elsewhere else []),  # noqa: SLF001
        *_assumptions(vote),
    ]
    return _card(
        [
            f"A plurality vote of {option.voters.K} {who}, {trained}. {cost}",
            f"Released by: {vote.plan_.name}.",
        ],
        pair_at_most(vote.privacy_spent_.epsilon if vote.plan_.aggregator is None else total.epsilon, total.delta),
        released,
        [_spent_line(vote.privacy_spent_), *_digest_line(vote._spending.ledger_digest)],  # noqa: SLF001 (one package)
        vote,
        assumptions,
        _claims(vote.privacy_spent_, None, "")
        if vote.plan_.aggregator is None
        else _claims(vote.privacy_spent_, total, vote._spending.ledger_digest),  # noqa: SLF001
        models=models,
    )


def of_student(pate: Untyped) -> str:
    """Write the card of a student."""
    report, held = pate.report_, getattr(pate, "_held", 0)
    return _card(
        [
            f"A student that learned from {report.answered:,} private labels of {report.inputs:,} public inputs.",
            f"They were given by a vote of {report.teachers} teachers, each trained on its own shard.",
            "The student may be published, and asked as often as one likes.",
            f"Labels released by: {report.mechanism}.",
        ],
        pair_at_most(report.budget.epsilon, report.budget.delta),
        "the student, its parameters, its answers, and the labels that it learned from",
        [_spent_line(report.spent), *_digest_line(report.ledger_digest)],
        pate,
        [
            "The public inputs hold no private data, and were not chosen by looking at any.",
            *([f"The inputs of {held} rows that were held out are such public inputs: not covered."] if held else []),
            "The teachers and their votes are deleted or not published.",
            *_assumptions(pate),
        ],
        _claims(report.spent, report.budget, report.ledger_digest),
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
        "A teacher that cannot answer is not covered: clients see no error but that the budget is spent.",
    ]


def _spent_line(spent: Spent) -> str:
    by = f"{spent.bound}: {spent.explanation}" if spent.bound else "nothing was released yet"
    rests = (
        "It does not depend on the data" if spent.failure_probability is None else estimated(spent.failure_probability)
    )
    condition = f", {spent.condition}" if spent.condition else ""
    pair = pair_at_most(spent.epsilon, spent.delta)
    return f"Spent so far: {pair}{condition}, by {by}. {rests[0].upper()}{rests[1:]}."


def _claims(spent: Spent, budget: PrivacyParams | None, digest: str) -> str:
    """Write what a card claims as JSON; without a budget the models are private by themselves."""
    cost = {"epsilon": at_most(spent.epsilon), "delta": at_most(spent.delta)}
    claims = {
        "format": FORMAT,
        "guarantee": cost if budget is None else budget.to_json(),
        "spent": cost if budget is not None and spent.queries else None,
        "ledger_digest": digest or None,
    }
    return json.dumps(claims, indent=2)


def _digest_line(digest: str) -> list[str]:
    return [f"Paid by the ledger whose digest was then `{digest}`."] if digest else []


def _card(
    about: list[str],
    guarantee: str,
    released: str,
    spent: list[str],
    model: Untyped,
    assumptions: list[str],
    claims: str,
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
        "## Claims for `darrm verify`",
        "",
        "```json",
        claims,
        "```",
        "",
    ]
    return "\n".join(lines)
