# ruff: noqa: SLF001 (private attributes of the estimators of this package)
"""Model cards: the guarantee of an estimator, its neighbors and its assumptions, from public facts only."""

import json

from darrm.account.accountant import Spent, describe_estimate
from darrm.privacy import PrivacyParams, at_most, pair_at_most
from darrm.util.extras import Untyped

FORMAT = "darrm model card"  # of the block of JSON, which `darrm verify` judges: docs/reference/formats.md

_CARD = """\
# Model card: {kind}

{about}

## Guarantee

- **{guarantee}-differential privacy** of {released}, all together.
- To every person in the private data; {person}.
- Two data sets are neighbors if {neighbors}.
- {spent}

## Assumptions

- {assumptions}
- The list of classes is public ({classes}); it was {source}
- Nothing else learned from the private data: no scaler, no categories, no choice of columns or settings.
- The private data were fitted once, or every fit counts: budgets of several fits add up.
{rows}\
- What `fit` refuses (a missing value, too few rows) is not covered: an error message is not private.
- A teacher that cannot answer is not covered: clients see no error but that the budget is spent.

## Not guaranteed

- Accuracy. A score on private data is not part of the guarantee.
- Protection from an attacker who sees the training machine, its memory, or how long a computation takes.

## Claims for `darrm verify`

```json
{claims}
```
"""


def describe_vote(vote: Untyped) -> str:
    workload, voters = vote.plan_.workload, vote.plan_.workload.voters
    is_free, voter_kind = vote.plan_.aggregator is None, "non-private teachers"
    promise = "The teachers and their votes are not published."
    if not voters.are_non_private:
        voter_kind = "private models"
        promise = (
            f"Each of the {voters.K} models was trained by a procedure that is {voters.each}-differentially private, "
            "as stated by its maker; this is not checked here."
        )
    training, assumptions = "one for each shard", [promise]
    if vote._overlap is not None:
        training = "trained elsewhere"
        influence = f"The data of one person influence at most {voters.reached} of the {voters.K} models"
        assumptions.append(f"{influence}; this is not checked here.")
    cost = f"Planned for {workload.queries:,} answers, each paid for in a ledger before it leaves."
    if is_free:
        cost = "Nothing is paid for an answer: the models' own noise covers any number of them."
    return _fill_template(
        vote,
        f"A plurality vote of {voters.K} {voter_kind}, {training}. {cost}\nReleased by: {vote.plan_.name}.",
        None if is_free else workload.total,
        "the models themselves and all of their answers" if is_free else "all answers of `predict`",
        vote.privacy_spent_,
        str(vote.ledger_.digest()),
        assumptions,
    )


def describe_student(pate: Untyped) -> str:
    report, held_out = pate.report_, getattr(pate, "_held", 0)
    assumptions = ["The public inputs hold no private data, and were not chosen by looking at any."]
    if held_out:
        assumptions.append(f"The inputs of {held_out} rows that were held out are such public inputs: not covered.")
    return _fill_template(
        pate,
        f"A student that learned from {report.answered:,} private labels of {report.inputs:,} public inputs.\n"
        f"They were given by a vote of {report.teachers} teachers, one for each shard.\n"
        "The student may be published, and asked as often as one likes.\n"
        f"Labels released by: {report.mechanism}.",
        report.budget,
        "the student, its parameters, its answers, and the labels that it learned from",
        report.spent,
        report.ledger_digest,
        [*assumptions, "The teachers and their votes are deleted or not published."],
    )


def _fill_template(
    model: Untyped,
    about: str,
    budget: PrivacyParams | None,
    released: str,
    spent: Spent,
    digest: str,
    assumptions: list[str],
) -> str:
    """Fill the template; without a budget of answers, the cost of the models is the claim."""
    has_groups, names = model._grouped, [str(name) for name in model.classes_.tolist()]
    cost = {"epsilon": at_most(spent.epsilon), "delta": at_most(spent.delta)}
    claims = {"format": FORMAT, "guarantee": cost, "spent": None, "ledger_digest": None}
    if budget is not None:
        spent_pair = cost if spent.queries else None
        claims |= {"guarantee": budget.to_json(), "spent": spent_pair, "ledger_digest": digest or None}
    total = budget or spent
    neighbors = "the data of one person are replaced by any others"
    # false for a published key and people by position: a removed row shifts others (darrm/estimators/ensemble.py)
    if has_groups or model._unseeded:
        neighbors += ", or one person, with all of the rows, is in one of them only"
    if not model.seeded:
        neighbors += "; of these only those that the guarantee of the models covers"
    return _CARD.format(
        kind=type(model).__name__,
        about=about,
        guarantee=pair_at_most(total.epsilon, total.delta),
        released=released,
        person="one person is one group, with all rows of it" if has_groups else "one row is one person",
        neighbors=neighbors,
        spent=describe_spent(spent) + (f"\n- Paid by the ledger whose digest was then `{digest}`." if digest else ""),
        assumptions="\n- ".join(assumptions),
        classes=", ".join(names[:20]) + (" …" if len(names) > 20 else ""),
        source="given." if model._named else "read from the labels, and is not covered by the guarantee.",
        rows="" if has_groups else "- Every row belongs to another person.\n",
        claims=json.dumps(claims, indent=2),
    )


def describe_spent(spent: Spent) -> str:
    explanation = f"{spent.bound}: {spent.explanation}" if spent.bound else "nothing was released yet"
    certainty = "It does not depend on the data"
    if spent.failure_probability is not None:
        certainty = describe_estimate(spent.failure_probability)
    condition = f", {spent.condition}" if spent.condition else ""
    pair = pair_at_most(spent.epsilon, spent.delta)
    return f"Spent so far: {pair}{condition}, by {explanation}. {certainty[0].upper()}{certainty[1:]}."
