"""Dataset folders: which layout one has is found by looking into it, never by its name."""

from contextpool.triples.formats.layouts import LAYOUTS, detect_layout, load_folder
from contextpool.triples.formats.parts import OnUnknown
from contextpool.triples.formats.write import write_dataset

__all__ = ["LAYOUTS", "OnUnknown", "detect_layout", "load_folder", "write_dataset"]
