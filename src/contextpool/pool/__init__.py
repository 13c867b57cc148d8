"""Algorithm 2: the query-specific graph, as one walk for a whole batch of queries."""

from contextpool._callable_package import make_callable

make_callable(__name__, "contextpool.pool.pooled", "pool")
