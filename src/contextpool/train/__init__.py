"""Loss, optimisation loop, checkpoints and run folders; calling the package trains a model (`cp.train`)."""

from contextpool._callable_package import make_callable

make_callable(__name__, "contextpool.experiment", "train")
