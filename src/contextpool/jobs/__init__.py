"""Many trainings: a file with one line for each that is finished, and several processes that work on them."""
