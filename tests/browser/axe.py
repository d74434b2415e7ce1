"""What axe-core finds on a page."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe


def faults(page: Any, *include: str) -> list[str]:
    """Serious and critical faults of the elements that these selectors find, or of the whole page: a line each."""
    context = {"include": list(include)} if include else None
    found = Axe().run(page, context=context, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{fault['id']} ({fault['impact']}): {fault['help']}: {node['html'][:200]} {node['failureSummary'][:200]}"
        for fault in found
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]
