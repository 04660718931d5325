"""Decisions as pure functions. The rule of this layer is in README.md."""
