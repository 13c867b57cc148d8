"""Answers on any graph: labels in and out, one question or a file of them."""

from contextpool.predict.answers import BET, Answer, Answers, Question, RelationAnswer
from contextpool.predict.inputs import REMEMBERED_GRAPHS, as_graph
from contextpool.predict.names import Names, read_names
from contextpool.predict.predictor import Predictor

__all__ = [
    "BET",
    "REMEMBERED_GRAPHS",
    "Answer",
    "Answers",
    "Names",
    "Predictor",
    "Question",
    "RelationAnswer",
    "as_graph",
    "read_names",
]
