"""The commands, one file each: they turn arguments into a call of the client."""
