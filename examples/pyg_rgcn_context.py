"""PyG's RGCNConv as a link predictor for a graph whose entities it has never seen.

    python examples/pyg_rgcn_context.py --dataset grail/fb237_v1

A node starts as the mean of the relations it has, so nothing is learned about any entity; two convolutions, then
DistMult. `pyg_rgcn_context.py` is the same program with context pooling added; `pyg_compare.py` runs both.
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu
from torch_geometric.data import Data
from torch_geometric.nn import FastRGCNConv as RGCNConv  # the same layer, without a loop over the edge types
from torch_geometric.utils import scatter

import contextpool as cp
from contextpool.evaluate.report import EvaluationReport, evaluate_scorer
from contextpool.interop.pyg import ContextPooling
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.store import Triples


class LinkPredictor(nn.Module):
    """Scores of all nodes as the tail of (head, relation, ?); types number R relations and their R inverses."""

    def __init__(self, num_types: int, dim: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.having = nn.Embedding(num_types, dim)
        self.asked = nn.Embedding(num_types, dim)
        nn.init.xavier_uniform_(self.asked.weight)
        self.convs = nn.ModuleList(RGCNConv(dim, dim, num_types, num_blocks=4) for _ in range(layers))
        self.pooling = ContextPooling(hops=layers, min_precision=0.0, self_policy="keep", num_types=num_types)
        self.start = nn.Embedding(num_types, dim)
        self.walk = nn.ModuleList(RGCNConv(dim, dim, num_types, num_blocks=4) for _ in range(layers))
        self.arrived = nn.Linear(dim + 1, 1)

    def forward(self, data: Data, head: Tensor, relation: Tensor) -> Tensor:
        """Queries [B] -> scores [B, N]."""
        source, _ = data.edge_index
        x = scatter(self.having(data.edge_type), source, dim_size=data.num_nodes, reduce="mean")  # [N, dim]
        for conv in self.convs:
            x = x + relu(conv(x, data.edge_index, data.edge_type))
        scores = (x[head] * self.asked(relation)) @ x.T
        picked = self.pooling.select(
            data.edge_index, data.edge_type, head, relation, num_nodes=data.num_nodes
        )
        pooled = self.pooling.connect(picked, data.edge_index)
        y = x.new_zeros(picked.num_clusters, x.size(1)).index_add(
            0, picked.head_cluster, self.start(relation)
        )
        for conv in self.walk:
            y = y + relu(conv(y, pooled.edge_index, pooled.edge_attr))
        reached = pooled.batch * data.num_nodes + picked.node_index  # places in [B * N]
        y = torch.cat([y, picked.weight[:, None]], dim=1)  # and how much each node looks like an answer
        return scores.view(-1).index_add(0, reached, self.arrived(y).squeeze(1)).view_as(scores)


def without(data: Data, columns: Tensor) -> Data:
    """The graph without these facts, which it would otherwise answer by looking them up; both directions go."""
    keep = torch.ones(data.num_edges, dtype=torch.bool)
    keep[columns] = keep[(columns + data.num_edges // 2) % data.num_edges] = False
    return Data(edge_index=data.edge_index[:, keep], edge_type=data.edge_type[keep], num_nodes=data.num_nodes)


def train_epoch(model: LinkPredictor, data: Data, optimizer: torch.optim.Optimizer, batch: int) -> float:
    """Every edge asked once in each direction, `batch` facts a step, none of which is in the graph of its step."""
    total = 0.0
    for columns in torch.randperm(data.num_edges // 2).split(batch):
        asked = torch.cat([columns, columns + data.num_edges // 2])
        (head, tail), relation = data.edge_index[:, asked], data.edge_type[asked]
        loss = cross_entropy(model(without(data, columns), head, relation), tail)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(columns)
    return total / (data.num_edges // 2)


def ranked(model: LinkPredictor, data: Data, queries: Triples, known: KnownAnswers) -> EvaluationReport:
    """Filtered, among all entities, both directions, ties share their mean rank."""
    model.eval()
    report = evaluate_scorer(lambda head, relation: model(data, head, relation), queries, known)
    model.train()
    return report


def run(
    dataset: cp.Dataset, seed: int = 0, epochs: int = 20, batch: int = 64, dim: int = 32
) -> tuple[float, float]:
    """Validation MRR of the best epoch, and the MRR of that epoch on the inference graph's queries.

    Stops after two epochs without a better one; validation queries are the training graph's own.
    """
    torch.manual_seed(seed)
    data, new = (
        cp.Graph.from_triples(part).to_pyg() for part in (dataset.training_graph, dataset.inference_graph)
    )
    model = LinkPredictor(2 * len(dataset.relations), dim)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    best_epoch, best = 0, (0.0, 0.0)
    for epoch in range(1, epochs + 1):
        loss = train_epoch(model, data, optimizer, batch)
        valid = ranked(model, data, dataset.validation_queries, dataset.validation_filter).mrr
        print(f"  epoch {epoch}: loss {loss:.3f}, validation mrr {valid:.4f}", flush=True)
        if valid > best[0]:
            test = ranked(model, new, dataset.evaluation_queries("P1"), dataset.evaluation_filter).mrr
            best_epoch, best = epoch, (valid, test)
        elif epoch - best_epoch >= 2:
            break
    return best


def main() -> None:
    """Train and print the two figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="grail/fb237_v1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=20)
    chosen = parser.parse_args()
    valid, test = run(cp.load_dataset(chosen.dataset), chosen.seed, chosen.epochs)
    print(f"validation mrr {valid:.4f}, inference graph mrr {test:.4f}")


if __name__ == "__main__":
    main()
