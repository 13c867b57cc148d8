"""One model a file; each is a `LinkPredictor`: a batch of queries in, scores for every entity out."""
