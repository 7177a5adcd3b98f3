"""What scikit-learn's own checks ask of an estimator and no noisy answer can give.

`sklearn.utils.estimator_checks.check_estimator` asks the same question twice and expects the same answer. A private
answer is drawn anew each time, and a student learns from labels that are. The estimators say so by their tags
(``non_deterministic``, ``poor_score``), which most checks heed; these do not. Without noise (models that are private
enough by themselves) every check passes.
"""

_TWICE = "the same rows are asked twice, and each answer is a draw of its own"
_TAUGHT_TWICE = "two fits to the same data release other labels, so other answers or another student"

EXPECTED_FAILED_CHECKS = {
    "check_classifier_data_not_an_array": _TAUGHT_TWICE,
    "check_estimators_pickle": _TWICE,
    "check_fit_idempotent": _TAUGHT_TWICE,
    "check_supervised_y_2d": _TAUGHT_TWICE,
}
"""For ``check_estimator(…, expected_failed_checks=EXPECTED_FAILED_CHECKS)``: the check's name, and why it may fail."""
