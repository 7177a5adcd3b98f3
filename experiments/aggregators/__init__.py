"""All aggregators at equal budgets, and the page on how to choose."""
