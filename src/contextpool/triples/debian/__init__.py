"""Debian's package index as a knowledge graph: packages, what they need, what they are, who looks after them."""
