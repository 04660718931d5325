"""The outside: processes, files, the database. Only `daemon` knows this layer."""
