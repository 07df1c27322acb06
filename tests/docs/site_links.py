# SPDX-License-Identifier: Apache-2.0
"""Usage: site_links.py FOLDER. Each link of the pages in FOLDER that stays in it leads to a file, and to an element of that name."""

import html
import pathlib
import re
import sys
import urllib.parse

folder = pathlib.Path(sys.argv[1])
pages = {page.name: page.read_text(encoding="utf-8") for page in sorted(folder.glob("*.html"))}
names = {name: set(re.findall(r'\b(?:id|name)="([^"]*)"', text)) for name, text in pages.items()}
checked, errors = 0, 0
for page, text in pages.items():
    for target in re.findall(r'\b(?:href|src)="([^"]*)"', text):
        target = html.unescape(target)
        if re.match(r"[a-z]+:", target):
            continue
        checked += 1
        file, _, anchor = target.partition("#")
        file = urllib.parse.unquote(file) or page
        if not (folder / file).exists():
            print(f"{page}: there is no file {file}")
        elif anchor and file in names and anchor not in names[file] | {"nested-classes"}:  # Doxygen links to hidden lists
            print(f"{page}: {file} has nothing named {anchor}")
        else:
            continue
        errors += 1
print(f"{len(pages)} pages, {checked} links checked, {errors} errors")
sys.exit(errors > 0 or len(pages) < 100 or checked < 1000)
