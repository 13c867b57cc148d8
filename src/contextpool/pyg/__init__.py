"""Context pooling inside anyone's PyG model: a transform, and select / connect pooling with PyG's own results."""

from contextpool.errors import MissingExtraError

try:
    import torch_geometric  # noqa: F401
except ImportError:
    raise MissingExtraError("torch_geometric", "pyg", "contextpool.pyg") from None

from contextpool.explain.pyg import explanation_to_pyg
from contextpool.pyg.pooling import ContextPooling
from contextpool.pyg.selection import ContextSelection

__all__ = ["ContextPooling", "ContextSelection", "explanation_to_pyg"]
