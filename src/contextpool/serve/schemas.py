"""The schemas of requests and responses, from which OpenAPI is made."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from contextpool.predict import BET, Question
from contextpool.serve.registry import LONGEST_NAME
from contextpool.serve.settings import (
    LONGEST_LABEL,
    MOST_ANSWERS,
    MOST_CANDIDATES,
    MOST_CLAIMS,
    MOST_COMPLETIONS,
    MOST_EVIDENCE,
    MOST_FOCUS,
    MOST_HAVING,
    MOST_HOPS,
    MOST_PATHS,
    MOST_QUESTIONS,
)


def _whole(value: Any) -> Any:
    """JSON does not tell 3 from 3.0, so neither do we."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Label = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_LABEL)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]
Count = Annotated[int, Field(ge=1, le=MOST_ANSWERS), BeforeValidator(_whole)]
PathCount = Annotated[int, Field(ge=1, le=MOST_PATHS), BeforeValidator(_whole)]
Threshold = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class Strict(BaseModel):
    """A JSON body: unknown fields are refused and no value is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Plain(BaseModel):
    """A query string, whose values are all text."""

    model_config = ConfigDict(extra="forbid")


class Shown(BaseModel):
    """A response, or a part of one."""

    model_config = ConfigDict(extra="forbid")


# questions


def _exactly_two(schema: dict[str, Any]) -> None:
    """Say in JSON Schema that two of head, relation and tail are given."""
    text = {"type": "string"}
    schema["oneOf"] = [
        {"required": [one, other], "properties": {one: text, other: text, asked: {"type": "null"}}}
        for one, other, asked in (
            ("head", "relation", "tail"),
            ("relation", "tail", "head"),
            ("head", "tail", "relation"),
        )
    ]


class QuestionBody(Strict):
    """A fact with one place left open: give two of head, relation and tail."""

    model_config = ConfigDict(json_schema_extra=_exactly_two)

    head: Label | None = Field(None, examples=["Belarus"])
    relation: Label | None = Field(
        None, examples=["currency"], description="A label, or `r^-1` for its inverse."
    )
    tail: Label | None = None

    @model_validator(mode="after")
    def _two_are_given(self) -> QuestionBody:
        Question(self.head, self.relation, self.tail)  # refuses anything else by name
        return self

    def question(self) -> Question:
        return Question(self.head, self.relation, self.tail)


class OptionsBody(Strict):
    """Which answers are wanted, of which model, on which graph."""

    model: Name | None = Field(None, description="By name; the first one where left out.")
    graph: Name | None = Field(None, description="By name; the first one where left out.")
    k: Count = Field(10, description="How many answers.")
    known: bool = Field(False, description="Also what the graph already holds, marked.")
    candidates: list[Label] | None = Field(
        None, min_length=1, max_length=MOST_CANDIDATES, description="Answer only these entities."
    )
    having: list[Label] = Field(
        [], max_length=MOST_HAVING, description="Only entities that have all of these."
    )


class PredictBody(QuestionBody, OptionsBody):
    """One question."""


class BatchBody(OptionsBody):
    """Several questions with the same options."""

    questions: list[QuestionBody] = Field(min_length=1, max_length=MOST_QUESTIONS)


class PredictQuery(Plain):
    """(head, relation, ?) in an address; `r^-1` asks for heads."""

    head: Label = Field(examples=["Belarus"])
    relation: Label = Field(examples=["currency"])
    model: Name | None = None
    graph: Name | None = None
    k: Count = 10
    known: bool = False

    def question(self) -> Question:
        return Question(self.head, self.relation, None)


class ExplainQuery(Plain):
    """Why the tail (or head) of a fact answers the question with it left open."""

    head: Label = Field(examples=["Belarus"])
    relation: Label = Field(examples=["currency"])
    tail: Label = Field(examples=["Euro"])
    asked: Literal["tail", "head"] = "tail"
    paths: PathCount = 5
    model: Name | None = None
    graph: Name | None = None


class ClaimBody(Strict):
    """A fact to check."""

    head: Label = Field(examples=["Belarus"])
    relation: Label = Field(examples=["currency"])
    tail: Label = Field(examples=["Euro"])


class CheckBody(Strict):
    """How plausible are these?"""

    claims: list[ClaimBody] = Field(min_length=1, max_length=MOST_CLAIMS)
    evidence: int = Field(
        1, ge=0, le=MOST_EVIDENCE, description="How many, the least plausible, get evidence."
    )
    model: Name | None = Field(None, description="By name; the first one where left out.")
    graph: Name | None = Field(None, description="By name; the first one where left out.")


class PoolQuery(Plain):
    """The query-specific graph of (head, relation, ?) under other thresholds."""

    head: Label = Field(examples=["Belarus"])
    relation: Label = Field(examples=["currency"])
    tail: Label | None = Field(None, description="Hide this answer where the graph holds it.")
    min_precision: Threshold = 0.1
    min_recall: Threshold = 0.0
    hops: int = Field(3, ge=1, le=MOST_HOPS)
    focus: list[Label] = Field([], max_length=MOST_FOCUS, description="Entities whose facts to show, too.")
    limit: int = Field(120, ge=1, le=1000, description="Facts to show at the most.")
    model: Name | None = None
    graph: Name | None = None


class EntitiesQuery(Plain):
    """Completion of a name."""

    prefix: Annotated[str, StringConstraints(max_length=LONGEST_LABEL)] = ""
    limit: int = Field(20, ge=1, le=MOST_COMPLETIONS)
    graph: Name | None = None


class RelationsQuery(Plain):
    """Relations of a model, with how many facts of each a graph holds."""

    model: Name | None = None
    graph: Name | None = None


class FileQuery(Plain):
    """A file that is sent as the body."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=255)] = Field(
        examples=["mine.tsv"],
        description="Its name; the end says how it is read: .tsv, .txt, .csv or .jsonl.",
    )
    options: Annotated[str, StringConstraints(max_length=200)] = Field(
        "",
        description="How to read it, as in an address: header=yes, delimiter=;, columns=0,2,1, merge=spaces.",
    )


