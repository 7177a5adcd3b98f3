"""What the estimators of `darrm` win against other private classifiers at equal budgets, and where they lose."""
