"""The stand-in for Glyph: the same records and votes for everybody, as unbalanced and mislabeled as it says."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.pate import glyph, glyph_networks
from experiments.pate.glyph_images import (
    CANVAS,
    CHARACTERS,
    FONTS,
    STRANGERS,
    Style,
    _blurred,
    _outlines,
    draw_records,
    frequencies,
    has,
    load_atlas,
)
from experiments.pate.glyph_student import train_glyph_student
from experiments.pate.glyph_teachers import Block, GlyphTask, Moments, ask_block, extract_features, fit_discriminant
from experiments.pate.settings import NETWORKS, STUDIES
from experiments.teachers import Machine

STYLE = Style(classes=12)
TASK = GlyphTask(STYLE, teachers=30, records=60, pool=80, test=40)
FALSE_ALARM = 4.9  # standard deviations of a Gaussian: one in a million, both sides


def machine(folder: Path, jobs: int = 1) -> Machine:
    return Machine(jobs=jobs, device="cpu", progress=False, folder=folder)


@pytest.mark.slow  # draws all characters in all fonts
def test_every_outline_is_ink_and_none_is_the_box_of_a_missing_character() -> None:
    atlas = load_atlas(CHARACTERS + STRANGERS)
    assert (np.diff(atlas.starts) >= 1).all()
    assert atlas.starts[-1] == len(atlas.outlines)
    assert (atlas.outlines.max(axis=1) > 100).all()
    assert not has({}, FONTS[0], "A")
    assert has({60: 1}, "DejaVuSans", "<")
    assert not has({60: 1}, "cmr10", "<")  # which draws an inverted exclamation mark there
    drawn = {outline.tobytes() for outline in atlas.outlines}
    for font in FONTS:
        box = _outlines(font, "\u0378")["\u0378"]  # is assigned to no character
        assert _blurred(box[np.newaxis]).tobytes() not in drawn, font


@pytest.mark.slow
def test_records_depend_on_nothing_but_their_seed() -> None:
    first, again, other = (draw_records(STYLE, seed, 300) for seed in ((1, 2), (1, 2), (1, 3)))
    for name in ("x", "y", "shown"):
        assert getattr(first, name).tobytes() == getattr(again, name).tobytes()
        assert getattr(first, name).tobytes() != getattr(other, name).tobytes()
    assert first.x.dtype == np.float32
    assert first.x.min() == 0.0
    assert first.x.max() == 1.0


@pytest.mark.slow
def test_pictures_of_no_deformation_are_the_outlines() -> None:
    still = replace(STYLE, wrong=0, rotation=0, shear=0, stretch=0, shift=0, bend=0, weight=0, noise=0, unusual_noise=0)
    records = draw_records(still, (5,), 40)
    atlas = load_atlas(CHARACTERS[:12] + STRANGERS)
    for picture, label in zip(records.x, records.y, strict=True):
        own = atlas.outlines[atlas.starts[label] : atlas.starts[label + 1]].reshape(-1, CANVAS, CANVAS)
        looked_up = np.clip((own[:, 2::4, 2::4].reshape(len(own), -1) / 255 - 0.5) * 3 + 0.5, 0, 1)
        pale = picture.max() / looked_up.max(axis=1, keepdims=True)
        assert np.abs(looked_up * pale - picture).max(axis=1).min() < 1e-5


@pytest.mark.slow
@pytest.mark.statistical
def test_classes_and_wrong_labels_are_as_frequent_as_stated() -> None:
    number = 20_000
    style = replace(Style(), bend=0.0)
    records = draw_records(style, (7,), number)
    expected = frequencies(style)
    assert expected.max() / expected.min() == pytest.approx(5.0)
    found = np.bincount(records.y, minlength=150)
    # the square of a standard Gaussian for each class; 150 of them sum to 150 ± √300 and a little skew
    chi_square = ((found - number * expected) ** 2 / (number * expected)).sum()
    assert abs(chi_square - 149) < 1.3 * FALSE_ALARM * np.sqrt(2 * 149)
    wrong = records.y != records.shown
    assert abs(wrong.mean() - 0.09) < FALSE_ALARM * np.sqrt(0.09 * 0.91 / number)
    strange = records.shown[wrong] >= 150
    assert abs(strange.mean() - 0.8) < FALSE_ALARM * np.sqrt(0.8 * 0.2 / wrong.sum())


def test_the_discriminant_is_that_of_another_library() -> None:
    discriminant_analysis = pytest.importorskip("sklearn.discriminant_analysis")
    records = draw_records(STYLE, (11,), 2000)
    features, y = extract_features(records.x), records.y
    kept = np.concatenate([np.flatnonzero(y == label)[:50] for label in range(12)])  # equally many: no prior
    shrinkage = 0.25
    ours = fit_discriminant(Moments.of(features[kept], y[kept], 12), shrinkage)
    theirs = discriminant_analysis.LinearDiscriminantAnalysis("lsqr", shrinkage=shrinkage / (1 + shrinkage))
    theirs.fit(features[kept].astype(float), y[kept])
    assert (ours.predict(features) == theirs.predict(features.astype(float))).mean() > 0.999
    assert (ours.predict(features) == y).mean() > 0.7


def test_moments_add_up_to_those_of_the_union() -> None:
    records = draw_records(STYLE, (13,), 400)
    features = extract_features(records.x)
    parts = [Moments.of(features[some], records.y[some], 12) for some in (slice(150), slice(150, None))]
    both, whole = Moments.none(12) + parts[0] + parts[1], Moments.of(features, records.y, 12)
    for name in ("number", "total", "second"):
        np.testing.assert_allclose(getattr(both, name), getattr(whole, name), rtol=1e-5)


def test_votes_are_those_of_each_teacher_alone() -> None:
    block = ask_block(TASK, range(4, 7))
    pool = TASK.public()
    votes = []
    for teacher in range(4, 7):
        shard = TASK.shard(teacher)
        moments = Moments.of(extract_features(shard.x), shard.y, 12)
        votes.append(fit_discriminant(moments, TASK.shrinkage).predict(extract_features(pool.x)))
    assert np.array_equal(block.counts, (np.array(votes)[:, :, np.newaxis] == np.arange(12)).sum(axis=0))
    assert block.right == (np.array(votes) == pool.y).sum()


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_votes_with_other_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glyph, "QUICK", TASK)
    monkeypatch.setattr(glyph, "STAGE", 1)
    study = STUDIES["glyph"]
    whole = glyph.obtain_glyph(study, machine(tmp_path / "whole"), quick=True)
    asked: list[range] = []

    def interrupted(task: GlyphTask, teachers: range) -> Block:
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(teachers)
        return ask_block(task, teachers)

    with monkeypatch.context() as patch:
        patch.setattr(glyph, "ask_block", interrupted)
        with pytest.raises(KeyboardInterrupt):
            glyph.obtain_glyph(study, machine(tmp_path / "parts"), quick=True)
    monkeypatch.setattr(glyph, "STAGE", 20)
    resumed = glyph.obtain_glyph(study, machine(tmp_path / "parts", jobs=2), quick=True)
    assert asked == [range(10), range(10, 20)]
    assert resumed.digest == whole.digest
    assert resumed.teacher_accuracy == whole.teacher_accuracy
    monkeypatch.setattr(glyph, "ask_block", None)  # all is known by now
    assert glyph.obtain_glyph(study, machine(tmp_path / "parts"), quick=True).digest == whole.digest


@pytest.mark.slow
def test_a_quick_run_end_to_end(tmp_path: Path) -> None:
    study = STUDIES["glyph"]
    recorded = glyph.obtain_glyph(study, machine(tmp_path), quick=True)
    assert recorded.votes.counts.shape == (600, 20)
    assert recorded.votes.voters == 200
    assert recorded.pool_x.shape == (600, 1, 28, 28)
    baseline = glyph.glyph_baseline(study, machine(tmp_path), quick=True)
    # nine percent of the labels are wrong, whatever anybody learns
    assert 0.7 < recorded.teacher_accuracy < recorded.plurality_accuracy < 0.95
    assert recorded.plurality_accuracy - 0.05 < baseline < 0.95


def test_a_student_is_as_sure_as_it_is_right_and_learns_from_answers_alone() -> None:
    records, fresh = draw_records(STYLE, (14,), 1500), draw_records(STYLE, (15,), 1500)
    labels = np.where(np.arange(1500) % 3 == 0, -1, records.y)
    student = train_glyph_student(records.images, labels, 12)
    answered = labels >= 0
    same = train_glyph_student(records.x[answered], labels[answered], 12)
    assert np.array_equal(student.scores(fresh.x), same.scores(fresh.images))
    right = (student.predict(fresh.x) == fresh.y).mean()
    scores = student.scores(fresh.x)
    assert scores.sum(axis=1) == pytest.approx(1.0)
    assert np.array_equal(scores.argmax(axis=1), student.predict(fresh.x))
    assert right > 0.75
    assert abs(scores.max(axis=1).mean() - right) < 0.06  # at temperature 1 it is too sure by 0.09
    with pytest.raises(ValueError, match="at least 5 answers"):
        train_glyph_student(records.x, np.full(1500, -1), 12)


@pytest.mark.slow
def test_networks_vote_the_same_however_they_are_dealt_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(glyph_networks, "RECIPE", replace(glyph_networks.RECIPE, steps=3))
    task = replace(TASK, teachers=3)
    whole = glyph_networks.ask_networks(task, range(3))
    parts = glyph_networks.ask_networks(task, range(1)) + glyph_networks.ask_networks(task, range(1, 3))
    assert (whole.counts == parts.counts).all()
    assert whole.right == parts.right == whole.counts[np.arange(TASK.pool), task.public().y].sum()
    assert (whole.counts.sum(axis=1) == 3).all()
    monkeypatch.setattr(glyph, "QUICK_NETWORKS", task)
    kept = glyph.obtain_glyph(STUDIES[NETWORKS], machine(tmp_path), quick=True)
    assert (kept.votes.counts == whole.counts).all()
    assert len(list(tmp_path.glob(f"{NETWORKS}-*.npz"))) == 1


@pytest.mark.slow
def test_networks_learn_alone_and_from_all_records() -> None:
    pytest.importorskip("torch")
    task = replace(TASK, teachers=2, records=300, test=300)
    assert glyph_networks.ask_networks(task, range(1)).right / task.pool > 0.6  # of twelve classes, 9 % labeled wrongly
    assert glyph_networks.networks_baseline(task, seed=0, quick=True) > 0.6
