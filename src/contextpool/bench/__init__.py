"""The benchmark: a grid of trainings, one line of JSON for each, and the page of tables made from the lines."""
