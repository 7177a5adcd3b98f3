import json

import numpy as np
import pytest

from darrm.training.randomness import RandomSource
from darrm.training.recipes import Augmentation, PlainSGD, PrivateSGD, recipe_from


@pytest.mark.statistical
def test_poisson_batches_have_the_right_rate_and_are_independent_between_steps() -> None:
    recipe = PrivateSGD(0.1, 1, 0.03, 1.0)
    sizes = np.array([len(recipe.batch(RandomSource(0), 0, step, 200)) for step in range(4000)])
    # the mean of 4,000 Bin(200, 0.03) has a standard deviation of 0.0381; 5 of them are exceeded with chance 6e-7
    assert sizes.mean() == pytest.approx(6.0, abs=5 * 0.0381)
    assert sizes.var() == pytest.approx(5.82, rel=0.2)  # a fixed batch size would give 0


@pytest.mark.parametrize(("rate", "batch"), [(1e-6, []), (1.0, [0, 1, 2, 3, 4])])
def test_batches_may_be_empty_or_hold_all_records(rate: float, batch: list[int]) -> None:
    assert PrivateSGD(0.1, 1, rate, 1.0).batch(RandomSource(0), 0, 0, 5).tolist() == batch


@pytest.mark.parametrize(("size", "batch_size", "steps"), [(10, 3, 4), (9, 3, 3), (2, 5, 1)])
def test_an_epoch_sees_every_record_once_in_a_new_order(size: int, batch_size: int, steps: int) -> None:
    recipe = PlainSGD(0.1, 2, batch_size)
    assert recipe.step_count(size) == 2 * steps
    batches = [recipe.batch(RandomSource(0), 0, step, size).tolist() for step in range(2 * steps)]
    first, second = ([place for batch in part for place in batch] for part in (batches[:steps], batches[steps:]))
    assert sorted(first) == sorted(second) == list(range(size))
    assert size < 5 or first != second


def test_shuffled_batches_need_a_seed() -> None:
    with pytest.raises(ValueError, match="seeded source"):
        PlainSGD(0.1, 1, 2).batch(RandomSource(), 0, 0, 10)


def test_recipes_survive_plain_data() -> None:
    adam = PlainSGD(0.1, 5, 32, adam=True, augmentation=Augmentation(2.0, 0.1, mirror=True))
    for recipe in (PlainSGD(0.1, 5, 32), adam, PrivateSGD(0.05, 130, 5 / 130, 12.0)):
        assert recipe_from(json.loads(json.dumps(recipe.to_dict()))) == recipe
    old = {"kind": "plain", "learning_rate": 0.1, "epochs": 5, "batch_size": 32}  # of a release that had these alone
    assert PlainSGD(0.1, 5, 32).to_dict() == old
    with pytest.raises(ValueError, match="kind must be one of plain, private"):
        recipe_from({"kind": "adam"})


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"steps": 0}, "steps"),
        ({"sampling_rate": 0.0}, "sampling_rate"),
        ({"sampling_rate": 1.5}, "sampling_rate"),
        ({"noise": float("nan")}, "noise"),
        ({"noise": 0.0}, "noise"),
        ({"clip": float("inf")}, "clip"),
    ],
)
def test_bad_private_recipes_are_refused(arguments: dict[str, float], name: str) -> None:
    good = {"learning_rate": 0.1, "steps": 3, "sampling_rate": 0.1, "noise": 1.0, "clip": 1.0}
    with pytest.raises(ValueError, match=f"^{name} must be"):
        PrivateSGD(**{**good, **arguments})  # type: ignore[arg-type]
