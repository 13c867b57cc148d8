"""Files of questions: answered like each alone, in any number of attempts, to the same bytes, in steady memory."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import contextpool as cp
from conftest import REPOSITORY
from contextpool.errors import ConfigError, DataError, InputError, WrongNamesError
from contextpool.graph.graph import Graph
from contextpool.predict import Predictor, Question, bulk, shards
from contextpool.predict.answers import Selection
from contextpool.predict.bulk import Bulk, BulkSettings, answer_file
from contextpool.triples.dataset import Dataset
from learning_worlds import families
from learning_worlds import one_thread as one_thread
from predict.killed_bulk import family_bulk
from support import SOAK, amount
from world_model import new_world as new_world
from world_model import world as world
from world_model import world_predictor as world_predictor
from world_model import world_run as world_run

PEOPLE = sorted({label for head, _, tail in families() for label in (head, tail)})
RELATIONS = ("parent of", "grandparent of^-1", "sibling of")


def random_questions(count: int, seed: int = 0) -> list[Question]:
    rng = random.Random(seed)
    kinds = (
        lambda h, r, t: Question(h, r, None),
        lambda h, r, t: Question(None, r, t),
        lambda h, r, t: Question(h, None, t),
    )
    return [
        rng.choice(kinds)(rng.choice(PEOPLE), rng.choice(RELATIONS), rng.choice(PEOPLE)) for _ in range(count)
    ]


def write_questions(path: Path, questions: list[Question]) -> Path:
    path.write_text("".join(json.dumps(question.to_dict()) + "\n" for question in questions))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_file_is_answered_like_each_question_alone(tmp_path: Path) -> None:
    questions = random_questions(23)
    asking = family_bulk()
    outcome = asking.write(write_questions(tmp_path / "q.jsonl", questions), tmp_path / "out")
    assert (outcome.questions, outcome.answered_now, outcome.refused) == (23, 23, 0)
    assert [path.name for path in outcome.shards] == [f"part-0000{n}.jsonl" for n in range(4)]
    lines = [json.loads(line) for path in outcome.shards for line in path.read_text().splitlines()]
    assert [line["question"] for line in lines] == list(range(1, 24))
    for line, question in zip(lines, questions, strict=True):
        (alone,) = asking.predictor.predict_batch(asking.asking.graph, [question], 3)
        assert [answer.get("entity", answer.get("relation")) for answer in line["answers"]] == [
            answer.label for answer in alone
        ]
        expected = [answer.score for answer in alone]
        assert [answer["score"] for answer in line["answers"]] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", ["tsv", "jsonl", "parquet"])
def test_streaming_gives_what_shards_hold(tmp_path: Path, kind: str) -> None:
    questions = write_questions(tmp_path / "q.jsonl", random_questions(10))
    asking = family_bulk(kind)
    shards = asking.write(questions, tmp_path / "out").shards
    streamed = [answer.label for answered in asking.stream(questions) for answer in answered.answers]
    if kind == "parquet":
        stored = [label for path in shards for label in pq.read_table(path).column("answer").to_pylist()]
    elif kind == "tsv":
        stored = [line.split("\t")[5] for path in shards for line in path.read_text().splitlines()]
    else:
        answers = [json.loads(line)["answers"] for path in shards for line in path.read_text().splitlines()]
        stored = [one.get("entity", one.get("relation")) for each in answers for one in each]
    assert stored == streamed
    names = pq.read_table(tmp_path / "out").column_names if kind == "parquet" else ["question"]
    assert names[0] == "question"  # a folder of shards is a dataset


class Stopped(BaseException):
    """Ends a call as suddenly as a kill would, as far as files are concerned."""


def stopping_after(monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """The next write is torn: its temporary file is half there, and nothing has its name yet."""
    real, left = shards.durable_file, [writes]

    def counted(path: Path):  # type: ignore[no-untyped-def]
        left[0] -= 1
        if left[0] < 0:
            (path.parent / f".{path.name}.torn.part").write_bytes(b"half")
            raise Stopped
        return real(path)

    monkeypatch.setattr(shards, "durable_file", counted)


@pytest.mark.parametrize("writes", range(7))
def test_a_call_that_is_cut_off_at_any_write_is_finished_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    questions = write_questions(tmp_path / "q.jsonl", random_questions(20))
    family_bulk().write(questions, tmp_path / "whole")
    (tmp_path / "cut").mkdir()
    with monkeypatch.context() as patched:
        stopping_after(patched, writes)
        with pytest.raises(Stopped):
            family_bulk().write(questions, tmp_path / "cut")
    outcome = family_bulk().write(questions, tmp_path / "cut")
    assert outcome.answered_now == 20 - 7 * (writes // 2) if writes < 6 else outcome.answered_now == 0
    left = {
        name: content for name, content in contents(tmp_path / "cut").items() if not name.endswith(".part")
    }
    assert left == contents(tmp_path / "whole")


def test_a_killed_process_leaves_what_another_finishes_to_the_same_bytes(tmp_path: Path) -> None:
    questions = write_questions(tmp_path / "q.jsonl", random_questions(120))
    family_bulk().write(questions, tmp_path / "whole")
    rng = random.Random(5)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY / 'tests'}",
        "OMP_NUM_THREADS": "1",
    }
    command = [
        sys.executable,
        str(Path(__file__).parent / "killed_bulk.py"),
        str(questions),
        str(tmp_path / "cut"),
    ]
    for _ in range(amount(2, 40)):
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as running:
            assert running.stdout is not None
            for _ in range(rng.randint(1, 5)):
                running.stdout.readline()
            running.send_signal(signal.SIGKILL)
    kept = len(json.loads((tmp_path / "cut" / "_manifest.json").read_text())["shards"])
    assert kept >= 1
    outcome = family_bulk().write(questions, tmp_path / "cut")
    assert outcome.answered_now == max(0, 120 - 7 * kept)
    left = {
        name: content for name, content in contents(tmp_path / "cut").items() if not name.endswith(".part")
    }
    assert left == contents(tmp_path / "whole")


def test_a_damaged_or_missing_shard_is_made_again(tmp_path: Path) -> None:
    questions = write_questions(tmp_path / "q.jsonl", random_questions(20))
    family_bulk().write(questions, tmp_path / "out")
    whole = contents(tmp_path / "out")
    (tmp_path / "out" / "part-00000.jsonl").write_bytes(b"{}\n")
    (tmp_path / "out" / "part-00002.jsonl").unlink()
    assert family_bulk().write(questions, tmp_path / "out").answered_now == 13
    assert contents(tmp_path / "out") == whole
    assert family_bulk().write(questions, tmp_path / "out").answered_now == 0


def test_answers_of_another_call_are_not_mixed(tmp_path: Path) -> None:
    questions = write_questions(tmp_path / "q.jsonl", random_questions(10))
    family_bulk().write(questions, tmp_path / "out")
    others = {
        "settings": family_bulk(shard_size=5),
        "selection": Bulk(
            family_bulk().predictor, family_bulk().asking.graph, Selection(4), family_bulk().settings
        ),
        "graph": Bulk(
            family_bulk().predictor, Graph.from_triples(families()[1:]), Selection(3), family_bulk().settings
        ),
    }
    for what, other in others.items():
        with pytest.raises(ConfigError, match=f"answers of another call: .*{what}"):
            other.write(questions, tmp_path / "out")
    changed = write_questions(tmp_path / "q.jsonl", random_questions(10, seed=1))
    with pytest.raises(ConfigError, match="questions differ"):
        family_bulk().write(changed, tmp_path / "out")
    assert family_bulk().write(changed, tmp_path / "out", overwrite=True).answered_now == 10


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 10**5, b'{"format": "other"}', b"\xff"])
def test_a_damaged_manifest_is_named(tmp_path: Path, content: bytes) -> None:
    questions = write_questions(tmp_path / "q.jsonl", random_questions(2))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "_manifest.json").write_bytes(content)
    with pytest.raises(DataError, match=r"_manifest\.json: this is no manifest"):
        family_bulk().write(questions, tmp_path / "out")


def test_a_manifest_cannot_make_us_touch_other_files(tmp_path: Path) -> None:
    questions = write_questions(tmp_path / "q.jsonl", random_questions(2))
    family_bulk().write(questions, tmp_path / "out")
    path = tmp_path / "out" / "_manifest.json"
    stored = json.loads(path.read_text())
    stored["shards"]["../q.jsonl"] = "0" * 64
    path.write_text(json.dumps(stored))
    with pytest.raises(DataError, match="no manifest"):
        family_bulk(shard_size=1).write(questions, tmp_path / "out", overwrite=True)
    assert questions.is_file()


def test_folders_with_other_content_are_left_alone(tmp_path: Path) -> None:
    questions = write_questions(tmp_path / "q.jsonl", random_questions(2))
    with pytest.raises(ConfigError, match="is a file"):
        family_bulk().write(questions, questions)
    with pytest.raises(ConfigError, match=r"holds other files, such as 'q\.jsonl'"):
        family_bulk().write(questions, tmp_path, overwrite=True)


def test_unknown_names_are_all_told_before_anything_is_answered(tmp_path: Path) -> None:
    questions = [
        *random_questions(9),
        Question("f1.x", "parent of", None),
        Question("f1", "parents of", None),
    ]
    path = write_questions(tmp_path / "q.jsonl", questions)
    with pytest.raises(
        WrongNamesError, match=r"q\.jsonl:10: entity 'f1\.x'.*; .*q\.jsonl:11: relation 'parents of'"
    ):
        family_bulk().write(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(WrongNamesError):
        next(family_bulk().stream(path))


def test_unknown_names_may_be_skipped_and_are_told_in_their_row(tmp_path: Path) -> None:
    questions = [
        Question("f1", "parent of", None),
        Question("f1.x", "parents of", None),
        Question("f2", "parent of", None),
    ]
    path = write_questions(tmp_path / "q.jsonl", questions)
    asking = family_bulk(on_unknown="skip")
    outcome = asking.write(path, tmp_path / "out")
    assert outcome.refused == 1
    first, second, third = (json.loads(line) for line in outcome.shards[0].read_text().splitlines())
    assert "error" not in first | third
    assert "entity 'f1.x' is unknown" in second["error"]
    assert "closest 'parent of'" in second["error"]
    assert second["answers"] == []
    assert len(third["answers"]) == 3


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    (tmp_path / "q.tsv").write_bytes(b"")
    with pytest.raises(InputError, match="holds no questions"):
        family_bulk().write(tmp_path / "q.tsv", tmp_path / "out")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kind": "csv"}, "format is 'csv'"),
        ({"shard_size": 0}, "shard_size is 0"),
        ({"batch_size": -1}, "batch_size"),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        BulkSettings(**settings)  # type: ignore[arg-type]


def test_the_short_way(tmp_path: Path) -> None:
    asking = family_bulk()
    questions = tmp_path / "q.tsv"
    questions.write_text("f1\tparent of\nf2\tparent of\n")
    seen = []
    outcome = answer_file(
        asking.predictor,
        asking.asking.graph,
        questions,
        tmp_path / "out",
        2,
        progress=lambda *now: seen.append(now),
    )
    assert outcome.shards[0].suffix == ".tsv"
    assert seen == [(2, 2)]


def peak(asking: Bulk, questions: Path, output: Path) -> int:
    """The most that Python held above the start while answering a file."""
    tracemalloc.start()
    try:
        asking.write(questions, output)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_number_of_questions(tmp_path: Path) -> None:
    asking = family_bulk(shard_size=50, batch_size=50)
    tails = [
        Question(question.head or question.tail, "parent of", None)
        for question in random_questions(amount(1200, 10_000))
    ]
    asking.write(write_questions(tmp_path / "warm.jsonl", tails[:50]), tmp_path / "warm")
    few = peak(asking, write_questions(tmp_path / "few.jsonl", tails[:200]), tmp_path / "few")
    many = peak(asking, write_questions(tmp_path / "many.jsonl", tails), tmp_path / "many")
    assert many < few + 300_000, (few, many)


@pytest.mark.soak
@pytest.mark.skipif(not SOAK, reason="long; run by `make soak`")
def test_ten_thousand_questions_about_the_world_in_steady_memory(
    tmp_path: Path, world: Dataset, new_world: Graph, world_predictor: Predictor
) -> None:
    def every_question() -> Iterator[Question]:
        for head in new_world.entities:
            for relation in new_world.relation_vocabulary.directed:
                yield Question(head, relation, None)

    questions = [question for question, _ in zip(every_question(), range(12_000), strict=False)]
    asking = Bulk(world_predictor, new_world, Selection(3), BulkSettings(shard_size=500))
    asking.write(write_questions(tmp_path / "few.jsonl", questions[:2_000]), tmp_path / "few")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = asking.write(write_questions(tmp_path / "many.jsonl", questions), tmp_path / "many")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # kB
    assert outcome.questions == 12_000
    assert grown < 50_000, f"{grown:,} kB more"


def test_the_world_is_answered_in_a_batch_like_one_by_one(
    world: Dataset, new_world: Graph, world_predictor: Predictor
) -> None:
    """Equal up to the order of candidates that a rounding error tells apart."""
    queries = [(head, relation) for head, relation, _ in list(world.inference_test)[::12]]
    together = world_predictor.predict_batch(new_world, queries, 10)
    for query, answers in zip(queries, together, strict=True):
        alone = world_predictor.predict(new_world, *query, k=12)
        score = {answer.entity: answer.score for answer in alone}
        assert [answer.score for answer in answers] == pytest.approx(
            [one.score for one in alone[:10]], abs=1e-4
        )
        assert all(
            score.get(one.entity, alone[-1].score) == pytest.approx(one.score, abs=1e-4) for one in answers
        )


def test_bulk_is_reachable_from_the_package() -> None:
    assert bulk.answer_file is answer_file
    assert cp.Predictor is Predictor
