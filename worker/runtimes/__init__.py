"""Runtimes: the code that loads and runs one kind of model, found by entry point."""
