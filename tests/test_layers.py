"""The package is built in layers, without circles."""

from __future__ import annotations

import grimp
import pytest


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """The modules that each module imports, for type checking too."""
    graph = grimp.build_graph("movlr_jax")
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def reached(imports: dict[str, set[str]], start: str) -> set[str]:
    """All modules that `start` imports, directly or through others."""
    found: set[str] = set()
    waiting = [*imports[start]]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += imports[module]
    return found


def test_no_file_imports_itself_through_others(imports: dict[str, set[str]]):
    assert len(imports) > 150
    assert [module for module in imports if module in reached(imports, module)] == []
