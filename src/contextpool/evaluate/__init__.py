"""How good a scorer is: ranks, metrics, calibration. Knows no model, only its scores."""

from contextpool._callable_package import make_callable

make_callable(__name__, "contextpool.experiment", "evaluate")
