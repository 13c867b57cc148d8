"""A run as others can take it: `export` writes it, `verify` checks it."""

from contextpool.export.folder import export, verify

__all__ = ["export", "verify"]
