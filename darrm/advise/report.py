"""What `python -m darrm.advise` prints and writes as JSON."""

from typing import Any

from darrm.advise.advice import Advice
from darrm.gamma.priors import in_words
from darrm.plan.budget import counted
from darrm.plan.option import settings_in_words
from darrm.system.flags import flags_of


def text_report(advice: Advice) -> str:
    """Write the advice for a reader."""
    work, winner = advice.workload, advice.recommended
    lines = [
        f"Which aggregator for {work.queries:,} majority {'vote' if work.queries == 1 else 'votes'}?",
        f"  {work.voters}",
        f"  the budget of all answers together is {work.total}",
        f"  accuracy under {in_words(advice.prior)}",
        f"  a fair coin has {advice.coin_accuracy:.5f}",
        "",
        f"  {'accuracy':>8}  {'total ε':>9}   mechanism",
    ]
    for option in advice.options:
        mark = "*" if option is winner else " "
        settings = f", {settings_in_words(option.settings)}" if option.settings else ""
        numbers = f"{option.accuracy(advice.prior):>8.5f}  {option.cost.epsilon:>9.5g}"
        lines.append(f"{mark} {numbers}   {option.name}{settings} (by {option.cost.name})")
    lines += [f"  {'–':>8}  {'–':>9}   {name}: {reason}" for name, reason in advice.absent]
    lines += ["", *advice.remarks, ""]
    better = advice.options[: advice.options.index(winner)]
    lines += [f"{option.name} is only compared: {option.only_compared}." for option in better]
    lines += ["Of these the library releases *:" if better else "Do this:"]
    lines += [f"  {line}" for line in winner.instructions]
    return "\n".join(lines) + "\n"


def json_report(advice: Advice) -> dict[str, Any]:
    """Write the advice as plain data; the schema is ``darrm/schemas/advice.json``."""
    return {
        "format": "darrm advice",
        "version": 1,
        "workload": flags_of(advice.workload),
        "counted_as": flags_of(counted(advice.workload)),
        "prior": advice.prior.text,
        "coin_accuracy": advice.coin_accuracy,
        "options": [
            {
                "name": option.name,
                "accuracy": option.accuracy(advice.prior),
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
