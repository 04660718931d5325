"""The daemon: owner of workers, leases and the request path."""
