"""The systems that the paper compares with, each a `LinkPredictor` like any other."""
