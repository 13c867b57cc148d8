"""Several processes train what one trains, to the byte, and rank what it ranks; whoever fails is told once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import multiprocessing, nn

from contextpool import experiment
from contextpool.errors import ConfigError, LostProcessError
from contextpool.graph.graph import Graph
from contextpool.pool.batch import BatchBuilder
from contextpool.processes import Processes, current, device_of, joined
from contextpool.train.loss import softmax_loss
from contextpool.train.micro_batches import MicroBatch, Split, mean_loss
from contextpool.train.queries import TrainingQueries
from contextpool.train.run_folder import RunFolder
from learning_worlds import family_dataset, new_model, run_contents
from learning_worlds import one_thread as one_thread
from support import SOAK
from train.together import PIECES, RECIPES, Stopped, do_everything, go_on, stop_in_second_epoch

SIZES = (2, 3) if SOAK else (3,)
SAME_FILES = ("model.safetensors", "metrics.json", "checkpoints/best.safetensors")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process makes of it."""
    folder = tmp_path_factory.mktemp("alone")
    torch.set_num_threads(1)
    for name, recipe in RECIPES.items():
        predictor = experiment.run_recipe(recipe, family_dataset(), output=folder / name)
        table = experiment.evaluate(predictor, family_dataset(), batch_size=3).table
        columns = {key: getattr(table, key) for key in ("optimistic", "pessimistic", "candidates")}
        np.savez(folder / f"{name}-0.npz", **columns)
    return folder


