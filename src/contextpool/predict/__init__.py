"""Answers on any graph: labels in and out, one question or a file of them."""

from contextpool.predict.answers import Answer, Question, RelationAnswer
from contextpool.predict.names import Names, read_names
from contextpool.predict.predictor import REMEMBERED_GRAPHS, Predictor

__all__ = [
    "REMEMBERED_GRAPHS",
    "Answer",
    "Names",
    "Predictor",
    "Question",
    "RelationAnswer",
    "read_names",
]
