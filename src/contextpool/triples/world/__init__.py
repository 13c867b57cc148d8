"""The embedded graph `world`, as files: what they hold, from where and under which licence is in PROVENANCE.md."""
