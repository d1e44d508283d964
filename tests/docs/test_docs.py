# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The pages build without a warning, and what they name exists."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from config_keys import keys_in, settable

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")])
MAKEFILE = (ROOT / "Makefile").read_text()
# Parts of the repository whose paths are checked where a page names them.
ROOMS = ("verl/", "tests/", "examples/", "docker/", "docs/", "tools/", "requirements/", ".github/")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_pages_build_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", str(tmp_path / "cache")]
    result = subprocess.run([*command, str(ROOT / "docs"), str(tmp_path / "html")], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "html" / "index.html").exists()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_inside_the_repository_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_paths_that_a_page_names_exist(page: Path) -> None:
    for code in re.findall(r"`([^`\n]+)`", page.read_text()):
        for word in code.split():
            word = word.rstrip("),;")
            if word.startswith(ROOMS) and not re.search(r"[*<{…|]|\.\.\.", word):
                assert (ROOT / word).exists(), word


# The page of public paths names modules and functions.
@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "public_paths.md"], ids=name)
def test_keys_that_a_page_names_can_be_set_as_it_writes_them(page: Path) -> None:
    code = " ".join(re.findall(r"`([^`\n]+)`", page.read_text()))
    assert [key for key in keys_in(code) if not settable(key)] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make_verbs_that_a_page_names_exist(page: Path) -> None:
    blocks = re.findall(r"```bash\n(.*?)```", page.read_text(), flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()] + re.findall(r"`(make [^`]+)`", page.read_text())
    for line in lines:
        verbs = re.match(r"make ((?:[a-z-]+ ?)+)(?=$| |#)", line)
        for verb in verbs[1].split() if verbs else []:
            assert re.search(rf"^{verb}:", MAKEFILE, flags=re.MULTILINE), line


def test_the_page_of_public_paths_lists_the_modules_that_there_are() -> None:
    result = subprocess.run(
        [sys.executable, ROOT / "tools" / "public_paths.py", "--check"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
