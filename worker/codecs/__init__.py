"""Request and answer bodies: bytes <-> numpy, pure."""
