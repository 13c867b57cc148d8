"""The forms that `triples.reader` reads beside plain triple files, one file for each kind of them."""
