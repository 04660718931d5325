"""The `modelsup` command. It speaks HTTP to the supervisor, through modelsup.client.

What is slow to import (requests, numpy, rich) is imported where it is used: `modelsup --help` and
completion answer at once.
"""
