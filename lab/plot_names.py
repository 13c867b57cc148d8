"""The pictures of the page of results."""

PLOTS = {
    "wins": "Ours and the best figure in the paper, all settings",
    "gain": "What context adds in each setting",
    "distance": "What context adds by the distance of the answer",
}
"""File name without suffix -> what it shows."""
