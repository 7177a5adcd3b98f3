"""Mechanisms that turn votes into labels, and what each of them costs."""
