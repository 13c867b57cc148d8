"""Parts of a page that a script makes, between two marks that name the part and the script."""

from __future__ import annotations

import re


def between_marks(page: str, name: str, text: str) -> str:
    """The page with `text` between the marks of that name, each of which has to be there once."""
    begin, end = rf"<!-- {re.escape(name)}: made by scripts/\w+\.py -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"({begin}).*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise ValueError(f"the marks <!-- {name}: made by ... --> and {end} have to be there once.")
    return pattern.sub(lambda found: f"{found[1]}\n\n{text}\n\n{end}", page)
