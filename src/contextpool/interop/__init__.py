"""Other libraries: PyG, PyKEEN, the Hugging Face Hub, and a run as others can take it."""
