"""Every aggregator side by side at equal budgets, and the page that says how to choose."""
