"""Costs of a server on this machine."""
