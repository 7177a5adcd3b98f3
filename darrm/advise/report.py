"""What `python -m darrm.advise` prints and writes as JSON."""

from darrm.advise.advice import Advice
from darrm.laws.priors import in_words
from darrm.plan.budget import counted
from darrm.plan.option import (
    OF_YOUR_OWN,
    UNDER_THE_PRIOR,
    about_columns,
    columns_to_json,
    head_of_columns,
    how_many_are_there,
    kind_of_votes,
    settings_in_words,
)
from darrm.plan.share_right import Measure
from darrm.problem import Workload, classes_in_words
from darrm.system.command_line import absences, numbered
from darrm.system.files import Document
from darrm.system.flags import flags_of


def text_report(advice: Advice, *, everything: bool = False) -> str:
    """Write the advice for a reader; with ``everything`` the reasons of what does not apply, too."""
    work, winner, two = advice.workload, advice.recommended, advice.workload.has_noise_function
    measure = Measure(work, advice.prior)
    known = (advice.coin_accuracy, None if advice.coin is None else advice.coin.value)
    guess = [f"{value:.5f}" for value in known if value is not None]
    asks = "" if winner.answered is None else "answered  "
    shares = f"{'accuracy  ' if two else ''}{'right':>8}{head_of_columns(advice.options)}"
    lines = [
        f"Which aggregator for {subject_of(work)}?",
        f"  {work.voters}",
        f"  the budget of all answers together is {work.total}",
        f"  {'accuracy, which ranks, and ' if two else ''}share of right labels under {in_words(advice.prior)}",
        *[f"  {line}" for line in about_columns(measure)],
        UNDER_THE_PRIOR,
        *([f"  {how_many_are_there(work)}"] if work.missing else []),
        f"  a {'fair coin' if two else 'label that looks at nothing'} has {' and '.join(guess)}",
        "",
        f"  {shares}  {asks}{'total ε':>9}   mechanism",
    ]
    for option in advice.options:
        mark = "*" if option is winner else " "
        settings = f", {settings_in_words(option.settings)}" if option.settings else ""
        right = "–" if option.share_right is None else f"{option.right:.5f}"
        accuracy = f"{option.accuracy(advice.prior):>8.5f}  " if two else ""
        answered = "" if option.answered is None else f"{option.answered:.5f}   "
        numbers = f"{accuracy}{right:>8}{option.in_columns()}  {answered}{option.cost.epsilon:>9.5g}"
        lines.append(f"{mark} {numbers}   {option.name}{settings} (by {option.cost.name})")
    lines += absences(advice.absent, everything=everything)
    lines += ["", *advice.remarks, *([""] if advice.remarks else [])]
    better = advice.options[: advice.options.index(winner)]
    lines += [f"{option.name} is only compared: {option.only_compared}." for option in better]
    own = f" ({OF_YOUR_OWN})" if "VOTES.csv" in winner.instructions[-1] else ""
    lines += [f"Of these the library releases *{own}:" if better else f"Do this{own}:"]
    lines += [f"  {line}" for line in winner.instructions]
    return "\n".join(lines) + "\n"


def subject_of(work: Workload) -> str:
    """Write what is released."""
    votes = numbered(work.queries, f"{kind_of_votes(work)} vote", f"{kind_of_votes(work)} votes")
    return votes if work.has_noise_function else f"{votes} on {classes_in_words(work.classes)}"


def wanted_report(workload: Workload, right: str, what: str) -> str:
    """Write what a wanted share of right labels leaves room for, before the advice on it."""
    answer = {
        "queries": f"at most {numbered(workload.queries, 'query', 'queries')}",
        "voters": f"at least {numbered(workload.voters.K, 'voter', 'voters')}",
        "epsilon": f"at least a total epsilon of {workload.total.epsilon:.4g}",
    }
    return f"For a share of right labels of {right}: {answer[what]}, to within two per cent. With that:\n\n"


def json_report(advice: Advice) -> Document:
    """Write the advice as plain data; the schema is ``darrm/schemas/advice.json``."""
    return {
        "format": "darrm advice",
        "version": 1,
        "workload": flags_of(advice.workload),
        "counted_as": flags_of(counted(advice.workload)),
        "prior": advice.prior.text,
        **columns_to_json(Measure(advice.workload, advice.prior)),
        "coin_accuracy": advice.coin_accuracy,
        "coin_share_right": None if advice.coin is None else advice.coin.to_json(),
        "options": [
            {
                "name": option.name,
                "share_right": None if option.share_right is None else option.share_right.to_json(),
                **option.columns_to_json(),
                "accuracy": option.accuracy(advice.prior) if advice.workload.has_noise_function else None,
                **({} if option.answered is None else {"share_answered": option.answered}),
                "epsilon": option.cost.epsilon,
                "bound": option.cost.name,
                "settings": dict(option.settings),
                "only_compared": option.only_compared or None,
            }
            for option in advice.options
        ],
        "absent": [{"name": name, "reason": reason} for name, reason in advice.absent],
        "remarks": list(advice.remarks),
        "winner": advice.recommended.name,
        "commands": list(advice.recommended.instructions),
    }
