"""Search for recipes on selection queries alone; no inference query is ever read."""
