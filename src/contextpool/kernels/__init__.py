"""Message + aggregate, one function, several backends; `reference` is the definition."""
