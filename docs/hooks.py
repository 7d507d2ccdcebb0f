"""Hooks of MkDocs: pages and pictures outside docs/ become part of the site, and pages of modules are filled.

Pages link to files by their path in the repository, so the same links work on GitHub.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
OUTSIDE = (
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "assets/gallery/*.gif",
    "benchmarks/results/*.md",
    "benchmarks/results/*.png",
    "benchmarks/results/gpu/*.json",
    "benchmarks/results/*.jpg",
    "benchmarks/results/*.json",
)
OTHER = ("CITATION.cff", "LICENSE")  # files of the repository that are no pages: links to them become text
MODULES = re.compile(r"<!-- modules: (.+) -->")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of `OUTSIDE` to the site, at their path in the repository."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            relative = path.relative_to(ROOT).as_posix()
            files.append(File(relative, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links of the repository into links of the site, and list modules where a page asks for it."""
    if Path(page.file.abs_src_path or "").is_relative_to(config.docs_dir):
        up = "../" * (page.file.src_uri.count("/") + 1)
        markdown = markdown.replace(f"]({up}", f"]({up.removesuffix('../')}")
    else:
        markdown = markdown.replace("](docs/", "](").replace("](../../docs/", "](../../")
    names = "|".join(re.escape(name) for name in OTHER)
    markdown = re.sub(rf"\[([^\]]+)\]\((?:\.\./)*(?:{names})\)", r"\1", markdown)
    return MODULES.sub(lambda match: documented(match[1].split()), markdown)


def documented(packages: list[str]) -> str:
    """Return a section for each module of `packages` that defines something public, for mkdocstrings to fill."""
    sections = []
    for package in packages:
        path = ROOT / package.replace(".", "/")
        for file in [path.with_suffix(".py")] if not path.is_dir() else sorted(path.rglob("*.py")):
            if file.name not in ("__init__.py", "__main__.py") and file.exists() and defines_something(file):
                module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
                sections.append(f"## {module.removeprefix('movlr_jax.')}\n\n::: {module}\n{OPTIONS}")
    return "\n".join(sections)


OPTIONS = "    options:\n      show_root_heading: false\n      show_root_toc_entry: false\n"


def defines_something(file: Path) -> bool:
    """Return whether a module defines a public class or function."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    return any(isinstance(n, ast.ClassDef | ast.FunctionDef) and not n.name.startswith("_") for n in body)
