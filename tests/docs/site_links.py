# SPDX-License-Identifier: Apache-2.0
"""Usage: site_links.py FOLDER. Each link of the pages in FOLDER, and of the tree at their left, that stays in it leads to a file, and to an element
of that name."""

import html
import pathlib
import re
import sys
import urllib.parse

folder = pathlib.Path(sys.argv[1])
pages = {page.name: page.read_text(encoding="utf-8") for page in sorted(folder.glob("*.html"))}
names = {name: set(re.findall(r'\b(?:id|name)="([^"]*)"', text)) for name, text in pages.items()}
links = [(page, html.unescape(target)) for page, text in pages.items() for target in re.findall(r'\b(?:href|src)="([^"]*)"', text)]
for tree in sorted(folder.glob("*_8hpp.js")):
    links += [(tree.name, target) for target in re.findall(r'"([^"]*\.html[^"]*)"', tree.read_text(encoding="utf-8"))]
checked, errors = 0, 0
for page, target in links:
    if re.match(r"[a-z]+:", target):
        continue
    checked += 1
    file, _, anchor = target.partition("#")
    file = urllib.parse.unquote(file) or page
    if not (folder / file).exists():
        print(f"{page}: there is no file {file}")
    elif anchor and file in names and anchor not in names[file]:
        print(f"{page}: {file} has nothing named {anchor}")
    else:
        continue
    errors += 1
print(f"{len(pages)} pages, {checked} links checked, {errors} errors")
sys.exit(errors > 0 or len(pages) < 100 or checked < 1000)
