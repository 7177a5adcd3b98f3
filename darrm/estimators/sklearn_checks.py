"""The checks of scikit-learn that noisy answers cannot pass.

`sklearn.utils.estimator_checks.check_estimator` expects equal answers to equal inputs. Private answers are random, and
so are the labels of a student. The tags ``non_deterministic`` and ``poor_score`` turn off most of these checks, but not
those below. Without noise (private models within the budget) every check passes.
"""

_TWICE = "the same rows are queried twice, and each answer is a new draw"
_TAUGHT_TWICE = "two fits to the same data release other labels, so other answers or another student"

EXPECTED_FAILED_CHECKS = {
    "check_classifier_data_not_an_array": _TAUGHT_TWICE,
    "check_estimators_pickle": _TWICE,
    "check_fit_idempotent": _TAUGHT_TWICE,
    "check_supervised_y_2d": _TAUGHT_TWICE,
}
"""For ``check_estimator(…, expected_failed_checks=EXPECTED_FAILED_CHECKS)``: names of checks, with the reason."""
