"""The estimators of `darrm` against other private classifiers at equal budgets."""
