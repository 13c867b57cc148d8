"""Evidence for an answer: the paths that carried it, the context, what pooling dropped, the closest rival."""

from contextpool.explain.evidence import (
    CandidateRelevance,
    ContextRelation,
    DroppedRelation,
    Explanation,
    Path,
    Rival,
)
from contextpool.explain.explainer import explain_answer

__all__ = [
    "CandidateRelevance",
    "ContextRelation",
    "DroppedRelation",
    "Explanation",
    "Path",
    "Rival",
    "explain_answer",
]