class ReloadBody(Strict):
    """What to load again; everything where neither is named."""

    model: Name | None = None
    graph: Name | None = None


# answers


class ModelRef(Shown):
    """Which model answered: the fingerprint covers weights, relations, context, counts and calibration."""

    name: str
    fingerprint: str


class Ranked(Shown):
    name: str | None = None
    score: float
    probability: float | None = Field(description="That this fact holds; null without a calibration.")
    share: float | None = Field(
        description="Among all candidates, if there is one more answer; null for a known one."
    )
    known: bool


class EntityAnswer(Ranked):
    entity: str


class RelationAnswer(Ranked):
    relation: str


class Asked(Shown):
    head: str | None
    relation: str | None
    tail: str | None


class Answered(Shown):
    question: Asked
    known: list[str] = Field(description="What the graph already holds as answers; the first of them.")
    num_known: int
    bet: bool | None = Field(description=f"Whether the best new answer has a probability of at least {BET}.")
    calibrated_on: int | None = Field(description="How many facts probabilities rest on; null where unknown.")
    considered: int | None = Field(
        description="How many entities were ranked; fewer than all where walks have a cap."
    )
    num_entities: int | None = Field(description="Of how many; both are null where relations were asked for.")
    answers: list[EntityAnswer] | list[RelationAnswer]


class About(Shown):
    model: ModelRef
    graph: str


class PredictAnswer(Answered, About):
    """One question's answers."""


class BatchAnswer(About):
    results: list[Answered]


class ExplainAnswer(BaseModel):
    """`Explanation.to_dict()` with the model and the graph that it is about; see docs/explain.md."""

    model: ModelRef
    graph: str
    answer: str
    head: str
    relation: str
    tail: str
    asked: Literal["tail", "head"]
    score: float
    probability: float | None
    share: float | None
    rank: float
    candidates: int
    known: bool
    paths: list[dict[str, Any]]
    context: list[dict[str, Any]]
    dropped: list[dict[str, Any]]


class Verdict(Shown):
    head: str
    relation: str
    tail: str
    probability: float
    tail_rank: float
    head_rank: float
    known: bool = Field(description="Whether the graph holds it; it was hidden then.")
    evidence: str | None
    against: list[str]


class CheckAnswer(About):
    fitted_on: int = Field(description="How many facts of the graph the probabilities rest on.")
    claims: list[Verdict]


class HopCount(Shown):
    hop: int
    kept: int
    reached: int


class ShownFact(Shown):
    head: str
    relation: str
    tail: str
    hop: int | None = Field(description="At which it is first walked; null where pooling drops it.")


class ContextRow(Shown):
    relation: str
    precision: float
    recall: float
    facts: int
    kept: bool


class PoolAnswer(About):
    question: Asked
    min_precision: float
    min_recall: float
    hops: list[HopCount]
    facts: list[ShownFact]
    context: list[ContextRow]
    names: dict[str, str]


class EntityRow(Shown):
    entity: str
    name: str | None = None
    facts: int


class EntitiesAnswer(Shown):
    graph: str
    entities: list[EntityRow]
    more: bool


class RelationRow(Shown):
    relation: str
    name: str | None = None
    facts: int


class RelationsAnswer(About):
    relations: list[RelationRow]


class ModelRow(Shown):
    name: str
    fingerprint: str
    kind: str
    relations: int | None = Field(description="Those that it knows; null for a model of any.")
    calibrated: bool
    min_precision: float
    min_recall: float
    hops: int
    pools: bool = Field(description="Whether it walks a pooled graph at all.")
    loaded_at: float


class GraphRow(Shown):
    name: str
    entities: int
    relations: int
    facts: int
    models: list[str] = Field(description="Those that know its relations.")


class ModelsAnswer(Shown):
    models: list[ModelRow]
    graphs: list[GraphRow]
    max_upload: int = Field(description="Bytes of a file that may be sent; 0 where none is taken.")


class ExampleRow(Shown):
    head: str
    relation: str
    head_name: str | None
    relation_name: str | None


class ExamplesAnswer(About):
    examples: list[ExampleRow]


class Remark(Shown):
    message: str
    options: str | None = Field(description="What to read the file with instead, where that is known.")


class FileAnswer(Shown):
    graph: GraphRow
    remarks: list[Remark]


class ReloadAnswer(Shown):
    models: list[ModelRef]
    graphs: list[str]


class Status(Shown):
    status: str


# errors


class ProblemItem(Shown):
    """One thing that is wrong with a request."""

    kind: str
    where: str
    name: str
    message: str
    closest: list[str]


class Problem(Shown):
    code: str
    message: str
    items: list[ProblemItem]


class ProblemAnswer(Shown):
    """Every error looks like this."""

    error: Problem
