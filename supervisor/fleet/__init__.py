"""The only writer of worker state; runs on the event loop."""
