"""The laboratory: grids of trainings, searches, and the pages of results. Run in a checkout, as `python -m lab`."""