@pytest.fixture(scope="module", params=SIZES)
def together(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """What several make of it, with gloo."""
    folder = tmp_path_factory.mktemp(f"of-{request.param}")
    multiprocessing.spawn(do_everything, (request.param, str(folder)), nprocs=request.param)
    return request.param, folder


def test_the_same_bytes_from_any_number_of_processes(alone: Path, together: tuple[int, Path]) -> None:
    _, folder = together
    for name in RECIPES:
        expected, found = run_contents(alone / name), run_contents(folder / name)
        for file in SAME_FILES:
            assert found[file] == expected[file], (name, file)


def test_every_process_has_the_whole_table_of_ranks_to_the_bit(
    alone: Path, together: tuple[int, Path]
) -> None:
    size, folder = together
    for name in RECIPES:
        expected = np.load(alone / f"{name}-0.npz")
        for rank in range(size):
            found = np.load(folder / f"{name}-{rank}.npz")
            assert all(np.array_equal(found[key], expected[key]) for key in expected.files)


def test_the_run_says_how_many_there_were_and_one_writes_it(together: tuple[int, Path]) -> None:
    size, folder = together
    run = RunFolder.open(folder / "dropped")
    assert run.config["machine"]["processes"] == size
    assert [event["epoch"] for event in run.events() if event["event"] == "epoch"] == [1, 2]


def test_an_error_of_one_process_ends_all_and_is_its_own_in_one(together: tuple[int, Path]) -> None:
    size, folder = together
    told = [json.loads((folder / f"told-{rank}.json").read_text()) for rank in range(size)]
    own, *others = reversed([each["failed"] for each in told])
    assert own == "DataError 2: x.tsv:3: it has two columns."
    expected = f"PeerFailedError 2: process {size - 1} of {size} failed: x.tsv:3: it has two columns."
    assert others == [expected] * (size - 1)
    assert told[0]["refused"].startswith("ConfigError 2: model = 'anyburl' learns by looking")
    assert all(each["refused"].startswith("PeerFailedError 2") for each in told[1:])
    assert all("the weights of the processes differ" in each["differs"] for each in told)


def test_another_number_of_processes_goes_on_to_the_same_bytes(
    alone: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    with pytest.raises(Stopped):
        experiment.run_recipe(RECIPES["dropped"], family_dataset(), output=run, progress=stop_in_second_epoch)
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    (tmp_path / "port").write_text(str(store.port))
    multiprocessing.spawn(go_on, (2, str(tmp_path), str(run)), nprocs=2)
    found, expected = run_contents(run), run_contents(alone / "dropped")
    assert all(found[file] == expected[file] for file in SAME_FILES)
    changes = [event for event in RunFolder.open(run).events() if event["event"] == "resumed elsewhere"]
    assert changes[0]["changed"]["processes"] == [1, 2]
    assert "processes 1 -> 2" in capfd.readouterr().err


@given(count=st.integers(0, 40), size=st.integers(1, 5), parts=st.integers(1, 9))
def test_every_query_is_in_one_micro_batch_of_one_process(count: int, size: int, parts: int) -> None:
    rows = list(range(count))
    found, numbers = [], []
    for rank in range(size):
        cut = Split.at_least(parts, Processes(rank, size))
        numbers += list(cut.own)
        for number in cut.own:
            found += rows[cut.bounds(number, count)]
    assert found == rows
    assert numbers == list(range(max(parts, size)))


@given(count=st.integers(0, 40), size=st.integers(1, 6))
def test_things_are_dealt_out_once_each(count: int, size: int) -> None:
    dealt = [list(Processes(rank, size).turns(count)) for rank in range(size)]
    assert sorted(one for own in dealt for one in own) == list(range(count))
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


def gradient_of_micro_batches(count: int, num_queries: int) -> tuple[float, list[torch.Tensor | None]]:
    data = family_dataset()
    graph = Graph.from_triples(data.training_graph)
    model = new_model("nbfnet", graph, None, 0)
    model.unused = nn.Parameter(torch.ones(3))
    queries = TrainingQueries.of(data.training_queries, graph, data.training_filter)
    builder, parts = BatchBuilder(graph, model.num_layers), Split(count, Processes())

    def micro_batch(number: int) -> MicroBatch:
        part = queries.batch(torch.arange(num_queries)[parts.bounds(number, num_queries)])
        return MicroBatch(number, part, builder.build(part.head, part.relation, part.hidden_edge))

    own = [micro_batch(number) for number in parts.own]
    parameters = list(model.parameters())
    loss = mean_loss(parts, own, lambda one: softmax_loss(model(one.prepared), one.queries), parameters)
    return float(loss), [parameter.grad for parameter in parameters]


@pytest.mark.parametrize("count", [2, 3, 8, 13])
def test_micro_batches_make_the_mean_and_the_gradient_of_the_whole(count: int) -> None:
    """11 queries: 13 micro-batches are partly empty."""
    expected_loss, expected = gradient_of_micro_batches(1, 11)
    loss, gradients = gradient_of_micro_batches(count, 11)
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    assert expected[-1] is None or len([one for one in expected if one is None]) == 1
    for one, other in zip(gradients, expected, strict=True):
        if one is None or other is None:
            assert one is other
        else:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_alone_nothing_is_asked_of_torch_distributed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    assert current() == Processes(0, 1)
    with joined("cpu") as (processes, device):
        assert (processes, device) == (Processes(0, 1), "cpu")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="this build of torch lacks"), joined("cpu"):
        pass


def test_variables_that_are_no_numbers_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "first")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="RANK is 'first'"), joined("cpu"):
        pass


def test_a_store_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with pytest.raises(LostProcessError, match=r"cannot join the others at 127.0.0.1:\?"), joined("cpu"):
        pass


def test_each_process_has_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [device_of("cuda", rank) for rank in (0, 1)] == ["cuda:0", "cuda:1"]
    assert device_of("cpu", 5) == "cpu"
    with pytest.raises(ConfigError, match="there are 2, one for each process"):
        device_of("cuda", 2)


def test_of_a_process_that_is_alone_all_micro_batches_are_its_own() -> None:
    assert list(Split.at_least(PIECES, Processes()).own) == list(range(PIECES))


@pytest.mark.gpu
def test_on_a_gpu_micro_batches_and_nccl_give_what_the_cpu_gives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One process that believes itself one of several: its sums go through NCCL, its objects through gloo."""
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=0, world_size=1)
    monkeypatch.setattr(Processes, "are_several", property(lambda self: True))
    try:
        for device in ("cpu", "cuda:0"):
            recipe = RECIPES["sampled"]
            predictor = experiment.run_recipe(
                recipe, family_dataset(), output=tmp_path / device, device=device
            )
            assert experiment.evaluate(predictor, family_dataset(), batch_size=3).num_queries > 0
    finally:
        torch.distributed.destroy_process_group()
    losses = [
        [event["loss"] for event in RunFolder.open(tmp_path / device).events() if event["event"] == "epoch"]
        for device in ("cpu", "cuda:0")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
