"""A page as a real browser sees it, without a network."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def drawn(page: Path, profile: Path) -> str:
    """Return the page's elements after its scripts ran, without the scripts; skip if no Chromium.

    `profile` is a folder for the browser's own files.
    """
    chromium = shutil.which("chromium") or pytest.skip("no chromium here to open the page with")
    command = [
        chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={profile}", "--virtual-time-budget=10000", "--dump-dom",
        page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    return re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL)
