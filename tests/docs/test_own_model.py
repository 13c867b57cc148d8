"""The example of docs/own-model.md runs as it is printed, and is as short as it claims to be."""

from __future__ import annotations

import re
import sys
import types

from conftest import REPOSITORY


def test_the_page_runs_and_beats_a_constant(capsys):
    page = (REPOSITORY / "docs" / "own-model.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    module = types.ModuleType("own_model_page")
    sys.modules["own_model_page"] = module
    exec(
        compile(code.replace('"epochs": 1', '"epochs": 1, "batch_size": 256'), "own-model.md", "exec"),
        module.__dict__,
    )
    found = re.search(r"mrr ([0-9.]+)", capsys.readouterr().out)
    assert found is not None
    assert float(found.group(1)) > 0.1
    body = code[code.index("class MeanWalk(") : code.index("predictor =")]
    assert len([line for line in body.splitlines() if line.strip()]) <= 40
