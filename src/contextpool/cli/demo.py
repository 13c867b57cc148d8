"""`contextpool demo`: the whole story on the embedded graph."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contextpool.cli.mine import side_by_side
from contextpool.cli.output import console, table

if TYPE_CHECKING:
    from contextpool.context.neighbors import ContextNeighbors
    from contextpool.graph.graph import Graph
    from contextpool.predict import Predictor
    from contextpool.triples.dataset import Dataset
    from contextpool.triples.store import Triple


def demo(
    relation: Annotated[
        str, typer.Option("--relation", "-r", help="The relation to tell the story with.")
    ] = "currency",
    head: Annotated[str, typer.Option(help="A country of the graph that is never trained on.")] = "Austria",
    output: Annotated[Path, typer.Option("--output", "-o", help="The run folder to write.")] = Path(
        "runs/demo"
    ),
    seed: Annotated[int, typer.Option(help="Of the training.")] = 0,
    serve: Annotated[
        bool, typer.Option("--serve", help="Then open the page on the model; stops on Ctrl-C.")
    ] = False,
    port: Annotated[int, typer.Option(help="Of --serve; 0 takes a free one.")] = 8000,
) -> None:
    """The whole story: audit, mine on one half of the world, pool, train, and answer about the other half."""
    from contextpool.cli.serve import need_extra
    from contextpool.context.neighbors import mine_context
    from contextpool.graph.graph import Graph
    from contextpool.triples.catalog import load_dataset

    if serve:
        need_extra()  # before a minute of training rather than after
    dataset = load_dataset("world")
    _tell_audit(dataset)
    training = Graph.from_triples(dataset.training_graph)
    context = mine_context(training, min_precision=0.1)
    _tell_context(training, context, relation)
    inference = Graph.from_triples(dataset.inference_graph)
    _tell_pooling(inference, context, head, relation)
    predictor = _tell_training(dataset, output, seed)
    _tell_answers(predictor, dataset, inference, output)
    if serve:
        _serve(output, port)


def _tell_audit(dataset: Dataset) -> None:
    out = console()
    out.rule("1. The data: real facts about countries and cities, split by continent", align="left")
    report = dataset.audit()
    sizes = [
        (graph.name, f"{graph.triples:,}", f"{graph.entities:,}", f"{graph.relations:,}")
        for graph in report.graphs
    ]
    out.print(table("the two graphs", ("", "triples", "entities", "relations"), sizes))
    rows = [(finding.severity, finding.reading) for finding in report.findings if finding.severity != "ok"]
    out.print(table("what a reviewer would remark", ("", "finding"), rows, numbers_from=2))


def _tell_context(training: Graph, context: ContextNeighbors, relation: str) -> None:
    out = console()
    out.rule(
        f"2. The context: which relations are relevant to '{relation}', mined on {training!r}", align="left"
    )
    out.print(side_by_side(context, relation, top=8))
    out.print(
        "precision: of the entities having the neighbor, how many have the query; "
        "recall: of those having the query, how many have the neighbor"
    )


def _tell_pooling(inference: Graph, context: ContextNeighbors, head: str, relation: str) -> None:
    from contextpool.context.neighbors import MaskSelector
    from contextpool.pool.pooled import pool

    out = console()
    out.rule(
        f"3. The query-specific graph of ({head}, {relation}, ?), on entities never seen in step 2",
        align="left",
    )
    pooled = pool(inference, context, head=head, relation=relation, hops=3)
    everything = pool(
        inference, MaskSelector.everything(context.relations), head=head, relation=relation, hops=3
    )
    rows = [
        (f"hop {number}", f"{len(kept):,}", f"{len(full):,}", f"{len(kept) / max(1, len(full)):.0%}")
        for number, (kept, full) in enumerate(zip(pooled.hops, everything.hops, strict=True), start=1)
    ]
    out.print(table("edges walked", ("", "relevant relations only", "all relations", "kept"), rows))
    first = sorted(pooled.hops[0])[:8]
    out.print(table(f"hop 1 from {head}", ("from", "relation", "to"), first, numbers_from=3))


def _tell_training(dataset: Dataset, output: Path, seed: int) -> Predictor:
    from contextpool.cli.train import print_figures
    from contextpool.evaluate.references import evaluation_figures
    from contextpool.experiment import compare_with_references, run_recipe
    from contextpool.recipe import shipped_recipe
    from contextpool.train.progress import shown_progress

    out = console()
    recipe = shipped_recipe("world", "nbfnet", context=True)
    assert recipe is not None, "the demo's recipe is part of the package"
    out.rule("4. The model: NBFNet with context, trained on the first half of the world", align="left")
    began = time.perf_counter()
    with shown_progress() as progress:
        predictor = run_recipe(recipe, dataset, seed=seed, output=output, overwrite=True, progress=progress)
    out.print(f"trained in {time.perf_counter() - began:.0f} s; the run is in {output}")
    reports = compare_with_references(predictor, dataset)
    print_figures(evaluation_figures(reports), "all questions about the other half, P1")
    return predictor


def _tell_answers(predictor: Predictor, dataset: Dataset, inference: Graph, output: Path) -> None:
    out = console()
    out.rule("5. Three questions about countries it has never seen, with the evidence", align="left")
    for head, relation, tail in _questions(dataset):
        answers = predictor.predict(inference, head, relation, k=3)
        rows = [
            (answer.entity, f"{answer.probability:.0%}" if answer.probability is not None else "-")
            for answer in answers
        ]
        out.print(table(f"held out: {tail}", ("answer", "probability"), rows))
        why = predictor.explain(inference, head, relation, answers[0].entity, paths=3)
        out.print(why.text() + "\n", markup=False)
    out.print(
        f"Ask your own: contextpool ask world --run {output} --head NAME --relation currency\n"
        f"Or look at it: contextpool serve world --run {output} --open",
        markup=False,
        soft_wrap=True,
    )


def _serve(run: Path, port: int) -> None:
    """The page on the run that was just trained."""
    from contextpool.cli.serve import graph_sources, model_sources, run_server
    from contextpool.serve import ServeSettings

    run_server(model_sources([str(run)], "cpu"), graph_sources(["world"], []), ServeSettings(port=port))


def _questions(dataset: Dataset) -> list[Triple]:
    """The first held-out fact of each of three relations; which facts are held out was decided by a hash."""
    by_relation: dict[str, Triple] = {}
    for triple in dataset.inference_test:
        by_relation.setdefault(triple[1], triple)
    return [by_relation[relation] for relation in ("currency", "official_language", "borders")]
